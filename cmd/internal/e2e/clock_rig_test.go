package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// skewed is a copy of the program in which time.Now is off by a number of seconds, which can be changed while it runs.
// Its monotonic clock is correct. The binary is patched because a static program reads the clock without a library that
// could be replaced, and time namespaces don't affect the time of day.
type skewed struct {
	path string
	// offset is the position in the file of the 4 bytes with the seconds. address is their address in the memory of a
	// process.
	offset, address int64
}

// The last instructions of time.now of Go's runtime on linux/amd64, followed by its code for kernels without a vDSO,
// which is never executed here. This code is replaced with code that adds a constant to the seconds returned in RAX.
var (
	//	ADDQ DX, CX; ADDQ $16, SP; POPQ BP; RET; MOVQ $SYS_clock_gettime, AX; SYSCALL
	endOfNow = []byte{
		0x48, 0x01, 0xd1, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3, 0x48, 0xc7, 0xc0, 0xe4, 0x00, 0x00, 0x00, 0x0f, 0x05,
	}
	//	ADDQ $seconds, AX; RET
	addToNow = []byte{0x48, 0x05, 0x00, 0x00, 0x00, 0x00, 0xc3}
)

const (
	addAt      = 8 // in endOfNow
	constantAt = 2 // in addToNow
)

// skewedCassia makes a copy of the program whose clock is off by d.
func skewedCassia(t *testing.T, d time.Duration) skewed {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the clock is changed in machine code of linux/amd64")
	}
	program, err := os.ReadFile(builtCassia(t))
	require.NoError(t, err)
	at := bytes.Index(program, endOfNow)
	require.Positive(t, at, "time.now isn't what it was in this version of Go")
	require.Equal(t, at, bytes.LastIndex(program, endOfNow), "time.now stands there once")
	copy(program[at+addAt:], addToNow)
	s := skewed{path: filepath.Join(t.TempDir(), "cassia-skewed"), offset: int64(at + addAt + constantAt)}
	copy(program[s.offset:], secondsOf(d))
	require.NoError(t, os.WriteFile(s.path, program, 0o700))

	file, err := elf.Open(s.path)
	require.NoError(t, err)
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && int64(p.Off) <= s.offset && s.offset < int64(p.Off+p.Filesz) {
			s.address = s.offset - int64(p.Off) + int64(p.Vaddr)
		}
	}
	require.Positive(t, s.address)
	return s
}

// set changes the clock offset of a running process.
func (s skewed) set(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer memory.Close()
	_, err = memory.WriteAt(secondsOf(d), s.address)
	require.NoError(t, err)
}

func secondsOf(d time.Duration) []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32(int32(d/time.Second)))
}
