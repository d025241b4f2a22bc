package storage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// normalize makes states with the same possible futures equal: it renames rows, and removes deleted rows that no
// process refers to.
func (s *stagingState) normalize(r *stagingRules) {
	s.acked &= s.stage // Acknowledged blobs that aren't staged are sealed.
	for i := range s.writers {
		w := &s.writers[i]
		if w.step == writerDown || w.step == writerIdle && int(w.commit) >= r.commits[i] {
			*w = modelWriter{step: writerDown, generation: -1}
		}
		if w.step == writerIdle {
			w.wasYoung, w.wasOpen, w.unitWasOpen = false, false, false
		}
	}
	for l := range r.levels {
		list := &s.lists[l]
		type named struct {
			row  uint8
			refs [4]bool
			was  int8
		}
		var rows []named
		for g := range int8(modelRows) {
			row := list[g]
			if row&rowDeleted != 0 {
				row = rowDeleted
			}
			if row&rowClosing != 0 {
				row &^= doubtfulClosing | doubtfulPut | rowPut
			}
			x := named{row: row, was: g}
			for i := range s.sealers {
				x.refs[i] = s.sealers[i].step != sealerIdle && int(s.sealers[i].level) == l &&
					s.sealers[i].generation == g
			}
			for i := range s.writers {
				x.refs[2+i] = l == 0 && s.writers[i].generation == g
			}
			if x.refs == [4]bool{} && row == rowDeleted {
				row = 0
			}
			if x.row = row; row != 0 || x.refs != [4]bool{} {
				rows = append(rows, x)
			}
		}
		slices.SortFunc(rows, func(a, b named) int {
			return cmp.Or(cmp.Compare(a.row, b.row), strings.Compare(fmt.Sprint(a.refs), fmt.Sprint(b.refs)))
		})
		*list = modelList{}
		sealers, writers := s.sealers, s.writers
		for g, x := range rows {
			list[g] = x.row
			for i := range sealers {
				if x.refs[i] {
					sealers[i].generation = int8(g)
				}
				if x.refs[2+i] {
					writers[i].generation = int8(g)
				}
			}
		}
		s.sealers, s.writers = sealers, writers
	}
}

// explore visits all states. It returns their number, and the steps to the first state that violates the invariant, or
// nil.
func (r stagingRules) explore() (states int, broken []string) {
	type came struct {
		from stagingState
		what string
	}
	first := stagingState{age: r.birth}
	for i := range first.writers {
		first.writers[i].generation = -1
	}
	for i := range first.sealers {
		first.sealers[i].generation = -1
	}
	seen := map[stagingState]came{first: {}}
	for queue := []stagingState{first}; len(queue) > 0; {
		s := queue[0]
		queue = queue[1:]
		if s.lost(&r) {
			for s != first {
				broken = append([]string{seen[s].what}, broken...)
				s = seen[s].from
			}
			return len(seen), broken
		}
		s.next(&r, func(what string, n stagingState) {
			n.normalize(&r)
			if _, is := seen[n]; !is {
				seen[n] = came{s, what}
				queue = append(queue, n)
			}
		})
	}
	return len(seen), nil
}

// TestStagingModel explores the protocol with all rules, which must not violate the invariant, and without each single
// rule, which must violate it.
func TestStagingModel(t *testing.T) {
	slots := func(change func(*stagingRules)) stagingRules {
		r := stagingRules{levels: 1, commits: [2]int{2, 1}, birth: 1, end: 3}
		if testing.Short() {
			r.commits = [2]int{1, 1}
		}
		change(&r)
		return r
	}
	units := func(change func(*stagingRules)) stagingRules {
		r := stagingRules{levels: 2, commits: [2]int{1, 1}, birth: 3, end: 3}
		change(&r)
		return r
	}
	for name, r := range map[string]stagingRules{
		"slots": slots(func(*stagingRules) {}),
		"units": units(func(*stagingRules) {}),
	} {
		t.Run(name, func(t *testing.T) {
			states, broken := r.explore()
			t.Logf("%d states", states)
			require.Empty(t, broken)
		})
	}
	for name, r := range map[string]stagingRules{
		"a sealer closes a row before it deletes it":             slots(func(r *stagingRules) { r.noClosing = true }),
		"a sealer closes before it lists the stage":              slots(func(r *stagingRules) { r.listsBeforeClosing = true }),
		"a sealer deletes exactly the row that it closed":        slots(func(r *stagingRules) { r.deletesAll = true }),
		"a sealer stops if closing is in doubt":                  slots(func(r *stagingRules) { r.goesOnInDoubt = true }),
		"a sealer closes only after two days":                    slots(func(r *stagingRules) { r.closesAfterADay = true }),
		"a writer reads the rows after its blob is durable":      slots(func(r *stagingRules) { r.readsBeforeBlob = true }),
		"a closing row is none for a writer":                     slots(func(r *stagingRules) { r.closingIsListed = true }),
		"a row in doubt isn't remembered":                        slots(func(r *stagingRules) { r.cachesDoubt, r.commits = true, [2]int{2, 0} }),
		"what is remembered doesn't count for old slots":         slots(func(r *stagingRules) { r.trustsCacheOfOld, r.commits = true, [2]int{2, 0} }),
		"a writer reads its clock after its blob is durable":     slots(func(r *stagingRules) { r.readsClockBeforeBlob = true }),
		"a generation names one row":                             slots(func(r *stagingRules) { r.reusesGeneration = true }),
		"a writer that finds its slot listed looks for the unit": units(func(r *stagingRules) { r.skipsUnit = true }),
		"a writer reads the unit after its slot is listed":       units(func(r *stagingRules) { r.listsUnitFirst = true }),
	} {
		t.Run("without: "+name, func(t *testing.T) {
			states, broken := r.explore()
			require.NotEmpty(t, broken, "%d states, and none breaks the invariant", states)
			t.Log(broken)
		})
	}
}
