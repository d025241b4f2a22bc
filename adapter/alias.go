package adapter

import (
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"
)

// AppendAlias appends the store's alias of a series to dst: the label fields of a prometheus.TimeSeries, sorted,
// without empty labels, as remote write encodes them. A series has the same alias whichever protocol it arrives by.
func AppendAlias(dst []byte, ls labels.Labels) []byte {
	ls.Range(func(l labels.Label) {
		if l.Value == "" {
			return
		}
		size := 1 + protowire.SizeBytes(len(l.Value))
		if l.Name != "" {
			size += 1 + protowire.SizeBytes(len(l.Name))
		}
		dst = protowire.AppendVarint(protowire.AppendTag(dst, 1, protowire.BytesType), uint64(size))
		if l.Name != "" {
			dst = protowire.AppendString(protowire.AppendTag(dst, 1, protowire.BytesType), l.Name)
		}
		dst = protowire.AppendString(protowire.AppendTag(dst, 2, protowire.BytesType), l.Value)
	})
	return dst
}
