package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

const dockerfile = "../../docker/Dockerfile"

// instruction is an instruction of a Dockerfile. Continuation lines are joined.
type instruction struct{ name, args string }

// dockerStages returns the instructions of each stage of docker/Dockerfile. The first instruction of a stage is FROM.
func dockerStages(t *testing.T) (stages [][]instruction) {
	text, err := os.ReadFile(dockerfile)
	require.NoError(t, err)
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(
		regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(text), ""), "",
	)
	for line := range strings.Lines(joined) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "FROM" {
			stages = append(stages, nil)
		}
		if name != "" {
			require.NotEmpty(t, stages, "before the first FROM: %s", line)
			stages[len(stages)-1] = append(stages[len(stages)-1], instruction{name, args})
		}
	}
	return stages
}

// onlyInstruction returns the instruction with the given name in a build stage, which must have exactly one.
func onlyInstruction(t *testing.T, stage []instruction, name string) string {
	t.Helper()
	var found []string
	for _, i := range stage {
		if i.name == name {
			found = append(found, i.args)
		}
	}
	require.Len(t, found, 1, name)
	return found[0]
}

func splitWords(t *testing.T, list string) (out []string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(list), &out), list)
	return out
}

// TestImage tests the image without a container engine, because none is available. It runs the last step of the build,
// creates a root file system from the files that the last stage copies, and runs the entry point and the health check
// in it, as the image's user, without a shell or libraries.
func TestImage(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	t.Parallel()
	stages := dockerStages(t)
	require.Len(t, stages, 2)
	build, image := stages[0], stages[1]
	goMod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	needed := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindSubmatch(goMod)
	require.Equal(t, "--platform=$BUILDPLATFORM golang:"+string(needed[1])+" AS build", build[0].args,
		"the Go that go.mod asks for, on the builder's processor")

	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	runBuild(t, build[len(build)-1], root)
	program, err := os.Stat(filepath.Join(root, "cassia"))
	require.NoError(t, err)
	require.Less(t, program.Size(), int64(70<<20), "it is stripped")
	require.NoError(t, os.Rename(filepath.Join(root, "empty"), filepath.Join(root, "data")))
	require.Contains(t, image, instruction{"COPY", "--from=build /cassia /cassia"})
	require.Contains(t, image, instruction{"COPY", "--from=build --chown=65532:65532 /empty /data"})
	require.NoError(t, os.Chown(filepath.Join(root, "data"), 65532, 65532))

	require.Equal(t, "65532:65532", onlyInstruction(t, image, "USER"))
	require.Equal(t, "/data", onlyInstruction(t, image, "VOLUME"))
	labels := onlyInstruction(t, image, "LABEL")
	for _, name := range []string{"title", "description", "source", "licenses", "version", "revision"} {
		require.Contains(t, labels, "org.opencontainers.image."+name+"=\"")
	}
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return cmd
	}
	version, err := inside("/cassia", "version").CombinedOutput()
	require.NoError(t, err, string(version))
	require.Contains(t, string(version), "version 1.2.3 (revision: abc)")

	entry := splitWords(t, onlyInstruction(t, image, "ENTRYPOINT"))
	command := splitWords(t, onlyInstruction(t, image, "CMD"))
	require.Equal(t, servedPort(t, command), onlyInstruction(t, image, "EXPOSE"))
	at := cassiatest.FreeAddress(t)
	server := inside(slices.Concat(entry, command, []string{"--web.listen-address=" + at})...)
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Process.Signal(os.Interrupt) })
	require.NoError(t, server.Start())

	_, check, ok := strings.Cut(onlyInstruction(t, image, "HEALTHCHECK"), "CMD ")
	require.True(t, ok)
	healthy := slices.Concat(splitWords(t, check), []string{"--url=http://" + at})
	require.Eventually(
		t, func() bool { return inside(healthy...).Run() == nil }, cassiatest.Patience, 50*time.Millisecond,
	)
	stop()
	require.NoError(t, server.Wait(), log.String())
	require.Error(t, inside(healthy...).Run(), "nobody is there any more")
	stored, err := os.ReadDir(filepath.Join(root, "data"))
	require.NoError(t, err)
	require.NotEmpty(t, stored)
}

// runBuild runs the last step of the build stage, with its paths below root.
func runBuild(t *testing.T, last instruction, root string) {
	require.Equal(t, "RUN", last.name)
	script := regexp.MustCompile(`([ ])/(cassia|empty)\b`).ReplaceAllString(last.args, "${1}"+root+"/$2")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Dir = "../.."
	cmd.Env = append(
		os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "VERSION=1.2.3", "REVISION=abc",
	)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
}
