package otlp

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage/tenant"
)

// errOptions means that options are invalid.
var errOptions = errors.New("otlp: invalid options")

// Translation configures how OpenTelemetry's names and attributes are translated, in the terms of the otlp section of
// Prometheus' configuration. The zero value is Prometheus' default.
type Translation struct {
	// Strategy is one of Strategies. "" means UnderscoreEscapingWithSuffixes.
	Strategy string
	// PromoteResourceAttributes are resource attributes that become labels of every series.
	PromoteResourceAttributes []string
	// PromoteAllResourceAttributes promotes all resource attributes except IgnoreResourceAttributes.
	PromoteAllResourceAttributes bool
	IgnoreResourceAttributes     []string
	// KeepIdentifyingResourceAttributes keeps service.name, service.namespace and service.instance.id in target_info,
	// in addition to job and instance.
	KeepIdentifyingResourceAttributes bool
	// ConvertHistogramsToNHCB stores explicit histograms as native histograms with custom buckets.
	ConvertHistogramsToNHCB bool
	// PromoteScopeMetadata adds the scope's name, version, schema URL and attributes as labels.
	PromoteScopeMetadata bool
}

// Strategies returns the valid values of Translation.Strategy.
func Strategies() []string {
	return []string{
		string(otlptranslator.UnderscoreEscapingWithSuffixes), string(otlptranslator.UnderscoreEscapingWithoutSuffixes),
		string(otlptranslator.NoUTF8EscapingWithSuffixes), string(otlptranslator.NoTranslation),
	}
}

// LimitInFlight lowers MaxBody, MaxDecoded, MaxMemory and MaxInFlight so that concurrent requests use at most inFlight
// bytes.
func (o *Options) LimitInFlight(inFlight int64) {
	o.MaxInFlight = min(o.MaxInFlight, inFlight)
	o.MaxBody = min(o.MaxBody, o.MaxInFlight/8)
	o.MaxDecoded = min(o.MaxDecoded, o.MaxInFlight/4)
	o.MaxMemory = min(o.MaxMemory, o.MaxInFlight/8*5)
}

// Validate returns an error if the translation is invalid.
func (t *Translation) Validate() error {
	switch {
	case t.Strategy != "" && !slices.Contains(Strategies(), t.Strategy):
		return fmt.Errorf("%w: the translation strategy %q must be one of %q", errOptions, t.Strategy, Strategies())
	case t.PromoteAllResourceAttributes && len(t.PromoteResourceAttributes) > 0:
		return fmt.Errorf("%w: promote either all resource attributes or a list of them, not both", errOptions)
	case !t.PromoteAllResourceAttributes && len(t.IgnoreResourceAttributes) > 0:
		return fmt.Errorf("%w: resource attributes can be ignored only if all resource attributes are promoted",
			errOptions)
	case slices.Contains(t.PromoteResourceAttributes, ""), slices.Contains(t.IgnoreResourceAttributes, ""):
		return fmt.Errorf("%w: a resource attribute has no name", errOptions)
	}
	return nil
}

// config returns the translation as the otlp section of Prometheus' configuration.
func (t *Translation) config() config.OTLPConfig {
	c := config.DefaultOTLPConfig
	if t.Strategy != "" {
		c.TranslationStrategy = otlptranslator.TranslationStrategyOption(t.Strategy)
	}
	c.PromoteResourceAttributes = t.PromoteResourceAttributes
	c.PromoteAllResourceAttributes = t.PromoteAllResourceAttributes
	c.IgnoreResourceAttributes = t.IgnoreResourceAttributes
	c.KeepIdentifyingResourceAttributes = t.KeepIdentifyingResourceAttributes
	c.ConvertHistogramsToNHCB = t.ConvertHistogramsToNHCB
	c.PromoteScopeMetadata = t.PromoteScopeMetadata
	return c
}

// Options configure a handler.
type Options struct {
	Translation
	// MaxBody is the max size of a body in bytes; larger bodies are rejected with 413. Default 32 MiB, as in
	// Prometheus.
	MaxBody int64
	// MaxDecoded is the max size of a decompressed body in bytes; larger bodies are rejected with 413. Default 64 MiB.
	MaxDecoded int64
	// MaxMemory is the max estimated memory of one decoded request in bytes; larger requests are rejected with 413.
	// Default 256 MiB.
	MaxMemory int64
	// MaxInFlight bounds the bodies and estimated memory of all concurrent requests in bytes; above it, requests are
	// rejected with 503. Default 512 MiB.
	MaxInFlight int64
	// Bodies bounds the bodies of all endpoints together. nil means that they are unbounded.
	Bodies *adapter.Budget
	// LookbackDelta is the query engine's lookback delta. target_info gets one sample per half a lookback delta.
	// Default 5m.
	LookbackDelta time.Duration
	// RetryBusy is the Retry-After of a 503. Default 1 s, because the queue drains quickly.
	RetryBusy time.Duration
	// RetryFull is the Retry-After of a 429. Default 30 s: room for more series appears when a slot is sealed and its
	// series are released.
	RetryFull time.Duration
	// Metadata receives the metadata of metrics, once per metric family and request. It must be quick. If it is nil,
	// metadata is ignored.
	Metadata func(tenant, family, kind, unit, help string)
	// Limiter holds the tenants' limits on request sizes. nil means no limits. The store enforces all other limits.
	Limiter *tenant.Limiter
	// Rules may change and drop series before they are stored. Dropped samples aren't reported to the sender.
	Rules adapter.Shape
	// Registerer registers the handler's metrics. If it is nil, they aren't registered.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// DefaultOptions returns the documented defaults.
func DefaultOptions() Options {
	return Options{
		MaxBody: 32 << 20, MaxDecoded: 64 << 20, MaxMemory: 256 << 20, MaxInFlight: 512 << 20,
		LookbackDelta: 5 * time.Minute, RetryBusy: time.Second, RetryFull: 30 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// Validate returns an error if the options are invalid.
func (o *Options) Validate() error {
	switch {
	case o.MaxBody < 1 || o.MaxDecoded < 1 || o.MaxMemory < 1:
		return fmt.Errorf("%w: the maximum body size must be at least 1 byte", errOptions)
	case o.MaxInFlight < o.MaxBody+o.MaxDecoded+o.MaxMemory:
		return fmt.Errorf("%w: the largest request, %d bytes compressed, %d decoded and %d in memory, exceeds %d bytes",
			errOptions, o.MaxBody, o.MaxDecoded, o.MaxMemory, o.MaxInFlight)
	case o.LookbackDelta < time.Second:
		return fmt.Errorf("%w: the lookback delta must be at least 1 s", errOptions)
	case o.RetryBusy < time.Second || o.RetryFull < time.Second:
		return fmt.Errorf("%w: Retry-After must be at least one second", errOptions)
	case o.Logger == nil:
		return fmt.Errorf("%w: a logger is required", errOptions)
	}
	return o.Translation.Validate()
}
