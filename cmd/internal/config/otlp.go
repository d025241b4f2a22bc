package config

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/cassia-db/cassia/adapter/otlp"
)

// otlpFlags declares what Prometheus has in the section otlp of its configuration, by the same words.
func otlpFlags(cmd *kingpin.CmdClause, t *otlp.Translation) {
	cmd.Flag("otlp.translation-strategy", "What becomes of OpenTelemetry's names, as in Prometheus: one of "+strings.Join(otlp.Strategies(), ", ")+".").
		Default(otlp.Strategies()[0]).StringVar(&t.Strategy)
	cmd.Flag("otlp.promote-resource-attribute", "Resource attribute that becomes a label of every series of OTLP. Can be repeated.").StringsVar(&t.PromoteResourceAttributes)
	cmd.Flag("otlp.promote-all-resource-attributes", "Make labels of all resource attributes.").BoolVar(&t.PromoteAllResourceAttributes)
	cmd.Flag("otlp.ignore-resource-attribute", "Resource attribute that isn't promoted, where all are. Can be repeated.").StringsVar(&t.IgnoreResourceAttributes)
	cmd.Flag("otlp.keep-identifying-resource-attributes", "Keep service.name, service.namespace and service.instance.id in target_info.").BoolVar(&t.KeepIdentifyingResourceAttributes)
	cmd.Flag("otlp.convert-histograms-to-nhcb", "Store explicit histograms of OTLP as native histograms with custom buckets.").BoolVar(&t.ConvertHistogramsToNHCB)
	cmd.Flag("otlp.promote-scope-metadata", "Make labels of a scope's name, version, schema URL and attributes.").BoolVar(&t.PromoteScopeMetadata)
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
