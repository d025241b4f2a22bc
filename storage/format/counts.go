package format

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// The counts of the series of a window of raw rows are rows of kind CatalogCounts in table catalog. They are written
// after the window has ended, and their keys contain the window's state, a fingerprint, from the time of counting. If
// the window has changed since, its state is different: a reader finds no counts for it, and counts the series itself.
//
//	key                    contents
//	STATE-BEFORE           CountsChange: the difference to the series of the previous window, which is in the state BEFORE
//	STATE/0000             CountsHead: totals, and the size of the body
//	STATE/0001, 0002, …    parts of a body: the counts of metrics, labels and values

// First bytes of the values of rows of counts, never reused.
const (
	countsHeadVersion   = 1
	countsPartVersion   = 2
	countsChangeVersion = 3
)

const (
	// countsPart is the max number of bytes of a body in one row.
	countsPart = 60 << 10
	// maxCountsBody is the max size of a body in bytes. Its rows fit in one batch.
	maxCountsBody = 900 << 10
	// MaxCountsParts is the max number of rows of a body.
	MaxCountsParts = maxCountsBody / countsPart
)

// errMalformedCounts is returned for counts of series that can't be read.
var errMalformedCounts = errors.New("format: malformed series counts")

// NamedCount is a name with a count.
type NamedCount struct {
	Name  string
	Count uint64
}

// CompareCounts orders counts from high to low, and equal counts by name.
func CompareCounts(a, b NamedCount) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
}

// Counts are the counts of the series of a window.
type Counts struct {
	CountsHead
	// Metrics are the numbers of series by metric. Labels are the numbers of values by label. Both have only the
	// highest counts, in the order of CompareCounts.
	Metrics []NamedCount
	Labels  []LabelCounts
}

// LabelCounts are the counts of a label.
type LabelCounts struct {
	// NamedCount is the number of different values of the label.
	NamedCount
	// Values are the numbers of series by value: the highest ones, in the order of CompareCounts.
	Values []NamedCount
}

// CountsHead has the totals of Counts.
type CountsHead struct {
	// Series is the number of series, each counted once. AllMetrics and AllLabels are the numbers of different metrics
	// and labels.
	Series, AllMetrics, AllLabels uint64

	parts, size int
	sum         uint32
}

// Parts returns the number of rows of the body.
func (h *CountsHead) Parts() int { return h.parts }

// CountsChange is the difference between the series of a window and those of the previous window.
type CountsChange struct {
	// Added is the number of series that are new in the window, Gone the number that are only in the previous one.
	Added, Gone uint64
}

// CountsPartition returns the partition key of the counts of a tenant's window.
func CountsPartition(window int64, tenant string) engine.Key {
	return CatalogPartition(window, tenant, CatalogCounts, "")
}

// CountsKey returns the clustering key of a row of counts: part 0 is the head, others are parts of the body.
func CountsKey(state uint64, part int) engine.Key {
	return engine.Key{engine.Text(fmt.Sprintf("%016x/%04x", state, part))}
}

// CountsChangeKey returns the clustering key of a CountsChange. The changes of a state are sorted before its head.
func CountsChangeKey(state, before uint64) engine.Key {
	return engine.Key{engine.Text(fmt.Sprintf("%016x-%016x", state, before))}
}

// CountsState returns the state of the window in the key of a row of counts, or "" if the key isn't valid.
func CountsState(key string) string {
	if len(key) > 16 && (key[16] == '/' && len(key) == 21 || key[16] == '-' && len(key) == 33) {
		return key[:16]
	}
	return ""
}

// IsCountsChange reports whether the row of counts with this key is a CountsChange.
func IsCountsChange(key string) bool { return len(key) > 16 && key[16] == '-' }

// AppendCountsChange appends the value of a CountsChange:
//
//	+---------+---------+---------+--------+
//	| version | added   | gone    | CRC-32C|
//	| 1 byte:3| uvarint | uvarint | 4, LE  |
//	+---------+---------+---------+--------+
func AppendCountsChange(dst []byte, c CountsChange) []byte {
	from := len(dst)
	dst = append(dst, countsChangeVersion)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, c.Added), c.Gone)
	return appendChecksum(dst, from)
}

// ParseCountsChange is the inverse of AppendCountsChange. It returns errMalformedCounts for invalid values.
func ParseCountsChange(b []byte) (c CountsChange, err error) {
	r, err := openCounts(b, countsChangeVersion)
	if err == nil {
		c.Added, c.Gone = r.number(), r.number()
		err = r.end()
	}
	return c, err
}

// EncodeCounts returns the values of the head and of the parts of the body:
//
//	+---------+---------+---------+---------+---------+---------+--------+--------+
//	| version | series  | metrics | labels  | parts   | bytes of| CRC-32C| CRC-32C|
//	| 1 byte:1| uvarint | uvarint | uvarint | uvarint | the body| of it  | 4, LE  |
//	|         |         |         |         |         | uvarint | 4, LE  |        |
//	+---------+---------+---------+---------+---------+---------+--------+--------+
//
//	+---------+---------------+--------+
//	| version | a part of the | CRC-32C|
//	| 1 byte:2| body          | 4, LE  |
//	+---------+---------------+--------+
//
// It returns engine.ErrTooLarge if the body is larger than maxCountsBody.
func EncodeCounts(c *Counts) (rows [][]byte, err error) {
	body := appendCountsBody(nil, c)
	if len(body) > maxCountsBody {
		return nil, fmt.Errorf("%w: the series counts have %d bytes; the maximum is %d", engine.ErrTooLarge,
			len(body), maxCountsBody)
	}
	head := []byte{countsHeadVersion}
	for _, n := range []uint64{c.Series, c.AllMetrics, c.AllLabels,
		uint64(len(body)+countsPart-1) / countsPart, uint64(len(body))} {
		head = binary.AppendUvarint(head, n)
	}
	head = binary.LittleEndian.AppendUint32(head, bodySum(body))
	rows = append(rows, appendChecksum(head, 0))
	for part := range slices.Chunk(body, countsPart) {
		rows = append(rows, appendChecksum(append([]byte{countsPartVersion}, part...), 0))
	}
	return rows, nil
}

func bodySum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

// appendCountsBody appends the counts of metrics, and of labels and their values. Names are sorted, and each shares a
// prefix with the previous one:
//
//	+---------+--------+---------+---------+- - -+---------+--------+---------+---------+-----------+- - -
//	| metrics | shared | rest of | series  |  …  | labels  | shared | rest of | values  | values of |  …
//	| uvarint | uvarint| name    | uvarint |     | uvarint | uvarint| name    | uvarint | it, like  |
//	|         |        | text    |         |     |         |        | text    |         | metrics   |
//	+---------+--------+---------+---------+- - -+---------+--------+---------+---------+-----------+- - -
func appendCountsBody(dst []byte, c *Counts) []byte {
	dst = appendCountsList(dst, c.Metrics)
	list := slices.SortedFunc(slices.Values(c.Labels),
		func(a, b LabelCounts) int { return strings.Compare(a.Name, b.Name) })
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	before := ""
	for i := range list {
		dst = appendCount(dst, before, list[i].NamedCount)
		dst = appendCountsList(dst, list[i].Values)
		before = list[i].Name
	}
	return dst
}

func appendCountsList(dst []byte, list []NamedCount) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	before := ""
	for _, c := range slices.SortedFunc(slices.Values(list),
		func(a, b NamedCount) int { return strings.Compare(a.Name, b.Name) }) {
		dst = appendCount(dst, before, c)
		before = c.Name
	}
	return dst
}

// appendCount appends a count. before is the previous name.
func appendCount(dst []byte, before string, c NamedCount) []byte {
	shared := 0
	for shared < min(len(before), len(c.Name)) && before[shared] == c.Name[shared] {
		shared++
	}
	dst = AppendString(binary.AppendUvarint(dst, uint64(shared)), c.Name[shared:])
	return binary.AppendUvarint(dst, c.Count)
}

// ParseCountsHead parses the head written by EncodeCounts. It returns errMalformedCounts for invalid values.
func ParseCountsHead(b []byte) (h CountsHead, err error) {
	r, err := openCounts(b, countsHeadVersion)
	if err != nil {
		return h, err
	}
	h.Series, h.AllMetrics, h.AllLabels = r.number(), r.number(), r.number()
	parts, size := r.number(), r.number()
	if len(r.b) != crc32.Size || size > maxCountsBody || parts != (size+countsPart-1)/countsPart {
		return h, fmt.Errorf("%w: the header is invalid", errMalformedCounts)
	}
	h.parts, h.size, h.sum = int(parts), int(size), binary.LittleEndian.Uint32(r.b)
	return h, nil
}

// AppendCountsPart appends the part of a body in a row. It returns errMalformedCounts if the row isn't a part.
func AppendCountsPart(body, row []byte) ([]byte, error) {
	r, err := openCounts(row, countsPartVersion)
	return append(body, r.b...), err
}

// ErrCountsMismatch means that the rows of counts belong to different encodings, because two processes wrote them
// concurrently.
var ErrCountsMismatch = errors.New("format: the series counts were written by two processes at once")

// ParseCounts parses the body written by EncodeCounts from its joined parts. It returns errMalformedCounts for an
// invalid body, and ErrCountsMismatch if the head and the body don't belong together.
func ParseCounts(h CountsHead, body []byte) (*Counts, error) {
	if len(body) != h.size || bodySum(body) != h.sum {
		return nil, ErrCountsMismatch
	}
	c, r := &Counts{CountsHead: h}, countsReader{b: body}
	c.Metrics = r.list()
	labels, before := r.length(), ""
	for i := range labels {
		l := LabelCounts{NamedCount: r.count(before)}
		if i > 0 && l.Name == before {
			r.bad = true
		}
		if before, l.Values = l.Name, r.list(); uint64(len(l.Values)) > l.Count {
			r.bad = true
		}
		if r.bad {
			break
		}
		c.Labels = append(c.Labels, l)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if uint64(len(c.Metrics)) > h.AllMetrics || uint64(len(c.Labels)) > h.AllLabels {
		return nil, fmt.Errorf("%w: more counts than series", errMalformedCounts)
	}
	slices.SortFunc(c.Labels, func(a, b LabelCounts) int { return CompareCounts(a.NamedCount, b.NamedCount) })
	return c, nil
}

// countsReader reads the values of rows of counts. After an error (bad), it returns only empty values.
type countsReader struct {
	b   []byte
	bad bool
}

// openCounts returns a reader of the bytes between the version and the checksum of a row.
func openCounts(b []byte, version byte) (countsReader, error) {
	n := len(b) - crc32.Size
	if n < 1 || b[0] != version {
		return countsReader{}, fmt.Errorf("%w: unknown version", errMalformedCounts)
	}
	if crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return countsReader{}, fmt.Errorf("%w: wrong checksum", errMalformedCounts)
	}
	return countsReader{b: b[1:n]}, nil
}

func (r *countsReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// minCount is the min size in bytes of an entry of a list.
const minCount = 3

// length reads the number of entries of a list.
func (r *countsReader) length() int {
	n := r.number()
	if n > uint64(len(r.b)/minCount) {
		r.bad = true
		return 0
	}
	return int(n)
}

// count reads an entry. before is the previous name. Names ascend, and only the first one may be empty.
func (r *countsReader) count(before string) (c NamedCount) {
	shared := r.number()
	rest, b, err := CutString(r.b)
	if r.bad || err != nil || shared > uint64(len(before)) {
		r.bad = true
		return c
	}
	r.b = b
	c = NamedCount{before[:shared] + string(rest), r.number()}
	if c.Name < before || c.Count == 0 {
		r.bad = true
	}
	return c
}

func (r *countsReader) list() []NamedCount {
	n := r.length()
	if n == 0 {
		return nil
	}
	list, before := make([]NamedCount, 0, n), ""
	for i := range n {
		c := r.count(before)
		if i > 0 && c.Name == before {
			r.bad = true
		}
		if r.bad {
			return nil
		}
		list, before = append(list, c), c.Name
	}
	slices.SortFunc(list, CompareCounts)
	return list
}

// end returns errMalformedCounts unless all bytes have been read.
func (r *countsReader) end() error {
	if r.bad || len(r.b) > 0 {
		return errMalformedCounts
	}
	return nil
}

// describeCounts describes a row of counts.
func describeCounts(key string, value []byte) (string, error) {
	if IsCountsChange(key) {
		c, err := ParseCountsChange(value)
		return fmt.Sprintf("%d series added, %d removed", c.Added, c.Gone), err
	}
	if len(value) > 0 && value[0] == countsPartVersion {
		_, err := AppendCountsPart(nil, value)
		return fmt.Sprintf("%d bytes of metric, label and value counts", len(value)), err
	}
	h, err := ParseCountsHead(value)
	return fmt.Sprintf("%d series, %d metrics, %d labels, in %d parts of %d bytes", h.Series, h.AllMetrics,
		h.AllLabels, h.parts, h.size), err
}
