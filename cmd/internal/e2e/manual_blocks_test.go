package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
)

// toRoot is the path to the root of the repository.
const toRoot = "../../../"

// block is a fenced block in the manual. Its info string, which readers don't see, defines what the block contains and
// how a test runs it:
//
//	sh run              commands, run in a folder with a store in ./data, while no server uses it
//	sh run server       commands, run while a server uses ./data
//	sh run server same  a transcript ("$ command", then its output), whose output must be as shown
//	sh run s3           commands that use the bucket of a real S3 server
//	sh run serve        command lines of `cassia serve`: each must get ready, and stop in an orderly way
//	sh elsewhere WHY    commands that TestManualRuns doesn't run: WHY is a key of elsewhere
//	yaml FILE, sh FILE  a file for a flag or another program: FILE is a key of shownFiles
//	json POST PATH      the body of a request
//	text                no commands
type block struct {
	info []string
	text string
	line int
}

func (b block) is(words ...string) bool {
	return len(b.info) >= len(words) && slices.Equal(b.info[:len(words)], words)
}

// file returns the name of the file that a block shows, or "".
func (b block) file() string {
	if len(b.info) == 2 && strings.Contains(b.info[1], ".") {
		return b.info[1]
	}
	return ""
}

func (b block) has(word string) bool { return slices.Contains(b.info, word) }

func (b block) where(name string) string {
	return fmt.Sprintf("%s, the block in line %d", name, b.line)
}

// elsewhere contains the reasons why blocks of commands aren't run by TestManualRuns, each with the test that runs or
// checks the commands instead.
var elsewhere = map[string]string{
	"cassandra": "needs a Cassandra cluster: TestRealPrometheusOnCassandra and TestTwoOnCassandraShareWork start cassia serve over one, TestCassandraSettings tries its flags",
	"clone":     "needs the network: .ci/run builds a checkout with make",
	"compose":   "needs Docker: TestComposeFiles reads the files",
	"doctor":    "needs a Cassandra cluster: TestDoctorOnCassandra",
	"helm":      "needs Kubernetes: the tests in docker/helm render the chart with these values",
	"htpasswd":  "htpasswd is a program of Apache's: hashes of its form are in examples/locks, which is run",
	"image":     "needs Docker",
	"kairosdb":  "needs KairosDB on a Cassandra: TestImportKairosDB; the mapping file is read here",
	"make":      "runs all tests: .ci/run runs these targets",
	"promtool":  "writes months of a rule's results: TestRulesOverHistoryThatOnlyHoursCover does it for days",
	"rewrite":   "rewrites the manual: the same tests, without -rewrite, compare it",
	"snapshot":  "needs a Cassandra node: TestSnapshotOfAKeyspace",
}

// shownFiles contains the files that blocks show, with the commands that read them.
var shownFiles = map[string]string{
	"auth.yml":       "cassia serve --auth.file=auth.yml --web.config.file=web.yml",
	"cassia.env":     ". ./cassia.env; exec cassia serve --web.listen-address=$CASSIA_LISTEN_ADDRESS $CASSIA_OPTIONS", // As cassia.service does.
	"cassandra.yaml": "",                                                                                              // docker/cassandra/local writes these lines for the nodes of the tests.
	"limits.yml":     "cassia serve --limits.file=limits.yml",
	"mapping.yaml":   "cassia import kairosdb --mapping.file",
	"prometheus.yml": "promtool check config --lint=all --lint-fatal prometheus.yml",
	"relabel.yml":    "cassia serve --write.relabel-file=relabel.yml",
	"retention.yml":  "cassia serve --retention.file=retention.yml",
}

// commandInText matches a line that looks like a command. Blocks that aren't run must not contain such lines.
var commandInText = regexp.MustCompile(
	`(?m)^\s*(\$ |(sudo |bin/|\./)?(apt|apt-get|cassia|curl|docker|dpkg|git|go|helm|htpasswd|kubectl|make|mv|nodetool|openssl|promtool|rpm|systemctl|tar) [^=|│])`,
)

// blocksOf returns the fenced blocks of a page.
func blocksOf(text string) (blocks []block) {
	var open *block
	number := 0
	for line := range strings.Lines(text) {
		number++
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open != nil:
			blocks, open = append(blocks, *open), nil
		case fence:
			open = &block{info: strings.Fields(info), line: number}
		case open != nil:
			open.text += line
		}
	}
	return blocks
}

// TestManualBlocks checks that every block has an info string, and that blocks that aren't run contain no commands
// unless there is a reason.
func TestManualBlocks(t *testing.T) {
	reasons, files, commands := map[string]int{}, map[string]int{}, 0
	for name, text := range cassiatest.ManualPages(t, toRoot) {
		for _, b := range blocksOf(text) {
			where := b.where(name)
			switch {
			case b.is("sh", "run"):
				commands++
				for _, word := range b.info[2:] {
					require.Contains(t, []string{"server", "same", "s3", "serve"}, word, where)
				}
			case b.is("sh", "elsewhere"):
				commands++
				require.Len(t, b.info, 3, where)
				require.Contains(t, elsewhere, b.info[2], where)
				reasons[b.info[2]]++
			case b.file() != "":
				require.Contains(t, shownFiles, b.file(), where)
				files[b.file()]++
			case b.is("json", "POST"):
				require.Len(t, b.info, 3, where)
			default:
				require.Equal(t, []string{"text"}, b.info, "%s: say what it is", where)
				require.NotRegexp(t, commandInText, b.text, "%s: mark it as `sh run` or `sh elsewhere`", where)
			}
		}
	}
	for reason := range elsewhere {
		require.NotZero(t, reasons[reason], "no block is marked `sh elsewhere %s`", reason)
	}
	for file := range shownFiles {
		require.NotZero(t, files[file], "no block shows the file %s", file)
	}
	t.Logf("%d blocks of commands; run elsewhere: %v; files: %v", commands, reasons, files)
}

// step is a command in a block, with the output shown below it.
type step struct{ command, output string }

// steps returns the commands of a block. In a transcript, these are the lines after "$ ", including continuation lines
// within quotes. Otherwise the whole block is one command.
func (b block) steps() (list []step) {
	if !strings.HasPrefix(b.text, "$ ") {
		return []step{{command: b.text}}
	}
	for line := range strings.Lines(b.text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, step{command: command})
			continue
		}
		last := &list[len(list)-1]
		if strings.Count(last.command, "'")%2 == 1 {
			last.command += line
		} else {
			last.output += line
		}
	}
	return list
}

func TestStepsOfATranscript(t *testing.T) {
	require.Equal(
		t, []step{{"a '{\n  b}' | c\n", "d\ne\n"}, {"f\n", ""}}, block{text: "$ a '{\n  b}' | c\nd\ne\n$ f\n"}.steps(),
	)
	require.Equal(t, []step{{"a\nb\n", ""}}, block{text: "a\nb\n"}.steps())
}
