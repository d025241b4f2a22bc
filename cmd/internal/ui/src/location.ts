// The place after the # of the page's address: a view and its parameters, so that every view can be shared.
import { useEffect, useState } from 'preact/hooks';

export interface Place {
  view: string;
  params: URLSearchParams;
}

export function place(): Place {
  const text = location.hash.replace(/^#\/?/, '');
  const cut = text.indexOf('?');
  const view = cut < 0 ? text : text.slice(0, cut);
  return { view: view || 'explore', params: new URLSearchParams(cut < 0 ? '' : text.slice(cut + 1)) };
}

/** href leads to a view. */
export function href(view: string, params: URLSearchParams | Record<string, string> = {}): string {
  const text = String(params instanceof URLSearchParams ? params : new URLSearchParams(params));
  return `#/${view}${text ? '?' + text : ''}`;
}

/** go leads there; with replace, the browser's way back leaves out where it was. */
export function go(view: string, params: URLSearchParams | Record<string, string>, replace = false): void {
  const to = href(view, params);
  if (to === location.hash) return;
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  window.dispatchEvent(new Event('hashchange'));
}

/** usePlace follows the address. */
export function usePlace(): Place {
  const [now, set] = useState(place);
  useEffect(() => {
    const changed = () => set(place());
    window.addEventListener('hashchange', changed);
    window.addEventListener('popstate', changed);
    return () => {
      window.removeEventListener('hashchange', changed);
      window.removeEventListener('popstate', changed);
    };
  }, []);
  return now;
}
