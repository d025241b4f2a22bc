package storage

import "regexp"

// packageNames are what errors of Cassia's packages begin with, for programmers to see where they are from; users don't need them.
// Names of what users have themselves, such as cassandra, kairosdb and tenant, stay. A test in cmd/internal/tidy finds missing ones.
var packageNames = regexp.MustCompile(`(^|: |; |\()(?:(?:adapter|bench|blocks|bounds|chunk|downsample|engine|exporter|fetch|format|ha|importer|inspect|jsonapi|lines|membership|objects|otlp|overhttp|page|paged|panics|pebble|promql|relabeling|remotewrite|rollup|ruler|selfmonitoring|storage|victoria): )+`)

// Plain returns the text of an error as users are to see it: without the names of packages. It is called where texts leave the
// process: at the end of a command, in answers over HTTP, and in the log.
func Plain(text string) string { return packageNames.ReplaceAllString(text, "$1") }

// PlainError returns an error with the text that Plain makes of err's, which wraps err; or err itself, where that is the same.
func PlainError(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); Plain(text) != text {
		return plainError{err}
	}
	return err
}

type plainError struct{ error }

func (e plainError) Error() string { return Plain(e.error.Error()) }
func (e plainError) Unwrap() error { return e.error }
