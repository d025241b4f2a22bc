package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every rule is in its place in the table, the broken file is Go, and the tests that are to notice are there.
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
