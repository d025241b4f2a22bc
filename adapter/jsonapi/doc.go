// Package jsonapi is a simple API for applications that write or draw a few samples: JSON, tags instead of labels, RFC
// 3339 times. cmd/cassia serves its handlers. openapi.yaml describes it, and a test validates every response against
// it.
//
//	POST /api/write/single   one point  ┐
//	POST /api/write          an array   ┘─► adapter.Intake ─► storage.Batch    durable: 204; else the error of each
//	                                                                           point, and the number written
//	GET /api/metadata/metricNames, tagKeys, tagValues ─► Store.LabelNames, LabelValues
//
//	GET /api/query           tags as matchers; alignment period, aligner, group-by and reducer ─► PromQL ─► Evaluator
//
// Queries are translated to PromQL, so that limits, fairness and rollups apply as to any other query:
//
//	metricName=m tag=os=linux                          {"__name__"="m","os"="linux"}[…]
//	… alignmentPeriod=5m aligner=ALIGN_MEAN            avg_over_time({"__name__"="m","os"="linux"}[5m])
//	… reducer=REDUCE_SUM groupBy=host                  sum by ("host") (avg_over_time({"__name__"="m","os"="linux"}[5m]))
//
// The time of an aligned point is a multiple of the period; its value is computed from the samples in (time-period,
// time].
//
// The tenant is given in the body or a parameter. Options.Tenant decides whether the user is authorized for it.
package jsonapi
