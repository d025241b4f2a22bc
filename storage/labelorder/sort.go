// Package labelorder sorts series by their labels, in the order of labels.Compare. It is used for large query results,
// where it reads less memory than pairwise comparisons.
package labelorder

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// Up to maxFew elements whose texts are loaded are sorted by comparing the texts, because computing keys would cost
// more. Lists of up to maxSome elements are sorted by comparing labels, because building texts would cost more.
const maxFew, maxSome = 24, 2000

// maxLoaded is the max number of elements whose texts are held in memory at once. It bounds the memory that sorting
// needs in addition to the labels.
const maxLoaded = 1 << 13

// element is an element of the list to sort. key contains the eight bytes of its text that are currently compared.
// While its text is loaded, text is the index of the text.
type element struct {
	key      uint64
	at, text uint32
}

// Sort sorts a list in the order of labels.Compare. It is stable.
func Sort[T any](list []T, of func(T) labels.Labels) {
	if isSorted(list, of) {
		return
	}
	sorted := make([]T, len(list))
	for i, e := range sortedElements(list, of) {
		sorted[i] = list[e.at]
	}
	copy(list, sorted)
}

// Order returns the indices of a list's elements in the order of Sort.
func Order[T any](list []T, of func(T) labels.Labels) []uint32 {
	order := make([]uint32, len(list))
	if isSorted(list, of) {
		for i := range order {
			order[i] = uint32(i)
		}
		return order
	}
	for i, e := range sortedElements(list, of) {
		order[i] = e.at
	}
	return order
}

func isSorted[T any](list []T, of func(T) labels.Labels) bool {
	return slices.IsSortedFunc(list, func(a, b T) int { return labels.Compare(of(a), of(b)) })
}

// sortedElements returns the elements of a list, sorted.
//
// Many series differ only late in their labels, so that each pairwise comparison reads much memory. This algorithm
// compares eight bytes of all elements at a time, starting at the first position at which the labels differ. It
// continues in the same way among the elements with equal bytes. This is multikey quicksort (Bentley and Sedgewick,
// "Fast algorithms for sorting and searching strings", 1997) with characters of eight bytes.
func sortedElements[T any](list []T, of func(T) labels.Labels) []element {
	elements := make([]element, len(list))
	for i := range elements {
		elements[i].at = uint32(i)
	}
	if len(list) > maxSome {
		s := sorter[T]{list: list, of: of}
		s.sort(elements, 0)
		return elements
	}
	slices.SortFunc(elements, func(a, b element) int {
		if c := labels.Compare(of(list[a.at]), of(list[b.at])); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
	return elements
}

type sorter[T any] struct {
	list []T
	of   func(T) labels.Labels
	// first and next are buffers for texts. texts contains the loaded texts, and ends the offset of the end of each.
	first, next, texts []byte
	ends               []uint32
}

// text appends the text of an element: a byte string that sorts like the element's labels. It may stop after enough
// bytes.
func (s *sorter[T]) text(e element, to []byte, enough int) []byte {
	enough += len(to)
	for data := Encoding(s.of(s.list[e.at])); data != ""; {
		size, start := int(data[0]), 1
		if size == longString {
			size, start = int(data[1])|int(data[2])<<8|int(data[3])<<16, 4
		}
		if to = appendText(to, data[start:start+size]); len(to) >= enough {
			return to
		}
		data = data[start+size:]
	}
	return append(to, 0, 0) // Names aren't empty, so no text is a prefix of another one.
}

// appendText appends s, escaped and terminated so that it sorts before all longer strings that start with s.
func appendText(to []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			return append(append(to, s...), 0, 0)
		}
		to = append(append(to, s[:i]...), 0, 1)
		s = s[i+1:]
	}
}

// sort sorts elements whose texts are equal in their first bytes. same is the number of these bytes.
func (s *sorter[T]) sort(elements []element, same int) {
	if len(elements) <= maxLoaded {
		s.texts, s.ends = s.texts[:0], append(s.ends[:0], 0)
		for i := range elements {
			elements[i].text = uint32(i)
			s.texts = s.text(elements[i], s.texts, math.MaxInt32)
			s.ends = append(s.ends, uint32(len(s.texts)))
		}
		s.sortLoaded(elements, same)
		return
	}
	// Reading labels is the largest cost, so the length of the common prefix is first estimated from a sample. If a
	// text outside the sample has a shorter common prefix, the length is determined from all texts.
	s.first = s.text(elements[0], s.first[:0], math.MaxInt32)
	if same >= len(s.first) {
		return // The labels of all elements are equal.
	}
	common := s.commonPrefix(elements, same, len(elements)/maxFew)
	if !s.setKeys(elements, same, common) {
		common = s.commonPrefix(elements, same, 1)
		s.setKeys(elements, same, common)
	}
	for run := range sortIntoRuns(elements) {
		s.sort(run, common+8)
	}
}

// commonPrefix returns the length of the longest common prefix of first and the texts of every step-th element. The
// first same bytes of these texts are known to be equal.
func (s *sorter[T]) commonPrefix(elements []element, same, step int) int {
	common := len(s.first)
	for i := 0; i < len(elements); i += step {
		s.next = s.text(elements[i], s.next[:0], common)
		common = commonBytes(s.first[:common], s.next, same)
	}
	return common
}

// setKeys sets the keys to the eight bytes after the first common bytes. It returns false if a text doesn't start with
// the first common bytes of s.first.
func (s *sorter[T]) setKeys(elements []element, same, common int) bool {
	for i := range elements {
		s.next = s.text(elements[i], s.next[:0], common+8)
		if commonBytes(s.first[:common], s.next, same) < common {
			return false
		}
		elements[i].key = keyAt(s.next, common)
	}
	return true
}

func (s *sorter[T]) loadedText(e element) []byte { return s.texts[s.ends[e.text]:s.ends[e.text+1]] }

// sortLoaded is sort for elements whose texts are loaded.
func (s *sorter[T]) sortLoaded(elements []element, same int) {
	if len(elements) <= maxFew {
		slices.SortFunc(elements, func(a, b element) int {
			if c := bytes.Compare(s.loadedText(a), s.loadedText(b)); c != 0 {
				return c
			}
			return cmp.Compare(a.at, b.at)
		})
		return
	}
	common := s.loadedText(elements[0])
	if same >= len(common) {
		return
	}
	for _, e := range elements[1:] {
		common = common[:commonBytes(common, s.loadedText(e), same)]
	}
	for i := range elements {
		elements[i].key = keyAt(s.loadedText(elements[i]), len(common))
	}
	for run := range sortIntoRuns(elements) {
		s.sortLoaded(run, len(common)+8)
	}
}

// sortIntoRuns sorts elements by their keys, and yields each run of multiple elements with the same key.
func sortIntoRuns(elements []element) iter.Seq[[]element] {
	return func(yield func([]element) bool) {
		slices.SortFunc(elements, func(a, b element) int {
			if a.key != b.key {
				return cmp.Compare(a.key, b.key)
			}
			return cmp.Compare(a.at, b.at)
		})
		for from := 0; from < len(elements); {
			to := from + 1
			for to < len(elements) && elements[to].key == elements[from].key {
				to++
			}
			if to > from+1 && !yield(elements[from:to]) {
				return
			}
			from = to
		}
	}
}

// commonBytes returns the length of the longest common prefix of a and b. The first known bytes are known to be equal.
func commonBytes(a, b []byte, known int) int {
	n := min(len(a), len(b))
	for known+8 <= n && binary.NativeEndian.Uint64(a[known:]) == binary.NativeEndian.Uint64(b[known:]) {
		known += 8
	}
	for known < n && a[known] == b[known] {
		known++
	}
	return min(known, n)
}

// keyAt returns the eight bytes of text at offset at, padded with zeros, as a big-endian number.
func keyAt(text []byte, at int) uint64 {
	if at+8 <= len(text) {
		return binary.BigEndian.Uint64(text[at:])
	}
	var rest [8]byte
	if at < len(text) {
		copy(rest[:], text[at:])
	}
	return binary.BigEndian.Uint64(rest[:])
}
