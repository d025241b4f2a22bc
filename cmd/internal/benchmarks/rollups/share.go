package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The functions under which a CPU profile shows sealing: all that the sealer does itself, and its workers, which
// roll up. What they have Pebble do in the background isn't there.
const (
	sealingAll  = "storage.(*Store).SealAll"
	rollWorkers = "storage.(*sealer).each.func1"
	rollWrites  = "storage.(*sealer).rollup"
	rollBuild   = "storage.(*sealer).build"
)

// own is the CPU time of sealing's own code, all of it and the part for rollups.
type own struct{ all, rollups time.Duration }

var errProfile = errors.New("rollups: the CPU profile doesn't show the sealer")

// ownOfSealing reads it from a CPU profile.
func ownOfSealing(ctx context.Context, file string) (own, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-unit=ms", "-nodecount=100000", "-nodefraction=0", "-edgefraction=0", file)
	out, err := cmd.Output()
	if err != nil {
		return own{}, fmt.Errorf("rollups: go tool pprof %s: %w", file, err)
	}
	return ownIn(out)
}

// ownIn reads what go tool pprof -top -cum writes: flat, flat%, sum%, cum, cum%, name.
func ownIn(top []byte) (own, error) {
	cum := map[string]time.Duration{}
	lines := bufio.NewScanner(bytes.NewReader(top))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		ms, err := strconv.ParseFloat(strings.TrimSuffix(fields[3], "ms"), 64)
		if err != nil {
			continue
		}
		name := fields[5]
		cum[name[strings.LastIndexByte(name, '/')+1:]] = time.Duration(ms * float64(time.Millisecond))
	}
	if err := lines.Err(); err != nil {
		return own{}, err
	}
	if cum[sealingAll] == 0 || cum[rollWorkers] == 0 {
		return own{}, errProfile
	}
	return own{all: cum[sealingAll] + cum[rollWorkers], rollups: cum[rollWorkers] + cum[rollWrites] + cum[rollBuild]}, nil
}
