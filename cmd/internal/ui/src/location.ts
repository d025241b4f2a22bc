// The part of the page's address after the #: a view and its parameters, so that every view can be shared.
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

/** href returns the link to a view. */
export function href(view: string, params: URLSearchParams | Record<string, string> = {}): string {
  const text = String(params instanceof URLSearchParams ? params : new URLSearchParams(params));
  return `#/${view}${text ? '?' + text : ''}`;
}

/** go opens a view. With replace, it replaces the current entry in the browser's history. */
export function go(view: string, params: URLSearchParams | Record<string, string>, replace = false): void {
  const to = href(view, params);
  if (to === location.hash) return;
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  window.dispatchEvent(new Event('hashchange'));
}

/** usePlace returns the current view and follows changes of the address. */
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
