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

// assumedMemory is the memory assumed for a machine that doesn't report it, in bytes.
const assumedMemory = 4 << 30

// AvailableMemory returns the memory that is available to all processes together: the machine's memory, or the limit of
// the control group if that is lower. root is the root of the file system, whose folders proc and sys/fs/cgroup are
// read.
func AvailableMemory(root fs.FS) int64 {
	memory := int64(assumedMemory)
	if total, ok := machineMemory(root); ok {
		memory = total
	}
	for _, file := range limitFiles(root) {
		b, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		// If there is no limit, the file contains "max" in version 2, and a number larger than any memory in version 1.
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

// limitFiles returns the files that may contain a limit on the memory of this process: the files of its control group
// and of all enclosing groups, in both versions of control groups.
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

// DefaultShare is the default of --memory.max-bytes as a share of the available memory. The rest is left to other
// processes and the page cache.
const DefaultShare = 0.6

// Parts holds the default parts of the memory limit, in bytes.
type Parts struct {
	// Defaults of --storage.head-bytes, --storage.cache-bytes, --query.max-bytes and --query.unread-bytes.
	Head, Cache, Query, Unread int64
	// Samples is the default of --query.max-samples: the number of samples that fit in a quarter of the memory, but at
	// most 50 million.
	Samples int64
}

// partsOf returns the default parts of a memory limit. More than half of the memory remains for queries, buffers and
// garbage.
func partsOf(memory int64) Parts {
	return Parts{
		Head:    partOf(memory, 4, minHead),
		Cache:   min(partOf(memory, 5, minCache), maxCache),
		Query:   partOf(memory, 8, minQuery),
		Unread:  partOf(memory, 16, minQuery),
		Samples: min(mostSamples, memory/4/sampleBytes),
	}
}

// Min values of the flags, in bytes. At minMemory, the default parts exceed their min values.
const (
	minMemory = 256 << 20
	minHead   = 16 << 20
	minCache  = 8 << 20
	maxCache  = 1 << 40
	minQuery  = 1 << 20
)

// mostSamples is Prometheus' default of --query.max-samples. sampleBytes is the size of a sample in the query
// evaluator.
const mostSamples, sampleBytes = 50_000_000, 16

// BodyBytes returns the max total size of the request bodies in progress that contain samples: a quarter of the memory.
// An endpoint's default may be lower.
func (c *Config) BodyBytes() int64 { return c.Memory / 4 }

// RequestBytes returns the max total size of all other request bodies in progress, such as queries: a sixteenth of the
// memory. It is separate from BodyBytes, so that bodies with samples can't block other requests.
func (c *Config) RequestBytes() int64 { return c.Memory / 16 }

// RuleBytes returns the max memory of the results and alerts of rules: an eighth of the memory.
func (c *Config) RuleBytes() int64 { return c.Memory / 8 }

// setParts computes the parts of the memory limit that aren't set by flags.
func (c *Config) setParts() {
	parts := partsOf(c.Memory)
	for _, p := range []struct {
		set  bool
		into *int64
		part int64
	}{
		{c.set.isHeadSet, &c.HeadBytes, parts.Head},
		{c.set.isCacheSet, &c.CacheBytes, parts.Cache},
		{c.set.isQuerySet, &c.QueryBytes, parts.Query},
		{c.set.isUnreadSet, &c.UnreadBytes, parts.Unread},
	} {
		if !p.set {
			*p.into = p.part
		}
	}
	if !c.set.isSamplesSet {
		c.MaxSamples = int(parts.Samples)
	}
}

// memoryWarnings returns a line per limit that exceeds the available memory. The system would kill the process before
// such a limit is reached.
func (c *Config) memoryWarnings() (out []string) {
	for _, f := range []struct {
		flag  string
		bytes int64
	}{{"query.max-bytes", c.QueryBytes}, {"query.unread-bytes", c.UnreadBytes}} {
		if f.bytes > c.Memory {
			out = append(out, fmt.Sprintf("--%s=%s exceeds --memory.max-bytes=%s: the memory limit ends queries first",
				f.flag, bytesText(f.bytes), bytesText(c.Memory)))
		}
	}
	if c.HeadBytes+c.CacheBytes <= c.Memory {
		return out
	}
	return append(out, fmt.Sprintf("--storage.head-bytes=%s and --storage.cache-bytes=%s together exceed "+
		"--memory.max-bytes=%s: queries will fail before new series are rejected",
		bytesText(c.HeadBytes), bytesText(c.CacheBytes), bytesText(c.Memory)))
}

// partOf returns memory divided by of, or the given minimum if that is larger. It rounds down to a multiple of 32 MiB,
// or of 1 MiB if the memory is small, so that --help shows a short number.
func partOf(memory, of, least int64) int64 {
	unit := int64(32 << 20)
	if memory <= 2<<30 {
		unit = 1 << 20
	}
	return max(least, memory/of/unit*unit)
}

// defaultLimit returns the default of --memory.max-bytes for the given available memory.
func defaultLimit(memory int64) int64 {
	const unit = 1 << 20
	return max(minMemory, int64(DefaultShare*float64(memory))/unit*unit)
}

// bytesValue is a flag's value in bytes. It is parsed from a plain number, or a number with a unit such as MiB or GiB.
type bytesValue int64

func (b *bytesValue) String() string { return bytesText(int64(*b)) }

// bytesText formats a size with a unit, rounded to one decimal, such as 5.9GiB.
func bytesText(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"EiB", 1 << 60}, {"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(unit.size), 'f', 1, 64), ".0") + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func (b *bytesValue) Get() any { return int64(*b) }

func (b *bytesValue) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		*b = bytesValue(n)
		return nil
	}
	n, err := units.ParseBase2Bytes(s)
	if err != nil {
		return fmt.Errorf("%q isn't a size such as 512MiB or 4GiB", s)
	}
	*b = bytesValue(n)
	return nil
}

func bytesFlag(cmd *kingpin.CmdClause, name, help string, value int64, into *int64) *kingpin.FlagClause {
	text := bytesText(value)
	exact := text
	if parsed, err := units.ParseBase2Bytes(text); err != nil || int64(parsed) != value {
		exact = strconv.FormatInt(value, 10) // The text was rounded.
	}
	f := cmd.Flag(name, help).Default(exact).PlaceHolder(text)
	f.SetValue((*bytesValue)(into))
	return f
}
