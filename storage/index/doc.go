// Package index finds the series of one metric by matchers, in memory.
//
//	series   0  up{instance="a", job="x"}         column "job"      values    x      y
//	         1  up{instance="b", job="x"}    ──►                    positions 0 1    2
//	         2  up{instance="c", job="y"}
//	         3  up{instance="d"}                  3 has no job: its value is empty
//
// A Set is built from the labels alone. A label's column is filled when matchers first need it: its values, sorted, and for each the positions of
// the series that carry it. With a hash table of the values an equality or an alternation is a look-up, as they are sorted a prefix is a range;
// other matchers are tested against values, of which there are mostly far fewer than series, or against the few series that the other matchers
// have left over.
//
// Filling the column of a label with millions of values takes seconds. Readers fill it in steps of some thousand series, one reader at a time, and
// hold no lock between steps. A reader may therefore end with its context, or wait for its turn among large reads, while the others continue.
// Look-ups in such a column don't wait until it is filled: they test every series, and each does a part of the steps.
package index
