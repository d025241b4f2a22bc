package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// nothing answers for the parts of a Prometheus that Cassia doesn't have, for it scrapes no targets, and for those that it
// wasn't given: rules and Alertmanagers. Its lists are empty, as those of a Prometheus without configuration.
type nothing struct{}

func (nothing) ScrapePools() []string                       { return []string{} }
func (nothing) TargetsActive() map[string][]*scrape.Target  { return nil }
func (nothing) TargetsDropped() map[string][]*scrape.Target { return nil }
func (nothing) TargetsDroppedCounts() map[string]int        { return map[string]int{} }
func (nothing) Alertmanagers() []*url.URL                   { return nil }
func (nothing) DroppedAlertmanagers() []*url.URL            { return nil }
func (nothing) RuleGroups() []*rules.Group                  { return nil }
func (nothing) AlertingRules() []*rules.AlertingRule        { return nil }
func (nothing) ScrapePoolConfig(name string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("scrape pool %q not found", name)
}

// noExemplars answers that there are none, as a Prometheus does that keeps none.
type noExemplars struct{}

func (noExemplars) ExemplarQuerier(context.Context) (promstorage.ExemplarQuerier, error) {
	return noExemplars{}, nil
}

func (noExemplars) Select(_, _ int64, _ ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return []exemplar.QueryResult{}, nil
}

// errNoTSDB answers what only Prometheus' own storage can do, and what Options don't offer.
var errNoTSDB = errors.New("not supported: Cassia has no Prometheus TSDB")

// noTSDB stands where Prometheus' API expects its own storage.
type noTSDB struct{}

func (noTSDB) CleanTombstones() error { return errNoTSDB }
func (noTSDB) Delete(context.Context, int64, int64, ...*labels.Matcher) error {
	return errNoTSDB
}
func (noTSDB) Snapshot(string, bool) error            { return errNoTSDB }
func (noTSDB) Stats(string, int) (*tsdb.Stats, error) { return nil, errNoTSDB }
func (noTSDB) BlockMetas() ([]tsdb.BlockMeta, error)  { return []tsdb.BlockMeta{}, nil }

// WALReplayStatus is always that of a finished replay: /-/ready reports the state of ours.
func (noTSDB) WALReplayStatus() (tsdb.WALReplayStatus, error) { return tsdb.WALReplayStatus{}, nil }
