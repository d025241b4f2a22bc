package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/cmd/internal/config"
)

// requiredArgs returns the required arguments of a command.
func requiredArgs(c *kingpin.CmdModel) (args []string) {
	for _, f := range c.Flags {
		if f.Required {
			args = append(args, "--"+f.Name+"=csv") // The only required flag is a format.
		}
	}
	for _, a := range c.Args {
		if a.Required {
			args = append(args, "x")
		}
	}
	return args
}

// withNeeds returns the other flags that a flag requires.
func withNeeds(c *kingpin.CmdModel, flag string) (args []string) {
	for _, of := range config.MissingFlags(c, flag) {
		need := of[0]
		args = append(args, withNeeds(c, need)...)
		switch need {
		case "ha.enabled", "cassandra.tls", "otlp.promote-all-resource-attributes":
		case "alertmanager.url", "metadata.from":
			need += "=http://127.0.0.1:1"
		default:
			if !strings.Contains(need, "=") {
				need += "=x"
			}
		}
		args = append(args, "--"+need)
	}
	slices.Sort(args)
	return slices.Compact(args)
}

// TestFlagsWithoutEffect checks that a flag that has no effect without another flag is rejected in one line that names
// both.
func TestFlagsWithoutEffect(t *testing.T) {
	app, commands := newApplication()
	tried := 0
	for _, c := range app.Model().FlattenedCommands() {
		for _, f := range c.Flags {
			need := withNeeds(c, f.Name)
			if len(need) == 0 {
				continue
			}
			tried++
			value := "=x"
			if low, _, ok := config.RangeOf(f.Name); ok {
				value = "=" + low
			} else if f.Name == "alertmanager.url" {
				value = "=http://127.0.0.1:1"
			} else if f.IsBoolFlag() {
				value = ""
			}
			args := append(strings.Fields(c.FullCommand), requiredArgs(c)...)
			_, err := parseWith(app, commands, append(args, append(need, "--"+f.Name+value)...))
			require.NoError(t, err, "%s --%s", c.FullCommand, f.Name)
			other := []string(nil)
			if f.Name == "storage.today" {
				other = []string{"--storage.engine=cassandra"}
			}
			_, err = parseWith(app, commands, append(args, append(other, "--"+f.Name+value)...))
			require.ErrorContains(t, err, "--"+f.Name+"=", c.FullCommand)
			require.ErrorContains(t, err, ": has no effect without --", c.FullCommand)
			require.NotContains(t, err.Error(), "\n")
		}
	}
	require.Greater(t, tried, 30)
}

// TestFlagsHaveRanges checks that every numeric, size or duration flag has a range. A value outside of the range is
// rejected in one line that names the flag and the range.
func TestFlagsHaveRanges(t *testing.T) {
	app, commands := newApplication()
	found, tried := 0, map[string]bool{}
	for _, c := range app.Model().FlattenedCommands() {
		for _, f := range c.Flags {
			low, high, ranged := config.RangeOf(f.Name)
			if config.IsRanged(f) && f.Name != "seed" && f.Name != "block-width" {
				// --seed accepts every number, and --block-width one of a list.
				require.True(t, ranged, "%s: give --%s a range in cmd/internal/config/ranges.go", c.FullCommand, f.Name)
			}
			if found++; !ranged || tried[f.Name] {
				continue
			}
			tried[f.Name] = true
			parsed := func(value string) error {
				args := append(append(strings.Fields(c.FullCommand), requiredArgs(c)...), withNeeds(c, f.Name)...)
				_, err := parseWith(app, commands, append(args, "--"+f.Name+"="+value))
				return err
			}
			require.NoError(t, parsed(low), "%s --%s=%s", c.FullCommand, f.Name, low)
			require.NoError(t, parsed(high), "%s --%s=%s", c.FullCommand, f.Name, high)
			beyond := []string{
				"99999999999999999999", "-99999999999999999999", "1e30", "-1e30", "1e400", "99999999999999999999GiB",
				"-99999999999999999999GiB", "9999999999999EiB", "99999999999999999999s", "-99999999999999999999s",
				"99999999999999999999h", "99999999999999999999y", "NaN", "+Inf", "-Inf",
			}
			for _, value := range beyond { // These exceed 64 bits.
				require.ErrorContains(t, parsed(value), "--"+f.Name+"="+value+": must be ",
					"%s --%s=%s", c.FullCommand, f.Name, value)
			}
			refused := 0
			for _, value := range []string{
				"0", "-1", "1", "1000000", "9223372036854775807", "9223372036854775808", "", "x", "1.5",
				"-1MiB", "1KiB", "7EiB", "8EiB", "16EiB", "99999999999999999999GiB", "0s", "-1s", "1ns", "1ms", "1s",
				"24h", "1d", "101y", "292y", "293y", "9999999y",
			} {
				err := parsed(value)
				if err == nil {
					continue
				}
				refused++
				require.Contains(t, err.Error(), "--"+f.Name+"="+value+": ", c.FullCommand)
				require.Regexp(t, `must be .* from .* to `, err.Error(), c.FullCommand)
				require.NotContains(t, err.Error(), "\n")
			}
			require.GreaterOrEqual(t, refused, 2, "%s --%s", c.FullCommand, f.Name)
		}
	}
	require.Greater(t, found, 60)
	require.Greater(t, len(tried), 40)
}

// TestServeAtTheEndsOfRanges checks that a server works with the smallest and the largest value of each flag.
func TestServeAtTheEndsOfRanges(t *testing.T) {
	app, _ := newApplication()
	for name, end := range map[string]func(flag string) string{
		"largest":  func(flag string) string { _, high, _ := config.RangeOf(flag); return high },
		"smallest": func(flag string) string { low, _, _ := config.RangeOf(flag); return low },
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--storage.path=" + t.TempDir()}
			for _, f := range app.GetCommand("serve").Model().Flags {
				_, _, ranged := config.RangeOf(f.Name)
				if !ranged || name == "smallest" && f.Name == "query.timeout" { // too short for a query
					continue
				}
				if len(config.MissingFlags(app.GetCommand("serve").Model(), f.Name)) > 0 {
					continue
				}
				args = append(args, "--"+f.Name+"="+end(f.Name))
			}
			r := startServe(t, args...)
			at := time.Now().Truncate(time.Second)
			r.Write(t, "stored", at, 1)
			require.Equal(t, "1", r.Value(t, "stored", at))
		})
	}
}
