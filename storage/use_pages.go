package storage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/paged"
)

// ErrOthersLackPages means that processes which don't read pages use the store, or did lately.
var ErrOthersLackPages = errors.New("storage: processes that don't support pages use the store")

// openRows decides where the rows of series stand. One process that has an engine writes pages, which it has announced by the store's format.
// Where several write rows, or rows vanish by themselves, the store is one that was created with pages, or UsePages was called:
// the processes of releases before read none. All processes of this release read them.
func (s *Store) openRows(have *settings) {
	shared := s.sharesRows()
	s.rows = paged.New(s.eng, paged.Options{
		Shared: shared, Write: !s.opts.ReadOnly && (!shared || have.Format >= formatShared), Least: s.opts.seams.pageSeries,
	})
	s.rows.ListLong(have.Long)
}

// sharesRows reports whether other processes may write rows, too, or rows vanish by themselves.
func (s *Store) sharesRows() bool { return s.opts.Shared || expiresRows(s.eng) }

// firstFormat returns the format of a new store.
func (o *Options) firstFormat() int {
	if o.Shared {
		return formatShared
	}
	return formatFirst
}

// WritesPages reports whether rows of new series are written in pages.
func (s *Store) WritesPages() bool { return s.rows.WritesPages() }

// UsePages has all processes that use the store write rows of new series in pages, this one at once and the others as soon as they look at the
// settings. Releases that don't read pages refuse the store from then on. The error wraps ErrOthersLackPages while processes of such a release
// use it, or may, because they ended without notice less than membership.ProcessLife ago. An error
// that wraps it is also returned where one has come meanwhile: the settings are changed then, and that process must be ended.
func (s *Store) UsePages(ctx context.Context) error {
	switch {
	case s.opts.ReadOnly:
		return engine.ErrBadWrite
	case s.WritesPages():
		return nil
	}
	if err := s.othersReadPages(ctx); err != nil {
		return err
	}
	err := changeSettings(ctx, s.eng, func(have *settings) bool {
		raised := have.Format < formatShared
		have.Format = max(have.Format, formatShared)
		return raised
	})
	if err != nil {
		return err
	}
	s.rows.WritePages()
	if err := s.othersReadPages(ctx); err != nil { // One that read the settings before they were changed may have come meanwhile.
		return fmt.Errorf("pages are enabled now, but a process that started concurrently may not support them; stop it: %w", err)
	}
	return nil
}

// othersReadPages returns an error that names the other processes which haven't stated that they read pages.
func (s *Store) othersReadPages(ctx context.Context) error {
	read := map[string]bool{}
	err := s.member.EachStatement(ctx, func(writer string, value []byte) {
		var k statedKeep
		read[hex.EncodeToString([]byte(writer))] = json.Unmarshal(value, &k) == nil && (k.Pages || k.Leaving)
	})
	if err != nil {
		return fmt.Errorf("storage: reading which processes support pages: %w", err)
	}
	processes, err := s.member.Processes(ctx)
	if err != nil {
		return err
	}
	var lack []string
	for _, p := range processes {
		if p.Writer != s.member.Writer() && !read[p.Writer] {
			lack = append(lack, fmt.Sprintf("%s (%s, release %s)", p.Name, p.Writer[:8], p.Version))
		}
	}
	if len(lack) > 0 {
		return fmt.Errorf("%w: %s; upgrade them first, or if they have stopped, try again two hours after that", ErrOthersLackPages, strings.Join(lack, ", "))
	}
	return nil
}
