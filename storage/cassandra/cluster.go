package cassandra

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gocql/gocql"
)

// Node is a node of the cluster, as reported by another node.
type Node struct {
	// Address is the address for clients, as host:port.
	Address string
	// HostID identifies the node. It never changes.
	HostID           string
	DataCenter, Rack string
	// Release is the node's version of Cassandra. Schema is its version of the cluster's schema.
	Release, Schema string
}

// Cluster is the state of the cluster, which Open reads first.
type Cluster struct {
	Name string
	// LocalDC is the data center whose nodes are used.
	LocalDC string
	// Nodes are all nodes in the order of their host IDs, including those that are down.
	Nodes []Node
}

// local returns the nodes of the local data center.
func (c *Cluster) local() []Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n Node) bool { return n.DataCenter != c.LocalDC })
}

// readCluster reads the state of the cluster from the first host that responds.
func (o *Options) readCluster(ctx context.Context) (*Cluster, error) {
	var errs []error
	for _, host := range o.Hosts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		session, err := o.openDirect(host)
		if err == nil {
			var c *Cluster
			c, err = o.describeCluster(ctx, session, host)
			session.Close()
			if err == nil {
				return c, nil
			}
		}
		if errors.Is(err, ErrSettings) {
			return nil, err // Another host would respond in the same way.
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf(
		"cassandra: no host responds; check that Cassandra is running there and accepts CQL connections: %w",
		oneLine(errs),
	)
}

// openDirect opens a session with a single node.
func (o *Options) openDirect(host string) (*gocql.Session, error) {
	watch := &connectWatch{}
	c, err := o.clusterConfig(watch, host)
	if err != nil {
		return nil, err
	}
	c.NumConns = 1
	c.DisableInitialHostLookup = true
	c.Events.DisableNodeStatusEvents = true
	c.Events.DisableTopologyEvents = true
	c.Events.DisableSchemaEvents = true
	session, err := gocql.NewSession(*c)
	if err != nil {
		return nil, watch.explainError(o, fmt.Errorf("%s: %w", host, err))
	}
	return session, nil
}

// describeCluster reads the state of the cluster from the node of session, whose address is host.
func (o *Options) describeCluster(ctx context.Context, session *gocql.Session, host string) (*Cluster, error) {
	var c Cluster
	var local Node
	var id gocql.UUID
	var schema gocql.UUID
	var address net.IP
	var port int
	// system_views and system.peers_v2 exist since Cassandra 4.0.
	err := session.Query(
		"SELECT cluster_name, host_id, data_center, rack, release_version, schema_version, rpc_address, rpc_port "+
			"FROM system.local",
	).
		WithContext(ctx).Scan(&c.Name, &id, &local.DataCenter, &local.Rack, &local.Release, &schema, &address, &port)
	if isInvalid(err) {
		return nil, newRefusal("Cassandra is older than 4.0, the oldest supported release: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read system.local: %w", err)
	}
	local.HostID, local.Schema = id.String(), schema.String()
	local.Address = net.JoinHostPort(address.String(), strconv.Itoa(port))
	c.Nodes = append(c.Nodes, local)
	peers := session.Query(
		"SELECT host_id, data_center, rack, release_version, schema_version, native_address, native_port FROM " +
			"system.peers_v2",
	).
		WithContext(ctx).Iter()
	var n Node
	for peers.Scan(&id, &n.DataCenter, &n.Rack, &n.Release, &schema, &address, &port) {
		n.HostID, n.Schema = id.String(), schema.String()
		n.Address = net.JoinHostPort(address.String(), strconv.Itoa(port))
		c.Nodes = append(c.Nodes, n)
	}
	if err := peers.Close(); err != nil {
		return nil, fmt.Errorf("read system.peers_v2: %w", err)
	}
	if len(c.Nodes) == 1 {
		// The node may be reached through a forwarded port while it advertises another address.
		c.Nodes[0].Address = host
	}
	slices.SortFunc(c.Nodes, func(a, b Node) int { return strings.Compare(a.HostID, b.HostID) })
	if c.LocalDC = o.LocalDC; c.LocalDC == "" {
		c.LocalDC = local.DataCenter
	}
	if len(c.local()) == 0 {
		return nil, newRefusal("no node is in data center %q; the cluster has %s",
			c.LocalDC, strings.Join(c.dataCenters(), ", "))
	}
	return &c, nil
}

func (c *Cluster) dataCenters() []string {
	var dcs []string
	for _, n := range c.Nodes {
		dcs = append(dcs, n.DataCenter)
	}
	slices.Sort(dcs)
	return slices.Compact(dcs)
}

// nodesIn returns the number of nodes per data center.
func (c *Cluster) nodesIn() map[string]int {
	count := map[string]int{}
	for _, n := range c.Nodes {
		count[n.DataCenter]++
	}
	return count
}

// contactHosts returns the hosts to which a session connects first, and again after all nodes were down. These are the
// configured hosts, whose names may resolve to other addresses by then. If LocalDC is set, the discovered addresses of
// the nodes in it are added, because the configured hosts may all be in other data centers.
func (o *Options) contactHosts(c *Cluster) []string {
	hosts := slices.Clone(o.Hosts)
	if o.LocalDC == "" {
		return hosts
	}
	for _, n := range c.local() {
		if !slices.Contains(hosts, n.Address) {
			hosts = append(hosts, n.Address)
		}
	}
	return hosts
}

// connectWatch keeps the last connection error, because gocql returns it only as text.
type connectWatch struct {
	mu  sync.Mutex
	err error
}

func (w *connectWatch) ObserveConnect(c gocql.ObservedConnect) {
	if c.Err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = c.Err
}

// explainError returns the error for a session that couldn't be opened, with the remedy.
func (w *connectWatch) explainError(o *Options, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var request gocql.RequestError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case w.err == nil:
		return err
	case errors.As(w.err, &request) && request.Code() == gocql.ErrCodeCredentials,
		errors.As(w.err, &request) && request.Code() == gocql.ErrCodeUnauthorized:
		return loginRefusal{newRefusal("login failed for user %q; check the username and the password: %w",
			o.Username, w.err)}
	case strings.HasPrefix(w.err.Error(), "authentication required"):
		return loginRefusal{newRefusal("Cassandra requires a username and a password, but none are set")}
	case errors.As(w.err, &certificate):
		return newRefusal("TLS: the node's certificate isn't trusted; check the CA file and the server name: %w", w.err)
	case errors.As(w.err, &record):
		return newRefusal("TLS: the node doesn't use TLS on this port; disable TLS, or use the TLS port: %w", w.err)
	default:
		return err
	}
}

// oneLine joins errors into one line.
func oneLine(errs []error) error {
	joined := errs[0]
	for _, err := range errs[1:] {
		joined = fmt.Errorf("%w; %w", joined, err)
	}
	return joined
}
