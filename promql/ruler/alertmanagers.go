package ruler

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"

	"github.com/cassia-db/cassia/storage/panics"
)

// Bounds of what waits for an Alertmanager, as Prometheus has them.
const (
	alertQueue   = 10_000
	alertTimeout = 10 * time.Second
)

// ErrAlertmanager means that an Alertmanager can't be used.
var ErrAlertmanager = errors.New("ruler: Alertmanager")

// Alertmanagers get alerts, each of them all. What waits for one is bounded, and the oldest goes first; what one doesn't
// take is counted, and sent again as long as it fires.
type Alertmanagers struct {
	*notifier.Manager
	ended chan struct{}
}

// CheckAlertmanager returns an error if a URL can't be that of an Alertmanager.
func CheckAlertmanager(u *url.URL) error {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%w: %s: must be a URL such as http://alertmanager:9093", ErrAlertmanager, u.Redacted())
	}
	return nil
}

// NewAlertmanagers starts to send to these URLs; a path stands before that of Alertmanager's API, and a user with a
// password is shown to it. bearerFile names a file with a token for all of them, which is read again for every request,
// or is empty. Close ends it.
func NewAlertmanagers(urls []*url.URL, bearerFile string, external labels.Labels, log *slog.Logger, r prometheus.Registerer) (*Alertmanagers, error) {
	var list config.AlertmanagerConfigs
	targets := map[string][]*targetgroup.Group{}
	for i, u := range urls {
		if err := CheckAlertmanager(u); err != nil {
			return nil, err
		}
		c := &config.AlertmanagerConfig{
			Scheme: u.Scheme, PathPrefix: strings.TrimSuffix(u.Path, "/"), Timeout: model.Duration(alertTimeout),
			APIVersion: config.AlertmanagerAPIVersionV2, HTTPClientConfig: promconfig.DefaultHTTPClientConfig,
		}
		if u.User != nil {
			password, _ := u.User.Password()
			c.HTTPClientConfig.BasicAuth = &promconfig.BasicAuth{Username: u.User.Username(), Password: promconfig.Secret(password)}
		} else if bearerFile != "" {
			c.HTTPClientConfig.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: bearerFile}
		}
		if err := c.HTTPClientConfig.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrAlertmanager, u.Redacted(), err)
		}
		list = append(list, c)
		targets[fmt.Sprintf("config-%d", i)] = []*targetgroup.Group{{
			Source: u.Host, Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(u.Host)}},
		}}
	}
	a := &Alertmanagers{ended: make(chan struct{}), Manager: notifier.NewManager(&notifier.Options{
		QueueCapacity: alertQueue, DrainOnShutdown: true, ExternalLabels: external, Registerer: r,
	}, model.UTF8Validation, log)}
	err := a.ApplyConfig(&config.Config{
		GlobalConfig:   config.GlobalConfig{ExternalLabels: external, MetricNameValidationScheme: model.UTF8Validation},
		AlertingConfig: config.AlertingConfig{AlertmanagerConfigs: list},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAlertmanager, err)
	}
	// They are known once and for all.
	once := make(chan map[string][]*targetgroup.Group)
	go func() {
		defer close(a.ended)
		panics.Contained("sending alerts", func() { a.Run(once) })()
	}()
	once <- targets
	close(once)
	return a, nil
}

// Close sends what waits, for some seconds, and ends.
func (a *Alertmanagers) Close() {
	a.Stop()
	<-a.ended
}
