package bench

import (
	"fmt"
	"io"
	"time"
)

// Report is the result of a run.
type Report struct {
	Samples  int64 `json:"samples"`
	Requests int64 `json:"requests"`
	// Errors is the number of failed attempts. A failed attempt may have been retried successfully.
	Errors int64 `json:"errors"`
	// Bytes is the compressed size of the acknowledged requests.
	Bytes    int64         `json:"bytes"`
	Duration time.Duration `json:"duration_ns"`
	// The Ack fields are the durations until requests were acknowledged.
	AckMean time.Duration `json:"ack_mean_ns"`
	AckP50  time.Duration `json:"ack_p50_ns"`
	AckP90  time.Duration `json:"ack_p90_ns"`
	AckP99  time.Duration `json:"ack_p99_ns"`
	AckMax  time.Duration `json:"ack_max_ns"`
	// ServerCPU is the CPU time of the server during the run, and ServerRSS its memory at the end. The fields about the
	// server and its data are 0 if its process or directory is unknown.
	ServerCPU     time.Duration `json:"server_cpu_ns,omitempty"`
	ServerRSS     int64         `json:"server_rss_bytes,omitempty"`
	ServerPeakRSS int64         `json:"server_peak_rss_bytes,omitempty"`
	DirBytes      int64         `json:"dir_bytes,omitempty"`
}

// Rate returns the number of samples sent per second.
func (r Report) Rate() float64 { return float64(r.Samples) / max(r.Duration.Seconds(), 1e-9) }

// CPUPerMillion returns the server's CPU seconds per million samples.
func (r Report) CPUPerMillion() float64 {
	return r.ServerCPU.Seconds() / max(float64(r.Samples), 1) * 1e6
}

// Write writes the report as text.
func (r Report) Write(to io.Writer) error {
	_, err := fmt.Fprintf(to, "samples       %d in %s (%.0f/s), %d requests of %.0f kB, %d failed tries\nlatency      "+
		" %s on average; 50%%: %s, 90%%: %s, 99%%: %s, max: %s\n",
		r.Samples, r.Duration.Round(time.Millisecond), r.Rate(), r.Requests,
		float64(r.Bytes)/1e3/max(float64(r.Requests), 1), r.Errors, roundDuration(r.AckMean), roundDuration(r.AckP50),
		roundDuration(r.AckP90), roundDuration(r.AckP99), roundDuration(r.AckMax))
	if err == nil && r.ServerRSS > 0 {
		_, err = fmt.Fprintf(
			to, "server        %.2f CPU seconds (%.3f per million samples), %.0f MB of memory, %.0f MB max\n",
			r.ServerCPU.Seconds(), r.CPUPerMillion(), float64(r.ServerRSS)/1e6, float64(r.ServerPeakRSS)/1e6,
		)
	}
	if err == nil && r.DirBytes > 0 {
		_, err = fmt.Fprintf(to, "on disk       %.1f MB, %.2f bytes per sample of this run\n",
			float64(r.DirBytes)/1e6, float64(r.DirBytes)/max(float64(r.Samples), 1))
	}
	return err
}

func roundDuration(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// usage returns the current resource usage of the server, or zero if its process is unknown.
func (r *run) usage() (Usage, error) {
	if r.PID == 0 {
		return Usage{}, nil
	}
	return ProcessUsage(r.PID)
}

func (r *run) report(before Usage) (Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.latencies
	out := Report{
		Samples: r.acks.Count(), Requests: r.requests.Load(), Errors: r.errors.Load(), Bytes: r.bytes.Load(),
		Duration: time.Since(r.began), AckMean: l.mean(), AckP50: l.quantile(0.5), AckP90: l.quantile(0.9),
		AckP99: l.quantile(0.99), AckMax: l.max,
	}
	after, err := r.usage()
	if err != nil {
		return out, err
	}
	out.ServerCPU, out.ServerRSS, out.ServerPeakRSS = after.CPU-before.CPU, after.RSS, after.PeakRSS
	if r.Dir != "" {
		out.DirBytes, err = DirBytes(r.Dir)
	}
	return out, err
}

// writeProgress writes a progress line every ProgressEvery, until done is closed.
func (r *run) writeProgress(done <-chan struct{}) {
	if r.Progress == nil {
		return
	}
	ticker := time.NewTicker(r.ProgressEvery)
	defer ticker.Stop()
	total, before := r.g.Samples(), int64(0)
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		now := r.acks.Count()
		fmt.Fprintf(r.Progress, "%6s  %5.1f%%  %d samples acknowledged, %.0f/s, %d failed tries\n",
			time.Since(r.began).Round(time.Second), 100*float64(now)/float64(total), now,
			float64(now-before)/r.ProgressEvery.Seconds(), r.errors.Load())
		before = now
	}
}
