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

// ErrOptions means that options can't be used.
var ErrOptions = errors.New("otlp: invalid options")

// Translation sets how OpenTelemetry's names and attributes are translated, in the terms of the section otlp of Prometheus'
// configuration. The zero value is Prometheus' default.
type Translation struct {
	// Strategy is one of Strategies; "": UnderscoreEscapingWithSuffixes.
	Strategy string
	// PromoteResourceAttributes become labels of every series.
	PromoteResourceAttributes []string
	// PromoteAllResourceAttributes makes labels of all but IgnoreResourceAttributes.
	PromoteAllResourceAttributes bool
	IgnoreResourceAttributes     []string
	// KeepIdentifyingResourceAttributes keeps service.name and its like in target_info, beside job and instance.
	KeepIdentifyingResourceAttributes bool
	// ConvertHistogramsToNHCB stores explicit histograms as native ones with custom buckets.
	ConvertHistogramsToNHCB bool
	// PromoteScopeMetadata makes labels of the scope's name, version, schema URL and attributes.
	PromoteScopeMetadata bool
}

// Strategies are the values of Translation.Strategy.
func Strategies() []string {
	return []string{
		string(otlptranslator.UnderscoreEscapingWithSuffixes), string(otlptranslator.UnderscoreEscapingWithoutSuffixes),
		string(otlptranslator.NoUTF8EscapingWithSuffixes), string(otlptranslator.NoTranslation),
	}
}

// Within lowers the bounds of bodies and estimates so that all of them together take at most the given number of bytes.
func (o *Options) Within(inFlight int64) {
	o.MaxInFlight = min(o.MaxInFlight, inFlight)
	o.MaxBody = min(o.MaxBody, o.MaxInFlight/8)
	o.MaxDecoded = min(o.MaxDecoded, o.MaxInFlight/4)
	o.MaxMemory = min(o.MaxMemory, o.MaxInFlight/8*5)
}

// Validate returns an error if the translation is invalid.
func (t *Translation) Validate() error {
	switch {
	case t.Strategy != "" && !slices.Contains(Strategies(), t.Strategy):
		return fmt.Errorf("%w: the translation strategy %q must be one of %q", ErrOptions, t.Strategy, Strategies())
	case t.PromoteAllResourceAttributes && len(t.PromoteResourceAttributes) > 0:
		return fmt.Errorf("%w: promote either all resource attributes or a list of them, not both", ErrOptions)
	case !t.PromoteAllResourceAttributes && len(t.IgnoreResourceAttributes) > 0:
		return fmt.Errorf("%w: resource attributes can be ignored only if all resource attributes are promoted", ErrOptions)
	case slices.Contains(t.PromoteResourceAttributes, ""), slices.Contains(t.IgnoreResourceAttributes, ""):
		return fmt.Errorf("%w: a resource attribute has no name", ErrOptions)
	}
	return nil
}

// config returns the section otlp of Prometheus' configuration.
func (t *Translation) config() config.OTLPConfig {
	c := config.DefaultOTLPConfig
	if t.Strategy != "" {
		c.TranslationStrategy = otlptranslator.TranslationStrategyOption(t.Strategy)
	}
	c.PromoteResourceAttributes, c.PromoteAllResourceAttributes = t.PromoteResourceAttributes, t.PromoteAllResourceAttributes
	c.IgnoreResourceAttributes = t.IgnoreResourceAttributes
	c.KeepIdentifyingResourceAttributes, c.ConvertHistogramsToNHCB = t.KeepIdentifyingResourceAttributes, t.ConvertHistogramsToNHCB
	c.PromoteScopeMetadata = t.PromoteScopeMetadata
	return c
}

// Options configure a handler.
type Options struct {
	Translation
	// MaxBody is the greatest body that is read, bytes; more is answered with 413. Default 32 MiB, as Prometheus'.
	MaxBody int64
	// MaxDecoded is the greatest decompressed body, bytes; more is answered with 413. Default 64 MiB.
	MaxDecoded int64
	// MaxMemory is the greatest estimate of what one request becomes in memory, bytes; more is answered with 413.
	// Default 256 MiB.
	MaxMemory int64
	// MaxInFlight bounds the bodies and the estimates of all requests that are under way, bytes; over it, requests are
	// answered with 503. Default 512 MiB.
	MaxInFlight int64
	// Bodies bounds the bodies of all endpoints; nil: nothing does.
	Bodies *adapter.Budget
	// LookbackDelta is the evaluator's: target_info has a sample every half of it. Default 5m.
	LookbackDelta time.Duration
	// RetryBusy is the Retry-After of a 503: the queue drains within moments. Default 1 s.
	RetryBusy time.Duration
	// RetryFull is the Retry-After of a 429: series leave memory when their slot is sealed. Default 30 s.
	RetryFull time.Duration
	// Metadata gets senders' metadata of metrics, once per metric family and request. It must be quick. nil: ignored.
	Metadata func(tenant, family, kind, unit, help string)
	// Limiter has the tenants' limits of requests' sizes; nil: there are none. All other limits are the store's to hold.
	Limiter *tenant.Limiter
	// Rules may change and drop series before they are stored. Samples that they drop aren't reported.
	Rules adapter.Shape
	// Registerer gets the handler's metrics; nil: they are kept nowhere.
	Registerer prometheus.Registerer
	// Logger gets events for operators.
	Logger *slog.Logger
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
		return fmt.Errorf("%w: the maximum body size must be at least 1 byte", ErrOptions)
	case o.MaxInFlight < o.MaxBody+o.MaxDecoded+o.MaxMemory:
		return fmt.Errorf("%w: the largest request, %d bytes compressed, %d decoded and %d in memory, exceeds %d bytes",
			ErrOptions, o.MaxBody, o.MaxDecoded, o.MaxMemory, o.MaxInFlight)
	case o.LookbackDelta < time.Second:
		return fmt.Errorf("%w: the lookback delta must be at least 1 s", ErrOptions)
	case o.RetryBusy < time.Second || o.RetryFull < time.Second:
		return fmt.Errorf("%w: Retry-After must be at least one second", ErrOptions)
	case o.Logger == nil:
		return fmt.Errorf("%w: a logger is required", ErrOptions)
	}
	return o.Translation.Validate()
}
