package promql

import (
	"bytes"
	"os"
	"strconv"
)

// anonymousMemory returns the process' anonymous resident memory, in bytes, or 0 if it can't be read. It includes
// memory that isn't Go's, such as that of C libraries.
func anonymousMemory() uint64 {
	statm, err := os.ReadFile("/proc/self/statm") // size, resident, shared, in pages
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	if len(fields) < 3 {
		return 0
	}
	resident, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	shared, err := strconv.ParseUint(string(fields[2]), 10, 64)
	if err != nil || shared > resident {
		return 0
	}
	return (resident - shared) * uint64(os.Getpagesize())
}
