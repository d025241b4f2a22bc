package bounds

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadFile reads a configuration file. most is the max size of the file in bytes, a multiple of a MiB. The errors don't
// contain the name of the file. ReadFile rejects files that aren't regular, because opening a named pipe could block
// forever.
func ReadFile(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("isn't a regular file")
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(name)
	}
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("is larger than %d MiB", most>>20)
	}
	return text, err
}
