// Package alerttext bounds the texts of alerts: labels and annotations, which are templates. Prometheus' template
// package has no such bounds.
//
//	GrowthOf ─► an estimate of the length of the text, without an expansion
//	Expansion ─► expands the template with bounds on the length, the memory and the work
package alerttext
