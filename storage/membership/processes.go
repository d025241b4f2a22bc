package membership

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
)

// Process is a process' description of itself for the others.
type Process struct {
	// Name is where it can be reached, for people.
	Name string `json:"name"`
	// Target is what it does: all, write, read or downsample.
	Target  string `json:"target"`
	Version string `json:"version"`
	// StartedMS and ClockMS are its start and its clock at its last beat, milliseconds.
	StartedMS int64 `json:"started_ms"`
	ClockMS   int64 `json:"clock_ms"`
	// Leaving is true if it takes no more work, for it is about to end.
	Leaving bool `json:"leaving,omitempty"`
	// Doubted is true if it takes none because its clock isn't believed.
	Doubted bool `json:"doubted,omitempty"`
	// Writer names it in the stage, hexadecimal.
	Writer string `json:"-"`
	// Beat counts its beats.
	Beat int64 `json:"beat"`
}

// Downsamples reports whether the process works off what waits.
func (p *Process) Downsamples() bool {
	return !p.Leaving && !p.Doubted && (p.Target == "all" || p.Target == "downsample")
}

// The lists of table processes.
const (
	// processList has a row per process.
	processList = 0
	// clockList has one row: what the store has seen of time.
	clockList = 1
	// statementList has what each process states, see Options.State.
	statementList = 2
)

func listPartition(list int64) engine.Key { return engine.Key{engine.Int(list)} }

// Processes lists the processes that beat within the last hours.
func (m *Member) Processes(ctx context.Context) (list []Process, err error) {
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{Table: engine.Processes, Partition: listPartition(processList)}) {
		if err != nil {
			return nil, fmt.Errorf("membership: listing the processes: %w", err)
		}
		var p Process
		if err := json.Unmarshal(row.Value, &p); err != nil {
			m.o.Corrupt(engine.Processes, fmt.Errorf("membership: the row of process %x is malformed: %w", row.Clustering[0].Text, err))
			continue
		}
		p.Writer = hex.EncodeToString([]byte(row.Clustering[0].Text))
		list = append(list, p)
	}
	return list, nil
}

// AppendWriters appends the names in the stage of the other processes that beat within the last hours.
func (m *Member) AppendWriters(ctx context.Context, writers []string) ([]string, error) {
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{Table: engine.Processes, Partition: listPartition(processList), KeysOnly: true}) {
		if err != nil {
			return writers, fmt.Errorf("membership: listing the processes: %w", err)
		}
		if w := row.Clustering[0].Text; w != m.o.Writer {
			writers = append(writers, strings.Clone(w))
		}
	}
	return writers, nil
}

// EachStatement calls f for what each of the other processes states. value is good until f returns.
func (m *Member) EachStatement(ctx context.Context, f func(writer string, value []byte)) error {
	for row, err := range m.o.Engine.Scan(ctx, engine.Range{Table: engine.Processes, Partition: listPartition(statementList)}) {
		if err != nil {
			return err
		}
		if writer := row.Clustering[0].Text; writer != m.o.Writer {
			f(writer, row.Value)
		}
	}
	return nil
}
