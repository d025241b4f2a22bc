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

// Node is a node of the cluster, as another node sees it.
type Node struct {
	// Address is where clients connect to, as host:port.
	Address string
	// HostID names the node for ever.
	HostID           string
	DataCenter, Rack string
	// Release is the version of its Cassandra; Schema that of the cluster's schema that it has.
	Release, Schema string
}

// Cluster is what Open finds out before anything else.
type Cluster struct {
	Name string
	// LocalDC is the data center whose nodes are talked to.
	LocalDC string
	// Nodes are all nodes, in the order of their host IDs, those that are down included.
	Nodes []Node
}

// local returns the nodes that are talked to.
func (c *Cluster) local() []Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n Node) bool { return n.DataCenter != c.LocalDC })
}

// scout asks the first host that answers about the cluster.
func (o *Options) scout(ctx context.Context) (*Cluster, error) {
	var errs []error
	for _, host := range o.Hosts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		session, err := o.direct(host)
		if err == nil {
			var c *Cluster
			c, err = o.describeCluster(ctx, session, host)
			session.Close()
			if err == nil {
				return c, nil
			}
		}
		if errors.Is(err, ErrSettings) {
			return nil, err // Another host would answer the same.
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("cassandra: no host responds; check that Cassandra is running there and accepts CQL connections: %w", oneLine(errs))
}

// direct opens a session with one node and no other.
func (o *Options) direct(host string) (*gocql.Session, error) {
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
		return nil, watch.explain(o, fmt.Errorf("%s: %w", host, err))
	}
	return session, nil
}

// describeCluster asks the node that session is with, which was reached as host.
func (o *Options) describeCluster(ctx context.Context, session *gocql.Session, host string) (*Cluster, error) {
	var c Cluster
	var local Node
	var id gocql.UUID
	var schema gocql.UUID
	var address net.IP
	var port int
	// system_views and system.peers_v2 came with Cassandra 4.0.
	err := session.Query("SELECT cluster_name, host_id, data_center, rack, release_version, schema_version, rpc_address, rpc_port FROM system.local").
		WithContext(ctx).Scan(&c.Name, &id, &local.DataCenter, &local.Rack, &local.Release, &schema, &address, &port)
	if invalid(err) {
		return nil, refuse("Cassandra is older than 4.0, the oldest supported release: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read system.local: %w", err)
	}
	local.HostID, local.Schema, local.Address = id.String(), schema.String(), net.JoinHostPort(address.String(), strconv.Itoa(port))
	c.Nodes = append(c.Nodes, local)
	peers := session.Query("SELECT host_id, data_center, rack, release_version, schema_version, native_address, native_port FROM system.peers_v2").
		WithContext(ctx).Iter()
	var n Node
	for peers.Scan(&id, &n.DataCenter, &n.Rack, &n.Release, &schema, &address, &port) {
		n.HostID, n.Schema, n.Address = id.String(), schema.String(), net.JoinHostPort(address.String(), strconv.Itoa(port))
		c.Nodes = append(c.Nodes, n)
	}
	if err := peers.Close(); err != nil {
		return nil, fmt.Errorf("read system.peers_v2: %w", err)
	}
	if len(c.Nodes) == 1 {
		// The node may stand behind a port that was forwarded, and announce another address.
		c.Nodes[0].Address = host
	}
	slices.SortFunc(c.Nodes, func(a, b Node) int { return strings.Compare(a.HostID, b.HostID) })
	if c.LocalDC = o.LocalDC; c.LocalDC == "" {
		c.LocalDC = local.DataCenter
	}
	if len(c.local()) == 0 {
		return nil, refuse("no node is in data center %q; the cluster has %s",
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

// nodesIn returns how many nodes each data center has.
func (c *Cluster) nodesIn() map[string]int {
	count := map[string]int{}
	for _, n := range c.Nodes {
		count[n.DataCenter]++
	}
	return count
}

// contacts are where the session begins, and where it looks again when all nodes were gone: the given hosts,
// whose names may lead elsewhere by then. None of them needs to be in a data center that was chosen by name;
// then its nodes are added as they were found.
func (o *Options) contacts(c *Cluster) []string {
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

// connectWatch keeps the last error of connecting: gocql returns it as text only.
type connectWatch struct {
	mu  sync.Mutex
	err error
}

// ObserveConnect implements gocql.ConnectObserver.
func (w *connectWatch) ObserveConnect(c gocql.ObservedConnect) {
	if c.Err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = c.Err
}

// explain returns the error for a session that couldn't be opened, with the remedy.
func (w *connectWatch) explain(o *Options, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var request gocql.RequestError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case w.err == nil:
		return err
	case errors.As(w.err, &request) && request.Code() == gocql.ErrCodeCredentials, errors.As(w.err, &request) && request.Code() == gocql.ErrCodeUnauthorized:
		return loginRefusal{refuse("login failed for user %q; check the username and the password: %w", o.Username, w.err)}
	case strings.HasPrefix(w.err.Error(), "authentication required"):
		return loginRefusal{refuse("Cassandra requires a username and a password, but none are set")}
	case errors.As(w.err, &certificate):
		return refuse("TLS: the node's certificate isn't trusted; check the CA file and the server name: %w", w.err)
	case errors.As(w.err, &record):
		return refuse("TLS: the node doesn't use TLS on this port; disable TLS, or use the TLS port: %w", w.err)
	default:
		return err
	}
}

// oneLine joins errors in one line.
func oneLine(errs []error) error {
	joined := errs[0]
	for _, err := range errs[1:] {
		joined = fmt.Errorf("%w; %w", joined, err)
	}
	return joined
}
