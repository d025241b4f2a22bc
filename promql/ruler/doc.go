// Package ruler evaluates recording and alerting rules with Prometheus' own manager of rules, one manager per tenant. What a
// rule gives is stored through the write path, like what a sender sends; what fires goes to Alertmanagers through
// Prometheus' own notifier.
//
//	rule files ──► Files, checked as a whole ──► Ruler ── owns the lease? ──► rules.Manager of each tenant
//	                                               │                          │ queries     the evaluator, in the tenant's queue
//	                                               │                          │ results     adapter.Appendable, which cmd passes in
//	/api/v1/rules, /alerts ◄── Retriever ──────────┘                          └ alerts      notifier.Manager ─► Alertmanagers
//
// Of several processes over one store, one evaluates: who owns the lease of the rules. It is over when its owner isn't
// heard of for storage.LivenessTimeout; an owner that can't be heard ends before. Two owners for a moment do no harm: both evaluate
// at the same times and store the same series, and an Alertmanager takes an alert twice for one.
//
// Groups are evaluated at times that follow from their file and name, in every process the same. Whoever takes over
// looks for the newest of these times that has results in the store, evaluates those that were missed since and those that
// become due meanwhile, and lets the alerts go on where they were. So stored results have no gap, whatever the interval, and
// ALERTS goes on at once. Results that are there for a time already stay as they are: nobody reads two values of one time.
package ruler
