package storage

import "regexp"

// packageNames matches the package names at the start of errors. They tell programmers the origin of an error; users
// don't need them. Names that users know, such as cassandra, kairosdb and tenant, are kept. A test in cmd/internal/tidy
// finds missing ones.
var packageNames = regexp.MustCompile(
	`(^|: |; |\()(?:(?:adapter|bench|blocks|bounds|chunk|downsample|engine|exporter|fetch|format|ha|importer|inspect|jsonapi|lines|membership|objects|otlp|overhttp|page|paged|panics|pebble|promql|relabeling|remotewrite|rollup|ruler|selfmonitoring|storage|victoria): )+`,
)

// Plain returns the text of an error for users: without the names of packages. It is called where texts leave the
// process: at the end of a command, in HTTP responses, and in the log.
func Plain(text string) string { return packageNames.ReplaceAllString(text, "$1") }

// PlainError returns an error that wraps err, with the text Plain(err.Error()); or err itself, if the text is the same.
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
