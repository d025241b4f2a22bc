package storage

import (
	"context"
	"slices"
)

// KnownTenants lists the tenants that have rows, or samples in this process' head, sorted.
func (s *Store) KnownTenants(ctx context.Context) ([]string, error) {
	names, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	names = append(names, s.head.Tenants()...)
	slices.Sort(names)
	return slices.Compact(names), nil
}
