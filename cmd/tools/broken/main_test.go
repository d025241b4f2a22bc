package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRulesCanBeBroken checks that every rule matches its file exactly once, that the changed file is valid Go, and
// that the tests that must detect the change exist.
func TestRulesCanBeBroken(t *testing.T) {
	for _, r := range rules {
		path, text, err := r.broken("../../..")
		if assert.NoError(t, err, r.name) {
			_, err = parser.ParseFile(token.NewFileSet(), path, text, 0)
			assert.NoError(t, err, r.name)
		}
		_, err = r.folder("../../..")
		assert.NoError(t, err, r.name)
	}
}
