// Package jsonapi is a plain API for applications that have a few samples to write or to draw: JSON, tags instead of
// labels, RFC 3339 times. openapi.yaml describes it, and a test holds every answer to that description.
//
//	POST /api/write/single   one point  ┐
//	POST /api/write          an array   ┘─► adapter.Intake ─► storage.Batch    durable: 204; else the error of each
//	                                                                           point, and how many were written
//	GET /api/metadata/metricNames, tagKeys, tagValues ─► Store.LabelNames, LabelValues
//
//	GET /api/query           tags as matchers; alignment period, aligner, group-by and reducer ─► PromQL ─► Evaluator
//
// A query becomes PromQL, so that limits, fairness and rollups are those of every other query:
//
//	metricName=m tag=os=linux                          {"__name__"="m","os"="linux"}[…]
//	… alignmentPeriod=5m aligner=ALIGN_MEAN            avg_over_time({"__name__"="m","os"="linux"}[5m])
//	… reducer=REDUCE_SUM groupBy=host                  sum by ("host") (avg_over_time({"__name__"="m","os"="linux"}[5m]))
//
// An aligned point stands at a multiple of the period and is computed from what lies in (time-period, time].
//
// The tenant stands in the body or the parameters. It counts only as far as the user is authorized for it: see Options.Tenant.
package jsonapi
