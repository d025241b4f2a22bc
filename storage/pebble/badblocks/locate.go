package badblocks

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cassia-db/cassia/storage/engine/damagedblock"
)

// Locate returns the error of a read with the damaged file and block, as far as Pebble's error contains them.
func Locate(err error) *damagedblock.BlockError {
	if info := pebbledb.ExtractDataCorruptionInfo(err); info != nil {
		return LocateIn(filepath.Base(info.Path), err)
	}
	return LocateIn("", err)
}

// LocateIn is Locate for an error of a read of a file.
func LocateIn(file string, err error) *damagedblock.BlockError {
	at := int64(-1)
	if found := anyBlock.FindStringSubmatch(firstLine(err)); found != nil {
		at, _ = strconv.ParseInt(found[1], 10, 64)
	}
	if file != "" {
		err = errorInFile{err}
	}
	return &damagedblock.BlockError{File: file, Offset: at, Err: err}
}

// anyBlock matches the offset of a block in Pebble's errors.
var anyBlock = regexp.MustCompile(`block (\d+)/\d+: `)

// filePrefix matches the parts of Pebble's errors that name a file. A file that is verified has the number 0 there.
var filePrefix = regexp.MustCompile(
	`^(?:pebble: backing file \d+ error: )?(?:(?:pebble/table: invalid table|pebble: file) \d+: )?`,
)

// errorInFile is an error of Pebble whose text omits the name of the file.
type errorInFile struct{ error }

func (e errorInFile) Error() string { return filePrefix.ReplaceAllString(firstLine(e.error), "") }

func (e errorInFile) Unwrap() error { return e.error }

// firstLine returns the first line of an error of Pebble. Further lines refer to Pebble's code.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
