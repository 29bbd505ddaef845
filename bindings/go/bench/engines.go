package main

import (
	"context"
	"errors"
	"io"
	"log"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"tidesdb"
)

const (
	bufferBytes = 64 << 20
	cacheBytes  = 512 << 20
)

type tides struct {
	db     *tidesdb.DB
	ops    *tidesdb.Batch
	buffer []byte
}

var durable = &tidesdb.WriteOptions{Sync: tidesdb.SyncFull}

func openTides(path string) store {
	db, err := tidesdb.Open(filepath.Join(path, "db"), &tidesdb.Options{
		MemoryLimit: 2 << 30,
		CacheBytes:  cacheBytes,
		Default: &tidesdb.FamilyOptions{
			Sync: tidesdb.SyncNone, Compression: tidesdb.Snappy, WriteBufferBytes: bufferBytes, BloomFalsePositives: 0.01,
		},
	})
	must(err)
	return &tides{db: db, ops: db.Batch(), buffer: make([]byte, 0, 4096)}
}

func (t *tides) how(sync bool) *tidesdb.WriteOptions {
	if sync {
		return durable
	}
	return nil
}

func (t *tides) put(key, value []byte, sync bool) { must(t.db.Put(key, value, t.how(sync))) }

func (t *tides) batch(keys [][]byte, value func(i int) []byte, sync bool) {
	for i, key := range keys {
		t.ops.Put(key, value(i))
	}
	_, err := t.ops.Commit(t.how(sync))
	must(err)
}

func (t *tides) get(key []byte, see func(value []byte)) bool {
	value, err := t.db.AppendGet(t.buffer[:0], key)
	if errors.Is(err, tidesdb.ErrNotFound) {
		return false
	}
	must(err)
	see(value)
	return true
}

func (t *tides) copied(key []byte) []byte {
	value, err := t.db.Get(key)
	must(err)
	return value
}

func (t *tides) walk(start, end []byte, reverse bool, see func(key, value []byte) bool) {
	it, err := t.db.Iterator(&tidesdb.IterOptions{Start: start, End: end, Reverse: reverse})
	must(err)
	for key, value := range it.All() {
		if !see(key, value) {
			break
		}
	}
	must(it.Err())
	must(it.Close())
}

func (t *tides) keys(see func(key []byte) bool) {
	it, err := t.db.Iterator(&tidesdb.IterOptions{KeysOnly: true})
	must(err)
	for key := range it.Keys() {
		if !see(key) {
			break
		}
	}
	must(it.Err())
	must(it.Close())
}

func (t *tides) settle() {
	must(t.db.Flush(context.Background()))
	must(t.db.Compact(context.Background()))
}

func (t *tides) close() { must(t.db.Close()) }

type peer struct{ db *pebble.DB }

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(f string, args ...any) { log.Printf(f, args...) }
func (quiet) Fatalf(f string, args ...any) { log.Fatalf(f, args...) }

func openPebble(path string) store {
	options := &pebble.Options{
		CacheSize:                  cacheBytes,
		MemTableSize:               bufferBytes,
		FormatMajorVersion:         pebble.FormatNewest,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		Logger:                     quiet{},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		options.Levels[i].FilterType = pebble.TableFilter
	}
	db, err := pebble.Open(filepath.Join(path, "db"), options)
	must(err)
	return &peer{db}
}

func how(sync bool) *pebble.WriteOptions {
	if sync {
		return pebble.Sync
	}
	return pebble.NoSync
}

func (p *peer) put(key, value []byte, sync bool) { must(p.db.Set(key, value, how(sync))) }

func (p *peer) batch(keys [][]byte, value func(i int) []byte, sync bool) {
	batch := p.db.NewBatch()
	for i, key := range keys {
		must(batch.Set(key, value(i), nil))
	}
	must(batch.Commit(how(sync)))
	must(batch.Close())
}

func (p *peer) read(key []byte) ([]byte, io.Closer) {
	value, closer, err := p.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	must(err)
	return value, closer
}

func (p *peer) get(key []byte, see func(value []byte)) bool {
	value, closer := p.read(key)
	if closer == nil {
		return false
	}
	see(value)
	must(closer.Close())
	return true
}

func (p *peer) copied(key []byte) []byte {
	value, closer := p.read(key)
	kept := append([]byte(nil), value...)
	must(closer.Close())
	return kept
}

func (p *peer) walk(start, end []byte, reverse bool, see func(key, value []byte) bool) {
	it, err := p.db.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: end})
	must(err)
	if reverse {
		for ok := it.Last(); ok && see(it.Key(), it.Value()); ok = it.Prev() {
		}
	} else {
		for ok := it.First(); ok && see(it.Key(), it.Value()); ok = it.Next() {
		}
	}
	must(it.Error())
	must(it.Close())
}

func (p *peer) keys(see func(key []byte) bool) {
	it, err := p.db.NewIter(nil)
	must(err)
	for ok := it.First(); ok && see(it.Key()); ok = it.Next() {
	}
	must(it.Error())
	must(it.Close())
}

func (p *peer) settle() {
	must(p.db.Flush())
	must(p.db.Compact(context.Background(), []byte("a"), []byte("z"), true))
}

func (p *peer) close() { must(p.db.Close()) }
