package tidesdb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pages show programs and samples. A program runs and prints what the page says; a sample is a part of the examples.
var pages = []string{"../../docs/how-to/go.md", "../../docs/coming-from/pebble.md"}

type fence struct {
	language, text string
}

func fences(t *testing.T, text string) (found []fence) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		language, ok := strings.CutPrefix(lines[i], "```")
		if !ok {
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			t.Fatal("a fence has no end")
		}
		found = append(found, fence{language, strings.Join(lines[begin:i], "\n") + "\n"})
	}
	return found
}

// flat returns text without what indents its lines.
func flat(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

func TestThePagesAreTrue(t *testing.T) {
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) { isTrue(t, page) })
	}
}

func isTrue(t *testing.T, page string) {
	text, err := os.ReadFile(page)
	if os.IsNotExist(err) {
		t.Skip("the page is not beside the module")
	}
	good(t, err)
	examples, err := os.ReadFile("example_test.go")
	good(t, err)
	programs, samples := 0, 0
	all := fences(t, string(text))
	for i, each := range all {
		if each.language != "go" {
			continue
		}
		if !strings.HasPrefix(each.text, "package main\n") {
			samples++
			if !strings.Contains(flat(string(examples)), flat(each.text)) {
				t.Errorf("no example has this sample:\n%s", each.text)
			}
			continue
		}
		programs++
		if i+1 == len(all) || all[i+1].language != "text" {
			t.Fatal("the page does not say what the program prints")
		}
		if testing.Short() {
			continue // the program was run without the race detector
		}
		if got := runProgram(t, each.text); got != all[i+1].text {
			t.Errorf("the program prints\n%s\nthe page says\n%s", got, all[i+1].text)
		}
	}
	if programs == 0 {
		t.Errorf("no program among %d samples", samples)
	}
}

func runProgram(t *testing.T, text string) string {
	here, err := os.Getwd()
	good(t, err)
	folder := t.TempDir()
	module := "module shop\n\ngo 1.25\n\nrequire tidesdb v0.0.0\n\nreplace tidesdb => " + here + "\n"
	good(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte(module), 0o644))
	good(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o644))
	command := exec.Command("go", "run", ".")
	command.Dir = folder
	var failures strings.Builder
	command.Stderr = &failures
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, failures.String())
	}
	return string(printed)
}
