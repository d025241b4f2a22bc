package config

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/promql/ruler"
)

// Rules holds the flags for the evaluation of rules.
type Rules struct {
	// Sources are the rule files. Without any, no rules are evaluated.
	Sources  []ruler.Source
	Interval time.Duration
	// Alertmanagers are the URLs to which alerts are sent. BearerFile is the file with the bearer token for them, or
	// empty.
	Alertmanagers  []*url.URL
	BearerFile     string
	ExternalLabels labels.Labels

	files, external []string
	alertmanagers   urlList
	interval        string
}

// rulesFlags declares the flags for the evaluation of rules.
func rulesFlags(cmd *kingpin.CmdClause, r *Rules) {
	cmd.Flag("rule.files", "Prometheus rule files to evaluate: a pattern such as rules/*.yml, or tenant=rules/*.yml "+
		"for the rules of one tenant. Repeatable. Reloaded on SIGHUP and POST /-/reload.").StringsVar(&r.files)
	cmd.Flag(
		"rule.evaluation-interval", "Evaluation interval of rule groups that don't set one.",
	).Default("1m").StringVar(&r.interval)
	cmd.Flag(
		"rule.external-label",
		"External label, as name=value, that is added to alerts sent to Alertmanager and is available in rule "+
			"templates. Repeatable.",
	).StringsVar(&r.external)
	cmd.Flag(
		"alertmanager.url", "URL of an Alertmanager to send alerts to; it may contain user:password. Repeatable.",
	).SetValue(&r.alertmanagers)
	cmd.Flag("alertmanager.bearer-token-file",
		"File with a bearer token for Alertmanagers whose URL contains no user.").StringVar(&r.BearerFile)
}

// urlList is the value of a flag with URLs. It is printed without passwords.
type urlList []*url.URL

func (l *urlList) Set(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return ruler.ErrAlertmanager // The parser's error would contain the password.
	}
	*l = append(*l, u)
	return nil
}

func (l *urlList) String() string {
	shown := make([]string, 0, len(*l))
	for _, u := range *l {
		shown = append(shown, u.Redacted())
	}
	return strings.Join(shown, ",")
}

// IsCumulative makes the flag repeatable.
func (l *urlList) IsCumulative() bool { return true }

func (c *Config) checkRules() error {
	r := &c.Rules
	for _, text := range r.files {
		source, err := ruler.ParseSource(text)
		if err != nil {
			return flagError("rule.files", text, oneLine(err))
		}
		r.Sources = append(r.Sources, source)
	}
	if err := parseDuration("rule.evaluation-interval", r.interval, false, &r.Interval); err != nil {
		return err
	}
	external := map[string]string{}
	for _, text := range r.external {
		name, value, found := strings.Cut(text, "=")
		if !found || !model.UTF8Validation.IsValidLabelName(name) || name == model.MetricNameLabel {
			return flagError("rule.external-label", text, "must be name=value")
		}
		if _, twice := external[name]; twice {
			return flagError("rule.external-label", text, "the label already has a value")
		}
		external[name] = value
	}
	r.ExternalLabels = labels.FromMap(external)
	for _, u := range r.alertmanagers {
		if err := ruler.CheckAlertmanager(u); err != nil {
			return flagError("alertmanager.url", u.Redacted(), "must be a URL such as http://alertmanager:9093")
		}
	}
	r.Alertmanagers = r.alertmanagers
	if r.BearerFile != "" {
		if _, err := os.ReadFile(r.BearerFile); err != nil {
			return flagError("alertmanager.bearer-token-file", r.BearerFile, oneLine(err))
		}
	}
	if len(r.Sources) > 0 && c.Target != "all" && c.Target != "read" {
		return flagError("rule.files", r.files[0],
			fmt.Sprintf(
				"a process with --target=%s answers no queries, so it can't evaluate rules; set it on a process with "+
					"all or read",
				c.Target,
			))
	}
	return nil
}
