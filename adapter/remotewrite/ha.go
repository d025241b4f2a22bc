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

// HA makes one of the replicas of a cluster, which send the same series with a label that names the replica: that label
// is left out, and a Tracker chooses whose samples are stored.
type HA struct {
	Replicas *replicas.Tracker
	// ClusterLabel and ReplicaLabel are the labels that name them. A series without one of them goes the normal way.
	ClusterLabel, ReplicaLabel string
	// On reports whether it is on for a tenant.
	On func(tenant string) bool
}

// batches returns what makes batches over a store, with rules over them.
func (ha *HA) batches(store *storage.Store, rules adapter.Shape) func(tenant string) adapter.Batch {
	plain := func(tenant string) adapter.Batch { return rules.Over(tenant, store.NewBatch(tenant)) }
	if ha == nil {
		return plain
	}
	clusterName := append(appendUvarint([]byte{tagName}, uint64(len(ha.ClusterLabel))), ha.ClusterLabel...)
	replicaName := append(appendUvarint([]byte{tagName}, uint64(len(ha.ReplicaLabel))), ha.ReplicaLabel...)
	return func(tenant string) adapter.Batch {
		if !ha.On(tenant) {
			return plain(tenant)
		}
		return &haBatch{ha: ha, store: store, rules: rules, tenant: tenant, clusterName: clusterName, replicaName: replicaName}
	}
}

// haBatch is a batch of each replica that a request has samples of: one, but where a proxy puts several senders
// together. Which replica a series is of is read from its alias:
//
//	alias ─► has the label fields of the replica before? ─► that one's batch ─► Lookup
//	                 │ no
//	                 └─► parse ─► Replicas.Check ─► a batch
//
// Rules lie over the batch of each replica, so that they meet series without the label of the replica.
type haBatch struct {
	ha     *HA
	store  *storage.Store
	rules  adapter.Shape
	tenant string
	// clusterName and replicaName are the labels' names as they stand in an alias.
	clusterName, replicaName []byte

	// now is the part that the series looked up last is of.
	now   *haPart
	parts map[haName]*haPart
}

// haName names a replica; the zero value is what has no such labels.
type haName struct{ cluster, replica string }

// haPart is what a request has of one replica.
type haPart struct {
	haName
	// clusterField and replicaField are its labels as they stand in an alias.
	clusterField, replicaField []byte
	// batch takes samples, and is stored with the rules over it.
	batch  adapter.Batch
	stored *storage.Batch
	// err is the reason why its samples can't be taken.
	err error
}

// of returns the part that a series belongs to.
func (b *haBatch) of(alias []byte) *haPart {
	if p := b.now; p != nil {
		if p.replica != "" {
			if bytes.Contains(alias, p.replicaField) && bytes.Contains(alias, p.clusterField) {
				return p
			}
		} else if !bytes.Contains(alias, b.replicaName) || !bytes.Contains(alias, b.clusterName) {
			return p
		}
	}
	name := b.read(alias)
	if p := b.parts[name]; p != nil {
		return p
	}
	if b.parts == nil {
		b.parts = map[haName]*haPart{}
	}
	p := &haPart{haName: name}
	if name.replica != "" {
		if p.err = b.ha.Replicas.Check(b.tenant, name.cluster, name.replica); p.err != nil {
			return p // There may be as many of them as there are series: none is kept.
		}
		p.clusterField = appendLabel(nil, b.ha.ClusterLabel, name.cluster)
		p.replicaField = appendLabel(nil, b.ha.ReplicaLabel, name.replica)
	}
	p.stored = b.store.NewBatch(b.tenant)
	p.batch = b.rules.Over(b.tenant, p.stored)
	b.parts[name] = p
	return p
}

// read finds out which replica a series is of.
func (b *haBatch) read(alias []byte) (name haName) {
	for i := 0; i < len(alias); {
		_, wire, next := tag(alias, i)
		if next < 0 || wire != wireBytes {
			return haName{}
		}
		var field []byte
		if field, i = delimited(alias, next); i < 0 {
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

// Lookup finds a series by its alias, which has the label of the replica; the series hasn't.
func (b *haBatch) Lookup(alias []byte) (*storage.Series, bool) {
	b.now = b.of(alias)
	if b.now.err != nil {
		return nil, false
	}
	return b.now.batch.Lookup(alias)
}

// Define finds or creates the series that was looked up last.
func (b *haBatch) Define(alias []byte, ls labels.Labels) (*storage.Series, error) {
	p := b.now
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

// Float adds a sample of the series that was looked up last.
func (b *haBatch) Float(ref *storage.Series, t, st int64, v float64) error {
	return b.now.batch.Float(ref, t, st, v)
}

// Histogram adds one of the series that was looked up last.
func (b *haBatch) Histogram(ref *storage.Series, t, st int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	return b.now.batch.Histogram(ref, t, st, h, fh)
}

// Exemplar adds one of the series that was looked up last.
func (b *haBatch) Exemplar(ref *storage.Series, e exemplar.Exemplar) error {
	return b.now.batch.Exemplar(ref, e)
}

// Commit makes all parts durable. After an error some may be.
func (b *haBatch) Commit(ctx context.Context) error {
	var first error
	for _, p := range b.parts {
		switch {
		case first != nil:
			p.batch.Release()
		case p.replica == "":
			first = p.batch.Commit(ctx)
		default:
			first = b.ha.Replicas.Commit(ctx, p.stored, replicas.ClusterName{Tenant: b.tenant, Cluster: p.cluster}, p.replica)
		}
	}
	return first
}

// Release gives up all parts.
func (b *haBatch) Release() {
	for _, p := range b.parts {
		p.batch.Release()
	}
}
