package membership

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// Process describes a process to the other processes.
type Process struct {
	// Name is the process' address, for display.
	Name string `json:"name"`
	// Target is the process' role: all, write, read or downsample.
	Target  string `json:"target"`
	Version string `json:"version"`
	// StartedMS is when the process started, and ClockMS the time of its clock at the last heartbeat, in milliseconds.
	StartedMS int64 `json:"started_ms"`
	ClockMS   int64 `json:"clock_ms"`
	// Leaving is true if the process accepts no more work because it is about to stop.
	Leaving bool `json:"leaving,omitempty"`
	// Doubted is true if the process accepts no work because its clock is untrusted.
	Doubted bool `json:"doubted,omitempty"`
	// Writer is the process' name in the staging log, in hexadecimal.
	Writer string `json:"-"`
	// Beat is the number of heartbeats that the process has sent.
	Beat int64 `json:"beat"`
}

// Downsamples reports whether the process runs background work.
func (p *Process) Downsamples() bool {
	return !p.Leaving && !p.Doubted && (p.Target == "all" || p.Target == "downsample")
}

// The lists of table processes: partitions with rows of one kind.
const (
	// processList has a row per process.
	processList = 0
	// clockList has one row: the store's observed uptime.
	clockList = 1
	// statementList has the advertised state of each process, see Options.State.
	statementList = 2
)

func listPartition(list int64) engine.Key { return engine.Key{engine.Int(list)} }

// Processes lists the processes that sent a heartbeat within ProcessTTL.
func (m *Member) Processes(ctx context.Context) (list []Process, err error) {
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{
		Table: engine.Processes, Partition: listPartition(processList),
	}) {
		if err != nil {
			return nil, fmt.Errorf("membership: listing the processes: %w", err)
		}
		var p Process
		if err := json.Unmarshal(row.Value, &p); err != nil {
			m.o.Corrupt(engine.Processes, fmt.Errorf("membership: the row of process %x is malformed: %w",
				row.Clustering[0].Text, err))
			continue
		}
		p.Writer = hex.EncodeToString([]byte(row.Clustering[0].Text))
		list = append(list, p)
	}
	return list, nil
}

// AppendWriters appends the staging log names of the other processes that sent a heartbeat within ProcessTTL.
func (m *Member) AppendWriters(ctx context.Context, writers []string) ([]string, error) {
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{
		Table: engine.Processes, Partition: listPartition(processList), KeysOnly: true,
	}) {
		if err != nil {
			return writers, fmt.Errorf("membership: listing the processes: %w", err)
		}
		if w := row.Clustering[0].Text; w != m.o.Writer {
			writers = append(writers, strings.Clone(w))
		}
	}
	return writers, nil
}

// EachStatement calls f with the advertised state of each other process. value is only valid during the call.
func (m *Member) EachStatement(ctx context.Context, f func(writer string, value []byte)) error {
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{
		Table: engine.Processes, Partition: listPartition(statementList),
	}) {
		if err != nil {
			return err
		}
		if writer := row.Clustering[0].Text; writer != m.o.Writer {
			f(writer, row.Value)
		}
	}
	return nil
}
