package config

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Features holds the optional features of PromQL. They are disabled by default.
type Features struct {
	Parser                                            parser.Options
	PerStepStats, DelayedNameRemoval, StartTimestamps bool
}

// knownFeatures contains the optional features of Prometheus' evaluator, by their names in Prometheus.
var knownFeatures = map[string]func(*Features){
	"promql-experimental-functions":   func(f *Features) { f.Parser.EnableExperimentalFunctions = true },
	"promql-extended-range-selectors": func(f *Features) { f.Parser.EnableExtendedRangeSelectors = true },
	"promql-binop-fill-modifiers":     func(f *Features) { f.Parser.EnableBinopFillModifiers = true },
	"promql-per-step-stats":           func(f *Features) { f.PerStepStats = true },
	"promql-delayed-name-removal":     func(f *Features) { f.DelayedNameRemoval = true },
	"use-start-timestamps":            func(f *Features) { f.StartTimestamps = true },
	// This feature is always enabled, as in Prometheus. Its name is accepted so that old command lines still work.
	"promql-duration-expr": func(*Features) {},
}

func featureNames() string {
	var names []string
	for name := range knownFeatures {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// parseFeatures parses the values of --enable-feature, each a comma-separated list.
func parseFeatures(values []string) (f Features, err error) {
	f.Parser.ExperimentalDurationExpr = true // Prometheus enables it by default too, despite its name.
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				continue
			}
			enable, ok := knownFeatures[name]
			if !ok {
				return Features{}, flagError("enable-feature", name,
					"unknown feature; the features are "+featureNames())
			}
			enable(&f)
		}
	}
	return f, nil
}
