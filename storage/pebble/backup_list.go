package pebble

import (
	"fmt"
	"path/filepath"
	"slices"
)

// readableOfStore returns the backups of a store whose lists can be read, and a text for each backup whose list can't be: of which store
// that is isn't known, so it isn't used, doesn't count and isn't removed.
func readableOfStore(folder string, names []string, store string) (own, unreadable []string) {
	for _, name := range names {
		list, err := readList(filepath.Join(folder, name))
		switch {
		case err != nil:
			unreadable = append(unreadable, fmt.Sprintf("backup %s was passed over: %s; if it isn't needed, remove its directory", name, err))
		case list.Store == "" || list.Store == store:
			own = append(own, name)
		}
	}
	return own, unreadable
}

// orOlderThanUnreadable adds to why the list of a backup can't be read which readable one was made before it.
func orOlderThanUnreadable(err error, folder, name string) error {
	names, _, listErr := backups(folder)
	if listErr != nil {
		return err
	}
	names = names[:max(0, slices.Index(names, name))]
	names = slices.DeleteFunc(names, func(name string) bool { return !isWhole(folder, name) })
	if len(names) == 0 {
		return fmt.Errorf("%w; there is no older backup", err)
	}
	if several := oneStore(folder, names); several != nil {
		return fmt.Errorf("%w; %w", err, several)
	}
	return fmt.Errorf("%w; --backup=%s is the one before", err, names[len(names)-1])
}
