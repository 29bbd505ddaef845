package tidesdb

import "testing"

// TestNobodyJoinsReleasedFunctions: a refresh beside a close joined after the last user had left, and released the functions again.
func TestNobodyJoinsReleasedFunctions(t *testing.T) {
	used := &callbacks{users: 1}
	if !used.join() {
		t.Fatal("the first user is there")
	}
	used.leave()
	used.leave()
	if used.join() {
		t.Fatal("all have left")
	}
}
