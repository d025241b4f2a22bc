package promql

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	promengine "github.com/prometheus/prometheus/promql"
)

// Maximum lengths of the request's texts in the log line of a slow query, in bytes.
const (
	slowQueryBytes  = 1000
	slowOriginBytes = 200
)

// logSlow logs a query that took Options.LogSlowerThan or longer.
func (e *Engine) logSlow(ctx context.Context, active *ActiveQuery, q promengine.Query, result *promengine.Result) {
	took := time.Since(active.Since)
	if e.opts.LogSlowerThan <= 0 || took < e.opts.LogSlowerThan {
		return
	}
	attrs := []any{
		"tenant", strings.Join(active.Tenants, "|"), "query", truncateText(active.Query, slowQueryBytes),
		"start", active.Start, "end", active.End, "step", time.Duration(active.Step * float64(time.Second)),
		"took", took.Round(time.Millisecond),
	}
	if s := q.Stats(); s != nil && s.Samples != nil {
		attrs = append(attrs, "samples", s.Samples.TotalSamples, "peak_samples", s.Samples.PeakSamples)
	}
	if r, ok := ctx.Value(reportKey{}).(*Report); ok {
		attrs = append(attrs, "resolution", r.Resolution())
	}
	for name, value := range map[string]string{
		"address": active.Origin.Address, "user_agent": active.Origin.UserAgent, "request_id": active.Origin.RequestID,
	} {
		if value != "" {
			attrs = append(attrs, name, truncateText(value, slowOriginBytes))
		}
	}
	if result.Err != nil {
		attrs = append(attrs, "err", truncateText(result.Err.Error(), slowQueryBytes))
	}
	e.opts.Logger.Warn("slow query", attrs...)
}

// truncateText truncates text to n bytes, between two characters.
func truncateText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
