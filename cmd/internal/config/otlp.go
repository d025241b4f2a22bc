package config

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/adapter/otlp"
)

// otlpFlags declares flags for the settings in the otlp section of Prometheus' configuration, with the same names.
func otlpFlags(cmd *kingpin.CmdClause, t *otlp.Translation) {
	cmd.Flag("otlp.translation-strategy", "How OTLP metric and label names are translated, as in Prometheus: one of "+
		strings.Join(otlp.Strategies(), ", ")+".").
		Default(otlp.Strategies()[0]).StringVar(&t.Strategy)
	cmd.Flag("otlp.promote-resource-attribute",
		"OTLP resource attribute to promote to a label on every series. Repeatable.").
		StringsVar(&t.PromoteResourceAttributes)
	cmd.Flag("otlp.promote-all-resource-attributes",
		"Promote all OTLP resource attributes to labels.").BoolVar(&t.PromoteAllResourceAttributes)
	cmd.Flag("otlp.ignore-resource-attribute",
		"With --otlp.promote-all-resource-attributes: resource attribute not to promote. Repeatable.").
		StringsVar(&t.IgnoreResourceAttributes)
	cmd.Flag("otlp.keep-identifying-resource-attributes",
		"Keep the attributes service.name, service.namespace and service.instance.id in target_info.").
		BoolVar(&t.KeepIdentifyingResourceAttributes)
	cmd.Flag("otlp.convert-histograms-to-nhcb",
		"Convert explicit-bucket histograms of OTLP to native histograms with custom buckets.").
		BoolVar(&t.ConvertHistogramsToNHCB)
	cmd.Flag(
		"otlp.promote-scope-metadata", "Promote the name, version, schema URL and attributes of OTLP scopes to labels.",
	).BoolVar(&t.PromoteScopeMetadata)
}

func (c *Config) checkOTLP() error {
	t := &c.OTLP
	names := fmt.Sprintf("%q", t.PromoteResourceAttributes)
	switch err := t.Validate(); {
	case err == nil:
		return nil
	case t.PromoteAllResourceAttributes:
		return flagError("otlp.promote-resource-attribute", names, oneLine(err))
	case len(t.IgnoreResourceAttributes) > 0:
		return flagError("otlp.ignore-resource-attribute", fmt.Sprintf("%q", t.IgnoreResourceAttributes), oneLine(err))
	case len(t.PromoteResourceAttributes) > 0:
		return flagError("otlp.promote-resource-attribute", names, oneLine(err))
	default:
		return flagError("otlp.translation-strategy", t.Strategy, oneLine(err))
	}
}
