package remotewrite

import (
	"bytes"
	"context"
	"errors"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter"
	"github.com/cassia-db/cassia/storage"
	replicas "github.com/cassia-db/cassia/storage/ha"
)

// HA deduplicates the replicas of a cluster, which send the same series with a label that names the replica. The label
// is removed, and a Tracker decides which replica's samples are stored.
type HA struct {
	Replicas *replicas.Tracker
	// ClusterLabel and ReplicaLabel are the labels with the names of cluster and replica. A series that lacks either
	// label is stored as usual.
	ClusterLabel, ReplicaLabel string
	// On reports whether deduplication is enabled for a tenant.
	On func(tenant string) bool
}

// batchConstructor returns a constructor of batches that applies rules. If HA is enabled for the tenant, the batches
// deduplicate.
func (ha *HA) batchConstructor(store *storage.Store, rules adapter.Shape) func(tenant string) adapter.Batch {
	plain := func(tenant string) adapter.Batch { return rules.WrapBatch(tenant, store.NewBatch(tenant)) }
	if ha == nil {
		return plain
	}
	clusterName := append(appendUvarint([]byte{tagName}, uint64(len(ha.ClusterLabel))), ha.ClusterLabel...)
	replicaName := append(appendUvarint([]byte{tagName}, uint64(len(ha.ReplicaLabel))), ha.ReplicaLabel...)
	return func(tenant string) adapter.Batch {
		if !ha.On(tenant) {
			return plain(tenant)
		}
		return &haBatch{
			ha: ha, store: store, rules: rules, tenant: tenant, clusterName: clusterName, replicaName: replicaName,
		}
	}
}

// haBatch holds one batch per replica in a request. A request usually has one replica; a proxy may merge the samples of
// multiple senders. The replica of a series is read from its alias:
//
//	alias ─► has the label fields of the previous series' replica? ─► that replica's batch ─► Lookup
//	                 │ no
//	                 └─► parse ─► Replicas.Check ─► a batch
//
// Rules are applied to each replica's batch, so that the rules see series without the replica label.
type haBatch struct {
	ha     *HA
	store  *storage.Store
	rules  adapter.Shape
	tenant string
	// clusterName and replicaName are the labels' names as encoded in an alias.
	clusterName, replicaName []byte

	// current is the part that the last looked-up series belongs to.
	current *haPart
	parts   map[haName]*haPart
}

// haName identifies a replica. The zero value stands for all series that lack either label.
type haName struct{ cluster, replica string }

// haPart holds the samples of one replica in a request.
type haPart struct {
	haName
	// clusterField and replicaField are the two labels as encoded in an alias.
	clusterField, replicaField []byte
	// batch applies the rules and adds samples to stored.
	batch  adapter.Batch
	stored *storage.Batch
	// err, if set, is the reason why all samples of the replica are rejected.
	err error
}

// partOf returns the part that a series belongs to.
func (b *haBatch) partOf(alias []byte) *haPart {
	if p := b.current; p != nil {
		if p.replica != "" {
			if bytes.Contains(alias, p.replicaField) && bytes.Contains(alias, p.clusterField) {
				return p
			}
		} else if !bytes.Contains(alias, b.replicaName) || !bytes.Contains(alias, b.clusterName) {
			return p
		}
	}
	name := b.replicaOf(alias)
	if p := b.parts[name]; p != nil {
		return p
	}
	if b.parts == nil {
		b.parts = map[haName]*haPart{}
	}
	p := &haPart{haName: name}
	if name.replica != "" {
		if p.err = b.ha.Replicas.CheckReplica(b.tenant, name.cluster, name.replica); p.err != nil {
			return p // Not cached: there may be as many rejected replicas as series.
		}
		p.clusterField = appendLabel(nil, b.ha.ClusterLabel, name.cluster)
		p.replicaField = appendLabel(nil, b.ha.ReplicaLabel, name.replica)
	}
	p.stored = b.store.NewBatch(b.tenant)
	p.batch = b.rules.WrapBatch(b.tenant, p.stored)
	b.parts[name] = p
	return p
}

// replicaOf returns the replica that a series comes from.
func (b *haBatch) replicaOf(alias []byte) (name haName) {
	for i := 0; i < len(alias); {
		_, wire, next := readTag(alias, i)
		if next < 0 || wire != wireBytes {
			return haName{}
		}
		var field []byte
		if field, i = readDelimited(alias, next); i < 0 {
			return haName{}
		}
		label, value, ok := parseLabel(field)
		if !ok {
			return haName{}
		}
		switch string(label) {
		case b.ha.ClusterLabel:
			name.cluster = string(value)
		case b.ha.ReplicaLabel:
			name.replica = string(value)
		}
	}
	if name.cluster == "" || name.replica == "" {
		return haName{}
	}
	return name
}

// Lookup finds a series by its alias with the replica label. The stored series doesn't have that label.
func (b *haBatch) Lookup(alias []byte) (*storage.Series, bool) {
	b.current = b.partOf(alias)
	if b.current.err != nil {
		return nil, false
	}
	return b.current.batch.Lookup(alias)
}

// Define finds or creates the last looked-up series.
func (b *haBatch) Define(alias []byte, ls labels.Labels) (*storage.Series, error) {
	p := b.current
	if p.err != nil {
		var bad *replicas.NameError
		if errors.As(p.err, &bad) {
			return nil, &storage.LabelError{Reason: bad.Reason, Detail: bad.Detail, Series: ls.String()}
		}
		return nil, p.err
	}
	if p.replica != "" {
		if _, twice := ls.HasDuplicateLabelNames(); !twice {
			ls = labels.NewBuilder(ls).Del(b.ha.ReplicaLabel).Labels()
		}
	}
	return p.batch.Define(alias, ls)
}

// Float adds a sample to the last looked-up series.
func (b *haBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	return b.current.batch.Float(ref, t, st, v)
}

// Histogram adds a histogram to the last looked-up series.
func (b *haBatch) Histogram(
	ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram,
) error {
	return b.current.batch.Histogram(ref, t, st, h, fh)
}

// Exemplar adds an exemplar to the last looked-up series.
func (b *haBatch) Exemplar(ref *storage.Series, e exemplar.Exemplar) error {
	return b.current.batch.Exemplar(ref, e)
}

// Commit makes all parts durable. After an error, some parts may be durable.
func (b *haBatch) Commit(ctx context.Context) error {
	var first error
	for _, p := range b.parts {
		switch {
		case first != nil:
			p.batch.Release()
		case p.replica == "":
			first = p.batch.Commit(ctx)
		default:
			first = b.ha.Replicas.Commit(
				ctx, p.stored, replicas.ClusterName{Tenant: b.tenant, Cluster: p.cluster}, p.replica,
			)
		}
	}
	return first
}

// Release discards all parts.
func (b *haBatch) Release() {
	for _, p := range b.parts {
		p.batch.Release()
	}
}
