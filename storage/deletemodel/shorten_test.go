package deletemodel

import "slices"

// shortener makes a failing history shorter, as long as it fails in the same way. The first group of choices creates
// the store, the last group settles the history, and each other group is one step.
type shortener struct {
	groups [][]uint8
	fails  func([][]uint8) bool
	// tries is the number of histories that shortener may still play.
	tries int
}

// shorten repeats all reductions until none of them helps.
func shorten(groups [][]uint8, tries int, fails func([][]uint8) bool) [][]uint8 {
	s := &shortener{groups, fails, tries}
	for before := -1; before != s.size() && s.tries > 0; {
		before = s.size()
		s.removeSteps()
		for i := range s.groups {
			s.shortenGroup(i)
		}
	}
	return s.groups
}

// size returns the sum of the number of steps, the number of choices, and the choices.
func (s *shortener) size() (n int) {
	for _, g := range s.groups {
		n++
		for _, v := range g {
			n += 1 + int(v)
		}
	}
	return n
}

// try replaces the history by a smaller one if the smaller one also fails.
func (s *shortener) try(smaller [][]uint8) bool {
	if s.tries--; s.tries < 0 || !s.fails(smaller) {
		return false
	}
	s.groups = smaller
	return true
}

func (s *shortener) removeSteps() {
	for size := len(s.groups) / 2; size > 0; size /= 2 {
		for from := 1; from+size < len(s.groups); {
			if !s.try(slices.Concat(s.groups[:from], s.groups[from+size:])) {
				from += size
			}
		}
	}
}

// replace tries the history with another content of group i.
func (s *shortener) replace(i int, group []uint8) bool {
	groups := slices.Clone(s.groups)
	groups[i] = group
	return s.try(groups)
}

// shortenGroup removes choices from group i, the last ones first, and lowers the remaining choices.
func (s *shortener) shortenGroup(i int) {
	for size := len(s.groups[i]); size > 0; size /= 2 {
		for n := len(s.groups[i]) - size; n >= 0; n -= size {
			g := s.groups[i]
			s.replace(i, slices.Concat(g[:n], g[min(n+size, len(g)):]))
		}
	}
	for at := range s.groups[i] {
		for lower := uint8(0); lower < s.groups[i][at]; lower++ {
			g := slices.Clone(s.groups[i])
			if g[at] = lower; s.replace(i, g) {
				break
			}
		}
	}
}
