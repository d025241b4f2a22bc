package page

import "fmt"

// Describe describes the content of a page. It returns errCorrupt if the page or one of its entries can't be read.
func Describe(b []byte) (string, error) {
	p, err := Parse(b)
	if err != nil {
		return "", err
	}
	var value []byte
	bytes := 0
	for i := range p.Len() {
		if value, err = p.AppendValue(value[:0], i); err != nil {
			return "", err
		}
		bytes += len(value)
	}
	words := fmt.Sprintf("%d bytes, %s of %d series", len(b), p.head.Kind, p.Len())
	if p.head.Kind != Labels {
		words += fmt.Sprintf(", labels page %x", p.head.Labels)
	}
	return fmt.Sprintf("%s, %d bytes as rows", words, bytes), nil
}

// DescribeFilter describes a filter of a page of labels. It returns errCorrupt if it can't be read.
func DescribeFilter(b []byte) (string, error) {
	f, err := ParseFilter(b)
	if err != nil {
		return "", err
	}
	if len(f.bits) == 0 {
		return fmt.Sprintf("%d bytes, filter of a labels page of %d series that matches everything", len(b), f.Entries),
			nil
	}
	return fmt.Sprintf("%d bytes, filter of a labels page of %d series, %d bits, %d per term", len(b), f.Entries,
		8*len(f.bits), f.probes), nil
}

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Labels:
		return "labels"
	case Chunks:
		return "chunks"
	case Rollups:
		return "rollups"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}
