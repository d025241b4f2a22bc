// Package ruler evaluates recording and alerting rules with Prometheus' rules.Manager, one manager per tenant. It is
// used by cmd only. Results of rules are stored through the write path, as the samples of senders are. Firing alerts
// are sent to Alertmanagers by Prometheus' notifier.
//
//	rule files ──► Files, checked as a whole ──► Ruler ── owns the lease? ──► rules.Manager of each tenant
//	                                               │                          │ queries     the evaluator, in the tenant's queue
//	                                               │                          │ results     adapter.Appendable, which cmd passes in
//	/api/v1/rules, /alerts ◄── Retriever ──────────┘                          └ alerts      notifier.Manager ─► Alertmanagers
//
// The memory of results and alerts is bounded: see ruleLedger. The texts of alerts are bounded by package alerttext.
//
// If multiple processes share a store, only the owner of the rules' lease evaluates rules. The lease ends when its
// owner has sent no heartbeat for membership.LivenessTimeout. An owner that can't send heartbeats stops before that.
// Two owners for a moment are harmless: both evaluate at the same times and store the same series, and an Alertmanager
// treats two equal alerts as one.
//
// The evaluation times of a group are computed from its file and name, so that they are the same in every process. A
// process that takes over finds the newest of these times with stored results. It evaluates the times missed since then
// and the times that become due during the takeover, and restores the state of alerts. So stored results have no gap at
// any interval, and ALERTS continues immediately. Results that are already stored for a time are never replaced, so
// that all readers get the same value for it.
package ruler
