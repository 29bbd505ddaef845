package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// Figure is a live figure of a database. docs/operate/monitoring.md explains the names; new versions add figures.
type Figure struct {
	// Group is "database", "family", "tree", "level", "operation", "stall" or "remote".
	Group string
	// Of is the name of the family, of the operation, or of the cause of the stalls.
	Of   string
	Name string
	// Unit is "count", "bytes", "seconds", "share" or "ratio".
	Unit string
	// Level is that of the tree, from 1; 0 for other figures.
	Level int
	// Counter is true if the figure only grows while the database is open.
	Counter bool
	Value   float64
}

// Figures returns all figures of the database and its families.
func (db *DB) Figures() ([]Figure, error) {
	r := C.go_figures(db.handle())
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("Figures", db, r)
	}
	return figuresOf(r), nil
}

// Figure returns one figure of the database, or of the family "default", by its group and name. [ErrNotFound] if there is none.
func (db *DB) Figure(group, name string) (float64, error) {
	figures, err := db.Figures()
	if err != nil {
		return 0, err
	}
	for _, figure := range figures {
		if figure.Group == group && figure.Name == name && (figure.Of == "" || figure.Of == DefaultFamily) {
			return figure.Value, nil
		}
	}
	return 0, ErrNotFound
}

func figuresOf(r C.go_result) []Figure {
	if r.a == 0 {
		return nil
	}
	list := pointer[C.tidesdb_x_figure_t](r.a)
	defer C.tidesdb_free(unsafe.Pointer(list))
	figures := make([]Figure, 0, int(r.b))
	for _, figure := range unsafe.Slice(list, int(r.b)) {
		figures = append(figures, Figure{
			Group:   C.GoString(figure.group),
			Of:      C.GoString(figure.of),
			Name:    C.GoString(figure.name),
			Unit:    C.GoString(figure.unit),
			Level:   int(figure.level),
			Counter: figure.is_counter != 0,
			Value:   float64(figure.real),
		})
	}
	return figures
}

// Metrics returns the figures as text in the format OpenMetrics 1.0, which Prometheus reads.
func (db *DB) Metrics() (string, error) {
	r := C.go_metrics(db.handle())
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return "", errorOf("Metrics", db, r)
	}
	return taken(r.a), nil
}

// State is the state of a database.
type State int

// The states.
const (
	Healthy State = iota
	Degraded
	// Failed: it takes no writes until it is opened again.
	Failed
)

// Health is the state of a database and what its open has found.
type Health struct {
	State  State
	Causes []string
	// WasClosed is true if the last process has closed the database.
	WasClosed bool
	// RecoveredCommits and RecoveredLogBytes are what the open has read from the log; DiscardedCommits lay behind damage in it.
	RecoveredCommits, RecoveredLogBytes, DiscardedCommits uint64
}

// Health returns the state of the database and its causes.
func (db *DB) Health() (Health, error) {
	var got C.tidesdb_x_health_t
	r := C.go_health(db.handle(), &got)
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return Health{}, errorOf("Health", db, r)
	}
	return Health{
		State:             State(got.state),
		Causes:            lines(taken(r.a)),
		WasClosed:         got.was_closed != 0,
		RecoveredCommits:  uint64(got.recovered_commits),
		RecoveredLogBytes: uint64(got.recovered_log_bytes),
		DiscardedCommits:  uint64(got.discarded_commits),
	}, nil
}

func lines(text string) []string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Verified is what [DB.Verify] has read.
type Verified struct {
	Tables, ValueLogs, Entries uint64
	// Unflushed are the entries in memory, which were not verified.
	Unflushed uint64
	// Faults are what is wrong, with file and offset.
	Faults []string
}

// Verify reads all tables and value logs and checks every checksum. Faults are in its result, not an error.
func (db *DB) Verify(ctx context.Context) (Verified, error) {
	return resultOf(ctx, func() (Verified, error) {
		var got C.tidesdb_x_verified_t
		r := C.go_verify(db.handle(), &got)
		runtime.KeepAlive(db)
		if r.code != C.TDB_SUCCESS {
			return Verified{}, errorOf("Verify", db, r)
		}
		return Verified{uint64(got.tables), uint64(got.value_logs), uint64(got.entries), uint64(got.unflushed), lines(taken(r.a))}, nil
	})
}

// resultOf is [during] for work with a result.
func resultOf[T any](ctx context.Context, work func() (T, error)) (T, error) {
	var result T
	done := make(chan T, 1)
	err := during(ctx, func() error {
		got, err := work()
		done <- got
		return err
	})
	select {
	case result = <-done:
	default: // the context has ended
	}
	return result, err
}

// Finding is what the doctor finds in the figures of a database.
type Finding struct {
	// Severity is 0 for urgent, 1 for a problem, 2 for advice.
	Severity          int
	Rule, What, Cause string
	Advice, Price     string
	Evidence          []string
}

// Diagnose returns what the doctor finds in the figures of the database, the most severe first.
func (db *DB) Diagnose() ([]Finding, error) {
	r := C.go_diagnose(db.handle())
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("Diagnose", db, r)
	}
	return findingsOf(r), nil
}

func findingsOf(r C.go_result) []Finding {
	if r.a == 0 {
		return nil
	}
	list := pointer[C.tidesdb_x_finding_t](r.a)
	defer C.tidesdb_free(unsafe.Pointer(list))
	findings := make([]Finding, 0, int(r.b))
	for _, finding := range unsafe.Slice(list, int(r.b)) {
		findings = append(findings, Finding{
			Severity: int(finding.severity),
			Rule:     C.GoString(finding.rule),
			What:     C.GoString(finding.what),
			Cause:    C.GoString(finding.cause),
			Advice:   C.GoString(finding.advice),
			Price:    C.GoString(finding.price),
			Evidence: lines(C.GoString(finding.evidence)),
		})
	}
	return findings
}

// WriterState says what is known of a process that writes a database.
type WriterState int

// The states.
const (
	WriterRunning  WriterState = iota
	WriterIdle                 // it has had nothing to do since
	WriterStopped              // by a signal or a debugger
	WriterClosed               // it has closed the database
	WriterEnded                // without closing the database
	WriterRebooted             // it ended so, and the machine was started again
	WriterUnknown
)

// Writer is the process that writes a database.
type Writer struct {
	State   WriterState
	Process uint32
	// Age is that of its figures, OpenFor how long it had had the database open then.
	Age, OpenFor time.Duration
	Written      time.Time
}

// WriterFigures returns the figures that another process, which has the database in the folder path open, has published last: at most a few
// seconds ago while it works. [ErrNotFound] if there is no database, or no process has published any.
func WriterFigures(path string) (Writer, []Figure, error) {
	const op = "WriterFigures"
	name, err := cstring(op, path)
	if err != nil {
		return Writer{}, nil, err
	}
	defer C.free(unsafe.Pointer(name))
	var got C.tidesdb_x_writer_t
	r := C.go_writer_figures(name, &got)
	if r.code != C.TDB_SUCCESS {
		return Writer{}, nil, errorOf(op, nil, r)
	}
	return Writer{
		State:   WriterState(got.state),
		Process: uint32(got.process),
		Age:     duration(got.age_ms),
		OpenFor: duration(got.open_for_ms),
		Written: moment(uint64(got.written_ms)),
	}, figuresOf(r), nil
}

func duration(ms C.uint64_t) time.Duration {
	return time.Duration(min(uint64(ms), 1<<43)) * time.Millisecond
}

// WriterDiagnose returns what the doctor finds in the figures of another process: see [WriterFigures].
func WriterDiagnose(path string) ([]Finding, error) {
	const op = "WriterDiagnose"
	name, err := cstring(op, path)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	r := C.go_writer_diagnose(name)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf(op, nil, r)
	}
	return findingsOf(r), nil
}
