package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/adapter/relabeling"
	"github.com/cassia-db/cassia/cmd/internal/config"
	"github.com/cassia-db/cassia/cmd/internal/ui"
	"github.com/cassia-db/cassia/storage"
	"github.com/cassia-db/cassia/storage/damage"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/tenant"
)

// relabelFlags holds the flags of the command relabel.
type relabelFlags struct {
	offlineStore
	file, tenant, start, end, url string
	login                         *httpConfig
	isDryRun, asJSON              bool
}

// addRelabel declares the command that tests relabeling rules on stored series.
func addRelabel(app *kingpin.Application) subcommand {
	cmd := app.Command("relabel", "Test a relabeling file on stored samples: print the series, samples and bytes per "+
		"day that each rule would have dropped or changed. Changes nothing. Exits with status 1 if the file has an "+
		"error.")
	t := &relabelFlags{offlineStore: offlineFlags(cmd), login: httpConfigFlag(cmd)}
	t.isReadOnly, t.queryBytes = true, exportBytes
	cmd.Arg("file", "File with relabeling rules, for --write.relabel-file.").Required().StringVar(&t.file)
	cmd.Flag(
		"dry-run", "Change nothing. This is the only mode, because rules apply to incoming samples.",
	).Default("true").BoolVar(&t.isDryRun)
	cmd.Flag("url", "URL of a running server whose samples to read, such as http://localhost:9201, instead of opening "+
		"the data directory. The server examines at most 7 days and 200,000 series.").StringVar(&t.url)
	cmd.Flag("tenant", "Tenant whose rules and samples are used.").Default(tenant.Default).StringVar(&t.tenant)
	cmd.Flag(
		"start", "Start of the time range, RFC 3339 or Unix seconds. Default: a day before the end.",
	).StringVar(&t.start)
	cmd.Flag(
		"end",
		"End of the time range, RFC 3339 or Unix seconds. Default: now, or the newest sample of a data directory.",
	).StringVar(&t.end)
	cmd.Flag("json", "Print the result as JSON.").BoolVar(&t.asJSON)
	return subcommand{cmd.FullCommand(), t.run}
}

func (t *relabelFlags) run(ctx context.Context) error {
	if !t.isDryRun {
		return errors.New(
			"--no-dry-run is not supported: rules apply to incoming samples, never to stored ones; to apply the " +
				"file, start cassia serve with --write.relabel-file",
		)
	}
	if err := tenant.CheckName(t.tenant); err != nil {
		return fmt.Errorf("--tenant=%s: %w", t.tenant, err)
	}
	table, err := config.ReadRelabeling(t.file)
	if err != nil {
		return fmt.Errorf("%s: %s", t.file, oneLine(err))
	}
	if table.RulesOf(t.tenant) == nil {
		return fmt.Errorf("%s: no rules for tenant %s", t.file, t.tenant)
	}
	r, err := parseRange(t.start, t.end, "0s")
	if err != nil {
		return err
	}
	o := relabeling.TrialOptions{Tenant: t.tenant, MinT: r.MinMS, MaxT: r.MaxMS}
	var found *relabeling.Trial
	if t.url != "" {
		found, err = t.tryOnServer(ctx, o)
	} else {
		found, err = t.tryOnData(ctx, table, o)
	}
	if err != nil {
		return err
	}
	if found.All.Series == 0 && !found.Cut {
		return fmt.Errorf("tenant %s has no samples from %s to %s", t.tenant, found.Start.Format(time.RFC3339),
			found.End.Format(time.RFC3339))
	}
	if t.asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(found)
	}
	return printTrial(stdout, found)
}

// trialWidth is the default time range of a test.
const trialWidth = 24 * time.Hour

// tryOnData tests the rules on a directory or a cluster.
func (t *relabelFlags) tryOnData(ctx context.Context, table *relabeling.Table,
	o relabeling.TrialOptions) (found *relabeling.Trial, err error) {
	unread := 0
	var others []error
	o.Warn = func(err error) {
		if isUnread(err) {
			unread++
		} else {
			others = append(others, err)
		}
	}
	err = t.withStore(ctx, func(s *storage.Store) error {
		if t.end == "" {
			spans, err := s.Spans(ctx, t.tenant, o.MinT, time.Now().UnixMilli(), false)
			if err != nil {
				return err
			}
			if len(spans) == 0 {
				return fmt.Errorf("%s: tenant %s has no samples", t.Location(), t.tenant)
			}
			o.MaxT = spans[len(spans)-1].MaxT
		}
		if t.start == "" {
			o.MinT = o.MaxT - trialWidth.Milliseconds() + 1
		}
		bar := newMeterBar(os.Stderr, time.Now, "examining",
			func(n float64) string { return threeDigits(n) + " metrics" })
		found, err = relabeling.RunTrial(bar.withMeter(ctx), s, table, o)
		bar.clearBar()
		return err
	})
	if errors.Is(err, engine.ErrLocked) {
		return nil, fmt.Errorf("%s is in use; send the request to its server with --url", t.Path)
	}
	for _, warning := range others {
		fmt.Fprintln(os.Stderr, oneLine(warning))
	}
	if err == nil && unread > 0 {
		err = fmt.Errorf("%s can't be read; run cassia check to list them", countNoun(unread, "row"))
	}
	return found, err
}

// isUnread reports whether a warning of the store is about rows that can't be read. Other warnings describe the result.
func isUnread(err error) bool {
	return errors.As(err, new(*damage.CorruptRowError)) || errors.As(err, new(*damage.DamagedRowsError))
}

// tryOnServer requests the test from a running server.
func (t *relabelFlags) tryOnServer(ctx context.Context, o relabeling.TrialOptions) (*relabeling.Trial, error) {
	client, err := t.login.newClient(t.url)
	if err != nil {
		return nil, err
	}
	where, err := url.JoinPath(t.url, ui.Prefix, "relabel")
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return nil, err
	}
	end := time.Now()
	if t.end != "" {
		end = time.UnixMilli(o.MaxT)
	}
	start := end.Add(-trialWidth)
	if t.start != "" {
		start = time.UnixMilli(o.MinT)
	}
	body, err := json.Marshal(map[string]any{"rules": string(text), "start": start, "end": end})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, where, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Scope-OrgID", t.tenant)
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the server at --url=%s doesn't respond: %w", withoutUser(t.url), err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("the response of the server at --url=%s was interrupted: %w", withoutUser(t.url), err)
	}
	var answer struct {
		Error string
		Data  struct{ Rules *relabeling.Trial }
	}
	if err := json.Unmarshal(said, &answer); err != nil || resp.StatusCode != http.StatusOK ||
		answer.Data.Rules == nil {
		if answer.Error == "" {
			answer.Error = fmt.Sprintf("%.200q", said)
		}
		return nil, fmt.Errorf("the server at --url=%s returned %s: %s", withoutUser(t.url), resp.Status, answer.Error)
	}
	return answer.Data.Rules, nil
}

// printTrial prints the effect that the rules would have had on the stored samples.
func printTrial(w io.Writer, t *relabeling.Trial) error {
	out := &bytes.Buffer{}
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	amount := func(a relabeling.Amount) string {
		return fmt.Sprintf("%d series, %s, %s per day", a.Series,
			countNoun(int(a.Samples), "sample"), dayBytes(a.DayBytes))
	}
	line("Samples from %s to %s, %d of %d metrics examined.", t.Start.Format(time.RFC3339), t.End.Format(time.RFC3339),
		t.Metrics, t.AllMetrics)
	line("all       %s", amount(t.All))
	line("dropped   %s", amount(t.Dropped))
	line("changed   %s", amount(t.Changed))
	if t.Merged > 0 {
		line(
			"          %d of them would get the labels of an existing series: of two samples with the same "+
				"timestamp, one would be lost",
			t.Merged,
		)
	}
	if t.Refused.Series > 0 {
		line("rejected  %s; senders would get an error, such as %s", amount(t.Refused), t.Refusal)
	}
	for _, r := range t.Rules {
		line("\nrule %d    %s", r.Number, r.Text)
		if r.Dropped.Series > 0 {
			line("  drops   %s", amount(r.Dropped))
		}
		if r.Changed.Series > 0 {
			line("  changes %s", amount(r.Changed))
		}
		if r.Dropped.Series+r.Changed.Series == 0 {
			line("  no effect")
		}
		for _, e := range r.Examples {
			if e.After == "" {
				line("    %s", e.Before)
			} else {
				line("    %s → %s", e.Before, e.After)
			}
		}
	}
	if t.Cut {
		line("\nSome series were not examined, because there are too many.")
	}
	if !t.Measured {
		line("\nSizes are before compression and without rollups; the size on disk is unknown.")
	}
	_, err := w.Write(out.Bytes())
	return err
}

// dayBytes formats a number of bytes with three significant digits and a unit.
func dayBytes(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1000 {
			return threeDigits(n) + " " + unit
		}
		n /= 1024
	}
	return threeDigits(n) + " TiB"
}

// threeDigits formats a number with three significant digits and without an exponent: 421000, not 4.21e+05.
func threeDigits(n float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(n, 'g', 3, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
