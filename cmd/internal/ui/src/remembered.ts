// Queries saved in this browser: the recent ones, and those that the user saved. They aren't sent anywhere, except in
// links.

export interface Remembered {
  recent: string[];
  saved: string[];
}

const most = 50;

const keyOf = (user: string) => 'cassia.queries' + (user && '.' + user);

/** remembered reads the queries. Invalid entries are ignored. */
export function remembered(user: string): Remembered {
  const list = (v: unknown) => (Array.isArray(v) ? v.filter((q): q is string => typeof q === 'string') : []);
  try {
    const found = JSON.parse(localStorage.getItem(keyOf(user)) ?? '{}') as Partial<Remembered> | null;
    return { recent: list(found?.recent), saved: list(found?.saved) };
  } catch {
    return { recent: [], saved: [] };
  }
}

function keep(user: string, all: Remembered): Remembered {
  try {
    localStorage.setItem(keyOf(user), JSON.stringify(all));
  } catch {
    // The browser doesn't allow storage, or it is full. The queries are then lost when the tab is closed.
  }
  return all;
}

/** ran adds queries at the start of the recent ones, without duplicates. */
export function ran(user: string, queries: string[]): Remembered {
  const old = remembered(user);
  const asked = queries.map((q) => q.trim()).filter(Boolean);
  return keep(user, { ...old, recent: [...new Set([...asked, ...old.recent])].slice(0, most) });
}

/** save saves a query, or removes it from the saved ones. */
export function save(user: string, query: string, saved: boolean): Remembered {
  const old = remembered(user);
  const others = old.saved.filter((q) => q !== query);
  return keep(user, { ...old, saved: saved && query.trim() ? [query, ...others].slice(0, most) : others });
}

/** forget removes all queries except the saved ones. */
export function forget(user: string): Remembered {
  return keep(user, { ...remembered(user), recent: [] });
}
