// Package index finds the series of one metric by matchers, in memory.
//
//	series   0  up{instance="a", job="x"}         column "job"      values    x      y
//	         1  up{instance="b", job="x"}    ──►                    positions 0 1    2
//	         2  up{instance="c", job="y"}
//	         3  up{instance="d"}                  3 has no job: its value is empty
//
// Package query builds a Set for each metric in a window of sealed rows, and package head builds a Set for each metric
// with many unsealed series. A Set is safe for concurrent use, and its answers have the meaning of matchers in
// Prometheus. The caller must not modify the labels afterwards, and must check its context before it uses an answer,
// because an answer is incomplete if the context has ended.
//
// A Set is built from the labels alone. A label's column is filled when matchers first need it. It contains the sorted
// values, and the positions of the series with each value. An equality or an alternation is answered by a look-up in a
// hash table of the values, and a prefix by a range of the sorted values. Other matchers are tested against the values,
// which are usually far fewer than the series, or against the series that match the other matchers, if these are few.
//
// Filling the column of a label with millions of values takes seconds. Readers fill it in steps of some thousand
// series, one reader at a time, and hold no lock between steps. A reader may stop when its context ends, or pause to
// let other large reads take their turns, while other readers continue. Look-ups in an unfilled column don't wait for
// it to be filled: each of them tests every series and then does some of the steps.
package index
