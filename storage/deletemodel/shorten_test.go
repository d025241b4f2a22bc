package deletemodel

import "slices"

// shortener makes a failing history smaller while it fails in the same way. The first group of choices is the store, the
// last one settles, and each of the others is one step.
type shortener struct {
	groups [][]uint8
	fails  func([][]uint8) bool
	// tries is the number of histories that may still be played.
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

// size is the number of steps and of choices, and the sum of the choices.
func (s *shortener) size() (n int) {
	for _, g := range s.groups {
		n++
		for _, v := range g {
			n += 1 + int(v)
		}
	}
	return n
}

// try replaces the history by a smaller one if that fails, too.
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

// replace tries another content of a group.
func (s *shortener) replace(i int, group []uint8) bool {
	groups := slices.Clone(s.groups)
	groups[i] = group
	return s.try(groups)
}

// shortenGroup removes choices of a group, first from its end, and lowers the others.
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
