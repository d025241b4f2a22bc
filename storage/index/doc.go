// Package index finds the series of one metric by matchers, in memory.
//
//	series   0  up{instance="a", job="x"}         column "job"      values    x      y
//	         1  up{instance="b", job="x"}    ──►                    positions 0 1    2
//	         2  up{instance="c", job="y"}
//	         3  up{instance="d"}                  3 has no job: its value is empty
//
// A Set is built from the labels alone. The first matcher that asks for a label makes that label's column:
// its values, sorted, and for each the positions of the series that carry it. With a hash table of the values an
// equality or an alternation is a look-up, as they are sorted a prefix is a range; other matchers are tested against values, of which there
// are mostly far fewer than series, or against the few series that the other matchers have left over.
package index
