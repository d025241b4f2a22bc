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

// These constants bound the queue for an Alertmanager, as in Prometheus.
const (
	alertQueue   = 10_000
	alertTimeout = 10 * time.Second
)

// ErrAlertmanager means that an Alertmanager can't be used.
var ErrAlertmanager = errors.New("ruler: Alertmanager")

// Alertmanagers sends each alert to all Alertmanagers. Each has a bounded queue, from which the oldest alerts are
// dropped first. Alerts that an Alertmanager doesn't accept are counted. While such an alert fires, it is sent again.
type Alertmanagers struct {
	*notifier.Manager
	ended chan struct{}
}

// CheckAlertmanager returns an error if a URL isn't valid for an Alertmanager.
func CheckAlertmanager(u *url.URL) error {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%w: %s: must be a URL such as http://alertmanager:9093", ErrAlertmanager, u.Redacted())
	}
	return nil
}

// NewAlertmanagers starts sending to these URLs. A path in a URL is a prefix of the path of Alertmanager's API, and a
// user with a password is sent as basic auth. bearerFile is the name of a file with a token for all Alertmanagers, or
// empty. The file is read again for every request. Close stops sending.
func NewAlertmanagers(urls []*url.URL, bearerFile string, external labels.Labels, log *slog.Logger,
	r prometheus.Registerer) (*Alertmanagers, error) {
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
			c.HTTPClientConfig.BasicAuth = &promconfig.BasicAuth{Username: u.User.Username(),
				Password: promconfig.Secret(password)}
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
	// The list of Alertmanagers never changes, so it is sent once.
	once := make(chan map[string][]*targetgroup.Group)
	go func() {
		defer close(a.ended)
		panics.WrapContained("sending alerts", func() { a.Run(once) })()
	}()
	once <- targets
	close(once)
	return a, nil
}

// Close sends the queued alerts for at most some seconds, and stops.
func (a *Alertmanagers) Close() {
	a.Stop()
	<-a.ended
}
