package ui

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/cassia-db/cassia/cmd/internal/server"
	"github.com/cassia-db/cassia/storage/tenant"
)

// maxTenants is the max number of listed tenants. If there are more, those with the most series are listed.
const maxTenants = 500

// tenantsAnswer is the response of the endpoint tenants.
type tenantsAnswer struct {
	Tenants any `json:"tenants"`
	// All is the total number of tenants.
	All int `json:"all"`
}

func (a *api) tenants(r *http.Request) (any, error) {
	all, every := []string{}, true
	if u := server.UserOf(r.Context()); u != nil {
		all, every = u.Tenants()
	}
	if every {
		known, err := a.Store.KnownTenants(r.Context())
		if err != nil {
			return nil, err
		}
		all = append(append(all, tenant.Default), known...)
		slices.Sort(all)
		all = slices.Compact(all)
	}
	shown := slices.Clone(all)
	slices.SortStableFunc(shown, func(x, y string) int {
		return cmp.Compare(a.Store.ActiveSeries(y), a.Store.ActiveSeries(x))
	})
	return tenantsAnswer{Tenants: a.Limits(shown[:min(len(shown), maxTenants)]), All: len(all)}, nil
}
