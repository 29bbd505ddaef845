package tidesdb_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidesdb"
)

// spoil changes a byte of the stored settings of a family, in a database without rows.
func spoil(t *testing.T, path string) {
	t.Helper()
	files := value(filepath.Glob(filepath.Join(path, "*.vlog")))
	if len(files) != 1 {
		t.Fatal("the settings are not the only long value:", files)
	}
	all := value(os.ReadFile(files[0]))
	all[len(all)*3/4] ^= 1
	good(t, os.WriteFile(files[0], all, 0o644))
}

// Regression test: a family whose settings could not be read was taken for a missing one, and its creation failed with ErrExists.
func TestADamagedFamilyIsNotAMissingOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	good(t, value(tidesdb.Open(path, nil)).Close())
	spoil(t, path)
	_, err := tidesdb.Open(path, nil)
	fails(t, "Open", err, tidesdb.ErrCorrupt)
	var failure *tidesdb.Error
	if !errors.As(err, &failure) || failure.Op != "Family" || !strings.Contains(failure.Text, ".vlog") {
		t.Errorf("%#v", err)
	}
	// Its rows cannot be read; the rest of the database can.
	db := value(tidesdb.Open(path, &tidesdb.Options{ReadOnly: true}))
	_, err = db.Get([]byte("k"))
	fails(t, "Get", err, tidesdb.ErrCorrupt)
	good(t, db.Close())
}

// Regression test: a failure to create the family "default" was none if it had no text.
func TestADefaultFamilyThatCannotBeMadeIsAnError(t *testing.T) {
	_, err := tidesdb.Open(filepath.Join(t.TempDir(), "db"), &tidesdb.Options{Default: &tidesdb.FamilyOptions{Comparator: strings.Repeat("x", 99)}})
	fails(t, "Open", err, tidesdb.ErrNotFound)
}

// Regression test: without the family "default", reads of a database that is only read were ErrInvalid, and so was Sync.
func TestADatabaseWithoutADefaultFamily(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	k := []byte("k")
	writer := value(tidesdb.Open(path, nil))
	good(t, value(writer.CreateFamily("f", nil)).Put(k, []byte("v"), nil))
	good(t, writer.DropFamily(tidesdb.DefaultFamily))
	reader := value(tidesdb.OpenReader(path, nil))
	lacking(t, value(reader.Refresh()))
	good(t, reader.Close())
	good(t, writer.Close())
	lacking(t, value(tidesdb.Open(path, &tidesdb.Options{ReadOnly: true})))
}

// lacking tests a database without the family "default" that is only read.
func lacking(t *testing.T, db *tidesdb.DB) {
	k := []byte("k")
	ctx := context.Background()
	f := value(db.Family("f"))
	if got := value(f.Get(k)); string(got) != "v" {
		t.Errorf("%q", got)
	}
	snapshot := value(db.Snapshot())
	defer snapshot.Close()
	tx := value(db.Begin(tidesdb.Serializable))
	defer tx.Rollback()
	batch := db.Batch()
	batch.Put(k, k)
	second := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"Get":          second(db.Get(k)),
		"AppendGet":    second(db.AppendGet(nil, k)),
		"Has":          second(db.Has(k)),
		"MultiGet":     second(db.MultiGet([][]byte{k})),
		"Iterator":     second(db.Iterator(nil)),
		"ValueReader":  second(db.NewValueReader(k)),
		"Explain":      second(db.Explain(k)),
		"Setting":      second(db.Setting("table_bytes")),
		"Snapshot.Get": second(snapshot.Get(k)),
		"Tx.Get":       second(tx.Get(k)),
	} {
		fails(t, name, err, tidesdb.ErrNotFound)
		if !strings.Contains(err.Error(), `no family "default"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"Put":     db.Put(k, k, nil),
		"Take":    second(db.Take(k, nil)),
		"Flush":   db.Flush(ctx),
		"Sync":    db.Sync(ctx),
		"Builder": second(db.NewTableBuilder("")),
		"Tx.Put":  tx.Put(k, k, nil),
		"Batch":   second(batch.Commit(nil)),
	} {
		fails(t, name, err, tidesdb.ErrReadOnly)
	}
	fails(t, "an empty key", second(f.Get(nil)), tidesdb.ErrInvalid)
	fails(t, "no family", second(snapshot.In(nil).Get(k)), tidesdb.ErrInvalid)
	good(t, db.Close())
	fails(t, "Get", second(db.Get(k)), tidesdb.ErrClosed)
	fails(t, "Sync", db.Sync(ctx), tidesdb.ErrClosed)
}

// Regression test: a reader that was closed within a callback stayed open, and could neither be used nor closed.
func TestACallbackThatClosesItsReaderIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	joins := tidesdb.MergeOperator{Name: "joins", Merge: func(value, operand []byte) ([]byte, error) { return append(value, operand...), nil }}
	writer := value(tidesdb.Open(path, &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{joins}}))
	defer writer.Close()
	f := value(writer.CreateFamily("f", &tidesdb.FamilyOptions{MergeOperator: "joins"}))
	good(t, f.Merge([]byte("k"), []byte("a"), nil))
	good(t, f.Merge([]byte("k"), []byte("b"), nil))

	var reader *tidesdb.Reader
	var err error
	closes := tidesdb.MergeOperator{Name: "joins", Merge: func(value, operand []byte) ([]byte, error) {
		err = reader.Close()
		return joins.Merge(value, operand)
	}}
	reader = value(tidesdb.OpenReader(path, &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{closes}}))
	for range 2 {
		view, failed := reader.Refresh()
		good(t, failed)
		if got := value(value(view.Family("f")).Get([]byte("k"))); string(got) != "ab" {
			t.Errorf("%q", got)
		}
		good(t, view.Close())
		fails(t, "Close", err, tidesdb.ErrBusy)
	}
	good(t, reader.Close())
	good(t, reader.Close())
	_, err = reader.Refresh()
	fails(t, "Refresh", err, tidesdb.ErrClosed)
}

// A generation whose proof is stopped stays, and is not proven.
func TestABackupWhoseProofIsStoppedStays(t *testing.T) {
	db := made(t, nil)
	good(t, db.Put([]byte("k"), make([]byte, 1<<20), nil))
	backups := value(tidesdb.OpenBackups(filepath.Join(t.TempDir(), "b")))
	defer backups.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	scratch := filepath.Join(t.TempDir(), "scratch")
	number, err := backups.Create(ctx, db, &tidesdb.BackupOptions{Scratch: scratch, Progress: func(done, total uint64) {
		if _, failed := os.Stat(scratch); failed == nil && done > 0 {
			cancel()
		}
	}})
	fails(t, "Create", err, context.Canceled)
	if got := value(backups.List()); number != 0 || len(got) != 1 || got[0].Proven {
		t.Errorf("%d: %v", number, got)
	}
}
