// Program bench compares TidesDB with Pebble, in one process, in turn, and prints the medians as a table of Markdown.
//
// Both have the same settings: write buffers of 64 MiB, a block cache that holds all rows, filters of 10 bits for each key, Snappy.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// store is a database as both engines have it.
type store interface {
	put(key, value []byte, sync bool)
	batch(keys [][]byte, value func(i int) []byte, sync bool)
	// get passes the value to see, which must not keep it.
	get(key []byte, see func(value []byte)) bool
	// copied returns a value that the caller keeps.
	copied(key []byte) []byte
	// walk passes rows from a key on, which see must not keep, until it returns false. end may be nil.
	walk(start, end []byte, reverse bool, see func(key, value []byte) bool)
	keys(see func(key []byte) bool)
	// settle flushes, and merges all tables.
	settle()
	close()
}

const valueBytes = 100

// row is a line of the table.
type row struct {
	name string
	// count is what is divided by the time.
	count func() int
	// fresh rows begin with an empty database.
	fresh bool
	run   func(s store, rows *rows)
}

// rows are the data of a run: keys of 16 bytes in random order, and values that compress to half.
type rows struct {
	keys   [][]byte
	sorted [][]byte
	values []byte
	n      int
	synced int
	r      *rand.Rand
}

func (d *rows) value(i int) []byte {
	at := i * 37 % (len(d.values) - valueBytes)
	return d.values[at : at+valueBytes]
}

func made(n, synced int) *rows {
	d := &rows{n: n, synced: synced, r: rand.New(rand.NewPCG(1, 61)), values: make([]byte, 1<<20)}
	for i := range d.values {
		if i%valueBytes < valueBytes/2 {
			d.values[i] = byte(d.r.Uint32())
		}
	}
	for i := range n {
		d.keys = append(d.keys, fmt.Appendf(nil, "key-%012d", i))
	}
	d.sorted = slices.Clone(d.keys)
	d.r.Shuffle(n, func(i, j int) { d.keys[i], d.keys[j] = d.keys[j], d.keys[i] })
	return d
}

const perBatch = 1000

func check(ok bool, what string) {
	if !ok {
		log.Fatal("wrong: ", what)
	}
}

func table(d *rows) []row {
	all := func() int { return d.n }
	tenth := func() int { return d.n / 10 }
	var sum int
	return []row{
		{"puts, one by one", all, true, func(s store, d *rows) {
			for i, key := range d.keys {
				s.put(key, d.value(i), false)
			}
		}},
		{"puts in batches of 1000", all, true, func(s store, d *rows) {
			for at := 0; at < d.n; at += perBatch {
				s.batch(d.keys[at:min(at+perBatch, d.n)], func(i int) []byte { return d.value(at + i) }, false)
			}
		}},
		{"walk, right after the puts", all, false, func(s store, d *rows) {
			seen := 0
			s.walk(nil, nil, false, func(key, value []byte) bool { seen++; sum += len(value); return true })
			check(seen == d.n, "rows of a walk")
		}},
		{"", nil, false, func(s store, _ *rows) { s.settle() }},
		{"walk", all, false, func(s store, d *rows) {
			seen := 0
			s.walk(nil, nil, false, func(key, value []byte) bool { seen++; sum += len(key) + len(value); return true })
			check(seen == d.n, "rows of a walk")
		}},
		{"walk, again", all, false, func(s store, d *rows) {
			seen := 0
			s.walk(nil, nil, false, func(key, value []byte) bool { seen++; sum += int(value[0]); return true })
			check(seen == d.n, "rows of a walk")
		}},
		{"walk backwards", all, false, func(s store, d *rows) {
			seen := 0
			s.walk(nil, nil, true, func(key, value []byte) bool { seen++; sum += int(value[0]); return true })
			check(seen == d.n, "rows of a walk")
		}},
		{"walk over keys", all, false, func(s store, d *rows) {
			seen := 0
			s.keys(func(key []byte) bool { seen++; sum += int(key[0]); return true })
			check(seen == d.n, "keys of a walk")
		}},
		{"ranges of 100 rows", all, false, func(s store, d *rows) {
			for range d.n / 100 {
				at := d.r.IntN(d.n - 100)
				seen := 0
				s.walk(d.sorted[at], d.sorted[at+100], false, func(key, value []byte) bool { seen++; sum += int(value[0]); return true })
				check(seen == 100, "rows of a range")
			}
		}},
		{"seeks to a row", tenth, false, func(s store, d *rows) {
			for range d.n / 10 {
				at := d.r.IntN(d.n)
				s.walk(d.sorted[at], nil, false, func(key, value []byte) bool { sum += int(value[0]); return false })
			}
		}},
		{"gets into a buffer", all, false, func(s store, d *rows) {
			for range d.n {
				check(s.get(d.sorted[d.r.IntN(d.n)], func(value []byte) { sum += int(value[0]) }), "get")
			}
		}},
		{"gets into new memory", all, false, func(s store, d *rows) {
			for range d.n {
				check(len(s.copied(d.sorted[d.r.IntN(d.n)])) == valueBytes, "get")
			}
		}},
		{"gets of absent keys", all, false, func(s store, d *rows) {
			key := make([]byte, 0, 32)
			for range d.n {
				key = append(append(key[:0], d.sorted[d.r.IntN(d.n)]...), 'x')
				check(!s.get(key, nil), "get of an absent key")
			}
		}},
		{"puts over old rows, one by one", all, false, func(s store, d *rows) {
			for i, key := range d.keys {
				s.put(key, d.value(i+1), false)
			}
		}},
		{"durable puts, one by one", func() int { return d.synced }, false, func(s store, d *rows) {
			for i := range d.synced {
				s.put(d.keys[i], d.value(i), true)
			}
		}},
		{"durable batches of 1000", func() int { return d.synced * 20 }, false, func(s store, d *rows) {
			for at := range d.synced * 20 / perBatch {
				from := at * perBatch % (d.n - perBatch + 1)
				s.batch(d.keys[from:from+perBatch], func(i int) []byte { return d.value(i) }, true)
			}
		}},
	}
}

func main() {
	n := flag.Int("rows", 1_000_000, "rows of the database")
	synced := flag.Int("synced", 2000, "durable puts")
	rounds := flag.Int("rounds", 5, "rounds, in which the engines take turns")
	folder := flag.String("dir", os.TempDir(), "where the databases are made")
	only := flag.String("only", "", "rows whose names have this part; loads are made in any case")
	profile := flag.String("profile", "", "write a profile of the processor time in TidesDB's calls to this file")
	cpu := flag.Bool("cpu", false, "measure processor time, of all threads, instead of time: for a machine that does other work")
	strict := flag.Bool("strict", false, "fail if a row is slower than with Pebble")
	flag.Parse()
	if *cpu {
		clock = processor
	}
	d := made(*n, *synced)
	engines := []struct {
		name string
		open func(path string) store
	}{{"TidesDB", openTides}, {"Pebble", openPebble}}
	table := table(d)
	times := make([][2][]time.Duration, len(table))
	if *profile != "" {
		file, err := os.Create(*profile)
		must(err)
		must(pprof.StartCPUProfile(file))
		defer pprof.StopCPUProfile()
	}
	for round := range *rounds {
		for turn := range engines {
			which := (turn + round) % 2
			runtime.GC()
			measure(d, table, *folder, *only, engines[which].open, func(i int, took time.Duration) {
				times[i][which] = append(times[i][which], took)
			})
		}
	}
	if lost := report(table, times); lost > 0 && *strict {
		log.Fatalf("%d rows are slower than with Pebble", lost)
	}
}

// measure runs all rows with one engine.
func measure(d *rows, table []row, folder, only string, open func(path string) store, took func(i int, took time.Duration)) {
	var s store
	path := ""
	end := func() {
		if s != nil {
			s.close()
			must(os.RemoveAll(path))
		}
	}
	for i, row := range table {
		if row.fresh {
			end()
			made, err := os.MkdirTemp(folder, "bench-go-")
			must(err)
			path = made
			s = open(path)
		} else if row.count != nil && !strings.Contains(row.name, only) {
			continue
		}
		begin := clock()
		row.run(s, d)
		took(i, clock()-begin)
	}
	end()
}

var start = time.Now()

// clock returns the time, or the processor time of the process.
var clock = func() time.Duration { return time.Since(start) }

func processor() time.Duration {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// report prints the medians, the losses first, and returns how many rows are lost.
func report(table []row, times [][2][]time.Duration) int {
	var won, lost []string
	for i, row := range table {
		if row.count == nil || len(times[i][0]) == 0 {
			continue
		}
		ours, theirs := median(times[i][0]), median(times[i][1])
		ratio := theirs.Seconds() / ours.Seconds()
		line := fmt.Sprintf("| %s | %s | %s | %.2fx", row.name, rate(row.count(), ours), rate(row.count(), theirs), ratio)
		if ratio < 1 {
			lost = append(lost, line+" **loss** |")
		} else {
			won = append(won, line+" |")
		}
	}
	fmt.Println("| | TidesDB | Pebble | |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, line := range append(lost, won...) {
		fmt.Println(line)
	}
	return len(lost)
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func rate(count int, took time.Duration) string {
	switch rate := float64(count) / took.Seconds(); {
	case rate >= 1e6:
		return fmt.Sprintf("%.3g M", rate/1e6)
	case rate >= 1e3:
		return fmt.Sprintf("%.3g K", rate/1e3)
	default:
		return fmt.Sprintf("%.3g", rate)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
