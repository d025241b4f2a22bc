package importer

import "time"

// instant writes a timestamp, milliseconds, for people.
func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05") }
