package resolution

import "testing"

// BenchmarkChoose measures the choice for a query with the max number of steps in Prometheus, whose window edges cut
// buckets in every slot.
func BenchmarkChoose(b *testing.B) {
	q := Request{
		Func: "rate", Range: hour + 15*second, From: someDay, Step: hour, Slot: 2 * hour, Boundary: keptFor(0, 0, 0),
	}
	q.To = q.From + 11_000*q.Step
	for b.Loop() {
		if _, _, err := Choose(q); err != nil {
			b.Fatal(err)
		}
	}
}
