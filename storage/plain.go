package storage

import "regexp"

// packageNames matches the package names with which error messages begin. They are useful to developers, but not to
// users. Names that users know, such as cassandra, kairosdb and tenant, are kept. A test in cmd/internal/tidy fails if
// a package is missing here.
var packageNames = regexp.MustCompile(
	`(^|: |; |\()(?:(?:adapter|bench|blocks|bounds|chunk|downsample|engine|exporter|fetch|format|ha|importer|inspect|jsonapi|lines|membership|objects|otlp|overhttp|page|paged|panics|pebble|promql|relabeling|remotewrite|rollup|ruler|selfmonitoring|storage|victoria): )+`,
)

// PlainText removes package names from the text of an error. It is used wherever error messages reach users: at the end
// of a command, in HTTP responses, and in the log.
func PlainText(text string) string { return packageNames.ReplaceAllString(text, "$1") }

// PlainError returns an error that wraps err and whose message is PlainText(err.Error()). If this doesn't change the
// message, it returns err itself.
func PlainError(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); PlainText(text) != text {
		return plainError{err}
	}
	return err
}

type plainError struct{ error }

func (e plainError) Error() string { return PlainText(e.error.Error()) }
func (e plainError) Unwrap() error { return e.error }
