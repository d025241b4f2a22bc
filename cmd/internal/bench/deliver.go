package bench

// sampleRef identifies a sample by its series and step.
type sampleRef struct{ series, step int }

// shard yields the samples of one sender in the order of delivery: by step, and within a step by series. A late sample
// is delivered LateSteps steps late.
type shard struct {
	w      Workload
	first  int // the series of the shard are first, first+stride, …
	stride int

	// step and series identify the next sample. At each step, a series has up to two samples: the sample of this step,
	// and the late sample of LateSteps steps earlier. isBehind is set if only the late sample remains.
	step, series int
	isBehind     bool
}

func newShard(w Workload, number, of int) *shard {
	return &shard{w: w, first: number, stride: of, series: number}
}

// next appends samples to refs until the length of refs is most or, if bySteps is set, until the end of a step. After
// the last sample it appends nothing.
func (s *shard) next(refs []sampleRef, most int, bySteps bool) []sampleRef {
	last := s.w.Steps - 1
	if s.w.LatePercent > 0 {
		last += s.w.LateSteps
	}
	for len(refs) < most && s.step <= last {
		if s.series >= s.w.Series {
			s.series = s.first
			s.step++
			if bySteps && len(refs) > 0 {
				break
			}
			continue
		}
		i := s.series
		if !s.isBehind && s.step < s.w.Steps && !s.w.isLate(i, s.step) {
			refs = append(refs, sampleRef{i, s.step})
		}
		if !s.isBehind && len(refs) == most {
			s.isBehind = true
			break
		}
		if k := s.step - s.w.LateSteps; k >= 0 && s.w.isLate(i, k) {
			refs = append(refs, sampleRef{i, k})
		}
		s.isBehind = false
		s.series += s.stride
	}
	return refs
}
