package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cli"
	"github.com/cassia-db/cassia/cmd/internal/manual"
)

// TestEveryFlagOfServeHasAGroup checks that every flag of a server is in a group of related flags. Otherwise it would
// be listed under a heading that doesn't apply.
func TestEveryFlagOfServeHasAGroup(t *testing.T) {
	app, _ := newApplication()
	for _, group := range cli.FlagGroups(app.GetCommand("serve").Model().Flags) {
		require.NotEqual(t, "Flags", group.Title,
			"add a group to cmd/internal/cli/groups.go for %s", group.Flags[0].Name)
	}
}

func TestNoTopicIsACommand(t *testing.T) {
	app, _ := newApplication()
	for _, topic := range manual.Topics() {
		require.Nil(t, app.GetCommand(topic), "the topic %s can't be asked for: help shows the command", topic)
	}
}
