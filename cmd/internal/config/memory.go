package config

import (
	"bufio"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
)

// assumedMemory is the memory that is assumed for a machine that doesn't report it, bytes.
const assumedMemory = 4 << 30

// Memory returns how many bytes this process may use: the machine's memory, or less where a control group
// bounds it. root is the root of the file system, of which proc and sys/fs/cgroup are read.
func Memory(root fs.FS) int64 {
	memory := int64(assumedMemory)
	if total, ok := machineMemory(root); ok {
		memory = total
	}
	for _, file := range limitFiles(root) {
		b, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		// Version 2 has max where there is no limit, version 1 a number beyond any machine.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
			memory = min(memory, n)
		}
	}
	return memory
}

func machineMemory(root fs.FS) (int64, bool) {
	f, err := root.Open("proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kilobytes int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kilobytes); n == 1 && kilobytes > 0 {
			return kilobytes << 10, true
		}
	}
	return 0, false
}

// limitFiles names the files that may hold a limit on this process' memory: of its control group and of all
// groups around it, in both versions of control groups.
func limitFiles(root fs.FS) (files []string) {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var base, name string
		switch {
		case parts[0] == "0" && parts[1] == "":
			base, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			base, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			files = append(files, path.Join(base, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}

// shares are the defaults of what takes memory, bytes.
type shares struct{ Head, Cache, Query int64 }

// sharesOf leaves more than half of the memory to queries, buffers and garbage.
func sharesOf(memory int64) shares {
	return shares{
		Head:  share(memory, 4, 64<<20),
		Cache: share(memory, 8, 32<<20),
		Query: share(memory, 16, 64<<20),
	}
}

// memoryWarnings lists bounds that are beyond the memory, so that the system ends the process before one is reached.
func (c *Config) memoryWarnings() []string {
	if c.HeadBytes+c.CacheBytes <= c.Memory {
		return nil
	}
	text := func(n int64) string { return units.Base2Bytes(n >> 20 << 20).String() }
	return []string{fmt.Sprintf("--storage.head-bytes=%s and --storage.cache-bytes=%s are more than the %s of memory that this process may use: the system may end it before new series are refused",
		text(c.HeadBytes), text(c.CacheBytes), text(c.Memory))}
}

// share rounds down to whole 32 MiB, so that --help shows a short number.
func share(memory, part, least int64) int64 {
	const unit = 32 << 20
	return max(least, memory/part/unit*unit)
}

// bytesValue is a flag's number of bytes: plain, or with a unit such as MiB or GiB.
type bytesValue int64

func (b *bytesValue) String() string { return units.Base2Bytes(*b).String() }

// Get implements kingpin.Getter.
func (b *bytesValue) Get() any { return int64(*b) }

func (b *bytesValue) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		*b = bytesValue(n)
		return nil
	}
	n, err := units.ParseBase2Bytes(s)
	if err != nil {
		return fmt.Errorf("%q isn't a number of bytes such as 512MiB or 4GiB", s)
	}
	*b = bytesValue(n)
	return nil
}

func bytesFlag(cmd *kingpin.CmdClause, name, help string, value int64, into *int64) {
	cmd.Flag(name, help).Default(units.Base2Bytes(value).String()).SetValue((*bytesValue)(into))
}
