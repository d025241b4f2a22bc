package format

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/labelorder"
)

// labelBlock is the size of a block of a LabelMemory in bytes.
const labelBlock = 16 << 10

// LabelMemory stores the labels of many series in blocks of bytes, because the garbage collector marks and frees a
// block as cheaply as the labels of one series. Labels keep their whole block in memory, so a LabelMemory should hold
// labels that are released together. The zero value is empty. It isn't safe for concurrent use, but the labels are.
type LabelMemory struct {
	block   []byte
	scratch labels.Labels
}

// Parse is ParseLabels, with the labels stored in m.
func (m *LabelMemory) Parse(b []byte, metric string, builder *labels.ScratchBuilder) (labels.Labels, error) {
	if err := parseLabels(b, metric, builder); err != nil {
		return labels.EmptyLabels(), err
	}
	return m.Labels(builder), nil
}

// Labels returns the labels that were added to a builder, sorted and stored in m.
func (m *LabelMemory) Labels(builder *labels.ScratchBuilder) labels.Labels {
	builder.Overwrite(&m.scratch)
	data := labelorder.Encoding(m.scratch)
	switch {
	case data == "":
		return labels.EmptyLabels()
	case len(data) > labelBlock/8:
		return builder.Labels()
	case len(data) > cap(m.block)-len(m.block):
		m.block = make([]byte, 0, labelBlock)
	}
	start := len(m.block)
	m.block = append(m.block, data...)
	return labelorder.Decode(engine.UnsafeText(m.block[start:]))
}
