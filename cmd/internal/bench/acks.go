package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"
)

// errAckLog means that an ack log can't be read.
var errAckLog = errors.New("bench: invalid ack log")

// Acks records which samples were acknowledged, with one bit per sample. It is safe for concurrent use.
type Acks struct {
	w     Workload
	mu    sync.Mutex
	bits  [][]uint64
	count int64
}

// NewAcks returns Acks for w in which no sample is acknowledged.
func NewAcks(w Workload) *Acks { return &Acks{w: w, bits: make([][]uint64, w.Series)} }

// Workload returns the workload of the samples.
func (a *Acks) Workload() Workload { return a.w }

func (a *Acks) markAcked(refs []sampleRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range refs {
		a.markOne(r)
	}
}

func (a *Acks) markOne(r sampleRef) {
	word := r.step / 64
	if have := a.bits[r.series]; word >= len(have) {
		a.bits[r.series] = append(have, make([]uint64, word+1-len(have))...)
	}
	if mask := uint64(1) << (r.step % 64); a.bits[r.series][word]&mask == 0 {
		a.bits[r.series][word] |= mask
		a.count++
	}
}

// Count returns the number of acknowledged samples.
func (a *Acks) Count() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// Snapshot returns a copy that later acknowledgements don't change.
func (a *Acks) Snapshot() *Acks {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &Acks{w: a.w, bits: make([][]uint64, len(a.bits)), count: a.count}
	for i, b := range a.bits {
		out.bits[i] = slices.Clone(b)
	}
	return out
}

func (a *Acks) isAcked(i, k int) bool {
	return k/64 < len(a.bits[i]) && a.bits[i][k/64]>>(k%64)&1 == 1
}

// lastStep returns the last step with an acknowledged sample, or -1.
func (a *Acks) lastStep() int {
	last := -1
	for _, words := range a.bits {
		for word := len(words) - 1; word >= max(0, last/64); word-- {
			if words[word] != 0 {
				last = max(last, word*64+bits.Len64(words[word])-1)
				break
			}
		}
	}
	return last
}

// ackLine is a line of the ack log. The first line is the workload. Each other line contains the acknowledged steps of
// the series From to To (inclusive), as pairs of the first and the last step.
type ackLine struct {
	From  int      `json:"from_series"`
	To    int      `json:"to_series"`
	Steps [][2]int `json:"steps"`
}

// Write writes the ack log: the workload and the acknowledged samples.
func (a *Acks) Write(to io.Writer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := json.NewEncoder(to)
	if err := out.Encode(a.w); err != nil {
		return err
	}
	for i := 0; i < len(a.bits); {
		line := ackLine{From: i, To: i, Steps: a.ackedRanges(i)}
		for i++; i < len(a.bits) && slices.Equal(a.bits[i], a.bits[line.From]); i++ {
			line.To = i
		}
		if len(line.Steps) == 0 {
			continue
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (a *Acks) ackedRanges(i int) [][2]int {
	var out [][2]int
	for k := range 64 * len(a.bits[i]) {
		if !a.isAcked(i, k) {
			continue
		}
		if n := len(out); n > 0 && out[n-1][1] == k-1 {
			out[n-1][1] = k
		} else {
			out = append(out, [2]int{k, k})
		}
	}
	return out
}

// ReadAcks reads an ack log written by Write. It returns errAckLog if the log is invalid.
func ReadAcks(from io.Reader) (*Acks, error) {
	in := json.NewDecoder(bufio.NewReader(from))
	var w Workload
	if err := in.Decode(&w); err != nil {
		return nil, fmt.Errorf("%w: %w", errAckLog, err)
	}
	if err := w.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errAckLog, err)
	}
	a := NewAcks(w)
	for {
		var line ackLine
		if err := in.Decode(&line); err == io.EOF {
			return a, nil
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", errAckLog, err)
		}
		if line.From < 0 || line.From > line.To || line.To >= w.Series {
			return nil, fmt.Errorf("%w: the workload has no series %d to %d", errAckLog, line.From, line.To)
		}
		for _, r := range line.Steps {
			if r[0] < 0 || r[0] > r[1] || r[1] >= w.Steps {
				return nil, fmt.Errorf("%w: the workload has no steps %d to %d", errAckLog, r[0], r[1])
			}
			for i := line.From; i <= line.To; i++ {
				for k := r[0]; k <= r[1]; k++ {
					a.markOne(sampleRef{i, k})
				}
			}
		}
	}
}
