// Queries that this browser remembers: those that ran last, and those that somebody saved. They leave it by links only.

export interface Remembered {
  recent: string[];
  saved: string[];
}

const most = 50;

const keyOf = (user: string) => 'cassia.queries' + (user && '.' + user);

/** remembered reads them; what isn't theirs, or broken, is nothing. */
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
    // The browser keeps nothing, or has no room: then they are gone with the tab.
  }
  return all;
}

/** ran puts queries before those that ran earlier, each once. */
export function ran(user: string, queries: string[]): Remembered {
  const old = remembered(user);
  const asked = queries.map((q) => q.trim()).filter(Boolean);
  return keep(user, { ...old, recent: [...new Set([...asked, ...old.recent])].slice(0, most) });
}

/** save keeps a query until it is saved no longer. */
export function save(user: string, query: string, saved: boolean): Remembered {
  const old = remembered(user);
  const others = old.saved.filter((q) => q !== query);
  return keep(user, { ...old, saved: saved && query.trim() ? [query, ...others].slice(0, most) : others });
}

/** forget leaves nothing but what is saved. */
export function forget(user: string): Remembered {
  return keep(user, { ...remembered(user), recent: [] });
}
