// Small components that multiple views use.
import type { ComponentChildren, RefObject } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from './api';

export function Panel(props: { title?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; class?: string; at?: RefObject<HTMLElement> | undefined }) {
  return (
    <section class={`panel ${props.class ?? ''}`} ref={props.at ?? null}>
      {(props.title || props.aside) && (
        <header class="panel-head">
          {props.title && <h2>{props.title}</h2>}
          {props.aside && <div class="aside">{props.aside}</div>}
        </header>
      )}
      {props.children}
    </section>
  );
}

/** Scroll contains elements that may be wider than the window. It can be scrolled with the keyboard. */
export function Scroll(props: { label: string; class?: string; children: ComponentChildren }) {
  return <div class={`scroll ${props.class ?? ''}`} tabIndex={0} role="region" aria-label={props.label}>{props.children}</div>;
}

/** Stat is a tile with one number. bad highlights a number that needs attention. */
export function Stat(props: { name: string; value: ComponentChildren; note?: ComponentChildren; bad?: boolean }) {
  return (
    <div class={`stat ${props.bad ? 'is-bad' : ''}`}>
      <div class="stat-name">{props.name}</div>
      <div class="stat-value">{props.value}</div>
      <div class="stat-note">{props.note || '\u00a0'}</div>
    </div>
  );
}

export type Tone = 'error' | 'warning' | 'info' | 'ok';

const marks: Record<Tone, string> = { error: '✕', warning: '!', info: 'i', ok: '✓' };

/** Notice shows a message with a tone. */
export function Notice(props: { tone: Tone; title?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class={`notice ${props.tone}`} role={props.tone === 'error' ? 'alert' : undefined}>
      <span class="mark" aria-hidden="true">{marks[props.tone]}</span>
      <div class="notice-text">
        {props.title && <strong>{props.title}</strong>}
        {props.children && <div>{props.children}</div>}
      </div>
    </div>
  );
}

const advice: Record<number, string> = {
  0: 'If Cassia has stopped, look at its log and start it again.',
  403: 'Ask an administrator for access: the roles and tenants of each user are set in --auth.file.',
  404: 'This process doesn’t serve this request. With Cassandra, use a process started with --target=all or --target=read.',
  429: 'The tenant has reached a limit. Wait a moment, or look up its limits under Tenants.',
  503: 'Cassia can’t answer at the moment. After a start it first loads unsealed samples into memory. Try again in a few seconds.',
};

// The server's errors for queries that use too many resources. Other rejected queries have different errors.
const tooMuch = /query (needs too much|is too large|exceeds)|too many samples|exceeded maximum resolution/;

/** adviceFor returns the remedy for an error, or "" if the error itself is sufficient. */
export function adviceFor(error: ApiError): string {
  if (tooMuch.test(error.message)) return 'Reduce the query: select fewer series, a shorter range or a longer step.';
  return advice[error.status] ?? '';
}

/** Failure shows an error from the server with its remedy. */
export function Failure(props: { error: unknown; before?: string; again?: () => void }) {
  const error = props.error instanceof ApiError ? props.error : new ApiError(-1, '', String(props.error));
  return (
    <Notice tone="error" title={(props.before ?? '') + error.message}>
      {adviceFor(error)}
      {props.again && <button type="button" class="link" onClick={props.again}>Try again</button>}
    </Notice>
  );
}

/** Failures shows the load errors of a view, without duplicates. */
export function Failures({ of }: { of: { error?: unknown; again: () => void }[] }) {
  const failed = of.filter((l) => l.error);
  const text = (l: { error?: unknown }) => (l.error instanceof Error ? l.error.message : String(l.error));
  const distinct = failed.filter((l, i) => failed.findIndex((o) => text(o) === text(l)) === i);
  return <>{distinct.map((l) => <Failure key={text(l)} error={l.error} again={() => failed.forEach((o) => text(o) === text(l) && o.again())} />)}</>;
}

export function Empty(props: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      <div class="empty-text">{props.children}</div>
    </div>
  );
}

/** Loaded is the state of useLoad. While data are reloaded, the last data stay available. */
export interface Loaded<T> {
  data?: T;
  error?: unknown;
  loading: boolean;
  again: () => void;
}

/**
 * useLoad loads immediately, when what changes, and at the interval every (in milliseconds) while the tab is visible.
 */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, what: unknown[], every = 0): Loaded<T> {
  const [state, set] = useState<{ data?: T; error?: unknown; loading: boolean }>({ loading: true });
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((t) => t + 1), []);
  const key = JSON.stringify(what);
  const loadedKey = useRef('');
  useEffect(() => {
    const stop = new AbortController();
    const kept = loadedKey.current === key;
    set((s) => (kept ? { ...s, loading: true } : { loading: true }));
    load(stop.signal).then(
      (data) => {
        loadedKey.current = key;
        if (!stop.signal.aborted) set({ data, loading: false });
      },
      (error: unknown) => {
        if (!stop.signal.aborted) set((s) => ({ ...s, error, loading: false }));
      },
    );
    return () => stop.abort();
  }, [key, turn]);
  useEffect(() => {
    if (!every) return;
    const timer = setInterval(() => document.hidden || again(), every);
    return () => clearInterval(timer);
  }, [every, again]);
  return { ...state, again };
}

/** missing returns the placeholder for a value that is loading or couldn't be loaded. */
export const missing = (l: { error?: unknown }) => (l.error ? '–' : '…');

/**
 * useReveal scrolls an element into view when the value changes to a non-empty one and the page is ready, unless the
 * top of the element is visible.
 */
export function useReveal<E extends HTMLElement>(value: unknown, ready = true) {
  const at = useRef<E>(null);
  const before = useRef(value);
  useEffect(() => {
    if (value === before.current || (value && !ready)) return;
    before.current = value;
    const top = at.current?.getBoundingClientRect().top;
    if (value && top !== undefined && (top < 0 || top > innerHeight * 0.7)) at.current!.scrollIntoView({ block: 'start' });
  });
  return at;
}

/** useOutside calls leave after a click outside of the element, and after Escape. */
export function useOutside<E extends HTMLElement>(open: boolean, leave: () => void) {
  const at = useRef<E>(null);
  useEffect(() => {
    if (!open) return;
    const click = (e: Event) => {
      if (at.current && !e.composedPath().includes(at.current)) leave();
    };
    const key = (e: KeyboardEvent) => {
      if (e.key === 'Escape') {
        leave();
        at.current?.querySelector('button')?.focus();
      }
    };
    document.addEventListener('pointerdown', click);
    document.addEventListener('keydown', key);
    return () => {
      document.removeEventListener('pointerdown', click);
      document.removeEventListener('keydown', key);
    };
  }, [open]);
  return at;
}

/** Tabs selects which part of a view is shown. */
export function Tabs<K extends string>(props: { tabs: [K, ComponentChildren][]; at: K; onChange: (k: K) => void; label: string }) {
  const move = (e: KeyboardEvent) => {
    const step = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    const i = props.tabs.findIndex(([k]) => k === props.at);
    const next = props.tabs[(i + step + props.tabs.length) % props.tabs.length]!;
    props.onChange(next[0]);
    const list = e.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>('[aria-selected=true]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={props.label} onKeyDown={move}>
      {props.tabs.map(([k, name]) => (
        <button type="button" role="tab" key={k} aria-selected={k === props.at} tabIndex={k === props.at ? 0 : -1} onClick={() => props.onChange(k)}>
          {name}
        </button>
      ))}
    </div>
  );
}

/** Meter is a bar that shows a share between 0 and 1. */
export function Meter(props: { share: number; tone?: string; label?: string }) {
  const width = `${Math.min(100, Math.max(props.share > 0 ? 0.5 : 0, props.share * 100))}%`;
  return (
    <div class="meter" role="img" aria-label={props.label ?? `${Math.round(props.share * 100)}%`}>
      <div class={`meter-fill ${props.tone ?? ''}`} style={{ width }} />
    </div>
  );
}
