// Explore: queries, and their results as a graph, as a table, and with an explanation.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { call } from './api';
import type { ViewProps } from './app';
import { address, asked, letter, maxQueries, type Asked } from './asked';
import { Editor } from './editor';
import { Explain } from './explain';
import { count, plural, selector } from './format';
import { Lines, maxLines } from './lines';
import { go, href } from './location';
import { Empty, Failure, Notice, Tabs, useLoad } from './parts';
import { TimePicker } from './picker';
import { Completion } from './promclient';
import { DataTable, download } from './datatable';
import { History, QueryMenu } from './querytools';
import { ran, save } from './remembered';
import type { QueryData, Result } from './results';
import { bounds, instant, points, type Bounds } from './time';

const maxRows = 1000;

export function Explore({ session, tenant, place }: ViewProps) {
  const now = useMemo(() => asked(place.params), [place]);
  const [drafts, setDrafts] = useState(now.queries);
  const [results, setResults] = useState<Result[]>([]);
  const [turn, setTurn] = useState(0);
  const [every, setEvery] = useState(0);
  const [wrong, setWrong] = useState('');
  const completion = useMemo(() => new Completion(tenant), [tenant]);
  // The editors contain what the user types. A new edition makes them show a text that was changed elsewhere.
  const [edition, setEdition] = useState(0);
  const replace = (queries: string[]) => {
    setDrafts(queries);
    setEdition((n) => n + 1);
  };
  const own = useRef(now.queries.join('\0'));
  useEffect(() => {
    const asked = now.queries.join('\0');
    if (asked !== own.current) replace(now.queries);
    own.current = asked;
  }, [now.queries.join('\0')]);

  const change = (part: Partial<Asked>) => {
    if (part.queries) replace(part.queries);
    const next = address({ ...now, queries: drafts, ...part }, place.params.get('tenant'));
    own.current = asked(next).queries.join('\0');
    go('explore', next);
  };
  const run = () => {
    change({});
    ran(session.user, drafts);
    setTurn((t) => t + 1);
  };

  // swapped swaps two queries, including whether they are hidden.
  const swapped = (i: number, k: number) => {
    const queries = [...drafts];
    [queries[i], queries[k]] = [queries[k]!, queries[i]!];
    const moved = (list: number[]) => list.map((h) => (h === i ? k : h === k ? i : h));
    change({ queries, hidden: moved(now.hidden), right: moved(now.right) });
  };
  const prettify = async (i: number) => {
    setWrong('');
    try {
      const { data } = await call<string>('format_query', { query: drafts[i] }, { tenant, post: true });
      replace(drafts.map((o, k) => (k === i ? data : o)));
    } catch (err) {
      setWrong(err instanceof Error ? err.message : String(err));
    }
  };
  const without = (i: number) => {
    const less = (list: number[]) => list.flatMap((h) => (h === i ? [] : h > i ? [h - 1] : [h]));
    return { queries: drafts.filter((_, k) => k !== i), hidden: less(now.hidden), right: less(now.right) };
  };
  const choices = (text: string, i: number): [string, (() => void) | undefined][] => {
    const hidden = now.hidden.includes(i);
    const room = drafts.length < maxQueries && text.trim();
    return [
      ['Prettify', text.trim() ? () => void prettify(i) : undefined],
      ['Duplicate', room ? () => change({ queries: [...drafts, text] }) : undefined],
      ['Move up', i > 0 ? () => swapped(i, i - 1) : undefined],
      ['Move down', i < drafts.length - 1 ? () => swapped(i, i + 1) : undefined],
      [hidden ? 'Show' : 'Hide', () => change({ hidden: hidden ? now.hidden.filter((h) => h !== i) : [...now.hidden, i] })],
      [now.right.includes(i) ? 'Use left axis' : 'Use right axis', () => change({ right: now.right.includes(i) ? now.right.filter((h) => h !== i) : [...now.right, i] })],
      ['Save in this browser', text.trim() ? () => void save(session.user, text.trim(), true) : undefined],
    ];
  };

  // Run the queries in the address, not the drafts in the editors.
  const kind = now.tab;
  const key = JSON.stringify([now.queries, now.range, now.step, now.resolution, now.hidden, kind, turn]);
  useEffect(() => {
    const stop = new AbortController();
    const b = bounds(now.range, points, now.step);
    setWrong(typeof b === 'string' ? b : '');
    if (typeof b === 'string') return;
    const asking = now.queries.map((query, i) => (now.hidden.includes(i) ? '' : query));
    setResults((old) => asking.map((query, i) => (query.trim() ? { ...old[i], query, loading: true } : { query, loading: false })));
    asking.forEach((query, i) => {
      if (!query.trim()) return;
      ask(query, now, b, tenant, stop.signal).then(
        (r) => put(i, r),
        (error: unknown) => stop.signal.aborted || put(i, { query, error, loading: false }),
      );
    });
    const put = (i: number, r: Result) => setResults((old) => old.map((o, k) => (k === i ? r : o)));
    return () => stop.abort();
  }, [key]);

  useEffect(() => {
    if (!every) return;
    const timer = setInterval(() => document.hidden || setTurn((t) => t + 1), every * 1000);
    return () => clearInterval(timer);
  }, [every]);

  const shown = results.filter((r) => r.query.trim());
  return (
    <>
      <h1 class="hidden">Explore</h1>
      <div class="toolbar">
        <TimePicker range={now.range} onChange={(range) => change({ range })} />
        <label class="field">
          <span>Resolution</span>
          <select value={now.resolution} onChange={(e) => change({ resolution: e.currentTarget.value })}>
            {['auto', 'exact', ...session.resolutions].map((r) => <option key={r}>{r}</option>)}
          </select>
        </label>
        <label class="field">
          <span>Step</span>
          <select value={now.step} onChange={(e) => change({ step: e.currentTarget.value })}>
            {['', '15s', '1m', '5m', '15m', '1h', '6h', '1d'].map((s) => <option key={s} value={s}>{s || 'auto'}</option>)}
          </select>
        </label>
        <label class="field">
          <span>Auto-refresh</span>
          <select value={every} onChange={(e) => setEvery(Number(e.currentTarget.value))}>
            {[0, 10, 30, 60].map((s) => <option key={s} value={s}>{s ? s + 's' : 'off'}</option>)}
          </select>
        </label>
        <span class="grow" />
        <Share />
        <button class="primary" onClick={run} title="Ctrl+Enter" aria-keyshortcuts="Control+Enter">Run</button>
      </div>
      {wrong && <Notice tone="error" title={wrong} />}
      <ol class="queries">
        {drafts.map((text, i) => (
          <li class={`query panel ${now.hidden.includes(i) ? 'off' : ''}`} key={i}>
            <span class="query-letter">{letter(i)}</span>
            <Editor
              value={text} edition={edition} label={`Query ${letter(i)}`} completion={completion} onRun={run}
              onChange={(t) => setDrafts((all) => all.map((o, k) => (k === i ? t : o)))}
            />
            <QueryMenu letter={letter(i)} choices={choices(text, i)} />
            {drafts.length > 1 && (
              <button class="icon-button" aria-label={`Remove query ${letter(i)}`} title="Remove" onClick={() => change(without(i))}>✕</button>
            )}
          </li>
        ))}
      </ol>
      <div class="under-queries">
        <button class="link" disabled={drafts.length >= maxQueries} onClick={() => setDrafts((all) => [...all, ''])}>+ Add query</button>
        <History user={session.user} choose={(q) => change({ queries: [...drafts.filter((d) => d.trim()), q].slice(-maxQueries), hidden: [], right: [] })} />
        <span class="hint"><kbd>Enter</kbd> to run, <kbd>Shift</kbd>+<kbd>Enter</kbd> for a new line, <kbd>Ctrl</kbd>+<kbd>Space</kbd> to autocomplete</span>
      </div>
      {shown.length || (!results.length && now.queries.some((q) => q.trim())) ? (
        <Results results={results} now={now} tenant={tenant} change={change} />
      ) : (
        <Start session={session} tenant={tenant} choose={(q) => change({ queries: [q], hidden: [], right: [] })} />
      )}
    </>
  );
}

async function ask(query: string, a: Asked, b: Bounds, tenant: string, signal: AbortSignal): Promise<Result> {
  const options = { tenant, signal, post: true };
  const common = { query, resolution: a.resolution, stats: 'all' };
  if (a.tab === 'table') {
    const end = instant(a.range.to, Date.now() / 1000);
    const answer = await call<QueryData>('query', { ...common, time: end, limit: maxRows }, options);
    return { query, answer, loading: false };
  }
  const answer = await call<QueryData>('query_range', { ...common, start: b.start, end: b.end, step: b.step, limit: maxLines }, options);
  return { query, answer, bounds: b, loading: false };
}

function Results(props: { results: Result[]; now: Asked; tenant: string; change: (part: Partial<Asked>) => void }) {
  const { results, now, tenant, change } = props;
  const loading = results.some((r) => r.loading);
  return (
    <section class="panel results" aria-busy={loading} aria-label="Results">
      <div class="results-head">
        <Tabs label="Result view" tabs={[['graph', 'Graph'], ['table', 'Table'], ['explain', 'Explain'], ['json', 'JSON']]} at={now.tab} onChange={(tab) => change({ tab })} />
        <div class="answered">{results.map((r, i) => <Answered key={i} result={r} letter={results.length > 1 ? letter(i) : ''} />)}</div>
      </div>
      <div class={`progress ${loading ? 'on' : ''}`} />
      {results.map((r, i) => <Words key={i} result={r} letter={results.length > 1 ? letter(i) : ''} toTable={() => change({ tab: 'table' })} />)}
      {now.tab === 'graph' && <Lines results={results} now={now} tenant={tenant} change={change} />}
      {now.tab === 'table' && results.map((r, i) => <DataTable key={i} result={r} letter={results.length > 1 ? letter(i) : ''} tenant={tenant} replace={(query) => change({ queries: now.queries.map((q, k) => (k === i ? query : q)) })} />)}
      {now.tab === 'json' && results.map((r, i) => r.answer && <Json key={i} result={r} letter={results.length > 1 ? letter(i) : ''} />)}
      {now.tab === 'explain' && results.map((r, i) => <Explain key={i} result={r} letter={results.length > 1 ? letter(i) : ''} />)}
    </section>
  );
}

// A longer text makes the browser slow. The download contains all of it.
const maxText = 200_000;

/** Json shows the response as the API returned it. */
function Json({ result, letter }: { result: Result; letter: string }) {
  const { data, warnings, infos } = result.answer!;
  const text = JSON.stringify({ status: 'success', data, ...(warnings.length && { warnings }), ...(infos.length && { infos }) }, null, 1);
  return (
    <>
      <div class="table-tools">
        {letter && <b>{letter}</b>}
        <span class="small grow">{text.length > maxText ? `First ${count(maxText)} of ${count(text.length)} characters` : `${count(text.length)} characters`}</span>
        <button onClick={() => download(text, `cassia-${letter || 'A'}.json`, 'application/json')}>Download JSON</button>
      </div>
      <pre class="json" tabIndex={0} role="region" aria-label={letter ? `JSON response of query ${letter}` : 'JSON response'}>{text.slice(0, maxText)}</pre>
    </>
  );
}

/** Answered shows a badge with the resolution of a response and its duration. */
function Answered({ result, letter }: { result: Result; letter: string }) {
  const { answer } = result;
  if (!answer) return null;
  const scalar = answer.data.resultType === 'scalar' || answer.data.resultType === 'string';
  return (
    <span class="badge" title="Resolution read, series returned, response time">
      {letter && <b>{letter} </b>}
      {answer.resolution && <><b class="res">{answer.resolution}</b> · </>}
      {scalar ? answer.data.resultType : plural(shownOf(result), 'series')} · {Math.round(answer.milliseconds)} ms
    </span>
  );
}

// The error of a range query whose expression has a value only at an instant, such as a range vector or a string.
const instantOnly = /invalid expression type "(.*)" for range query/;

/** Words shows the errors, warnings and infos of a response. If no graph can show the result, it links to the table. */
function Words({ result, letter, toTable }: { result: Result; letter: string; toTable: () => void }) {
  const before = letter ? letter + ': ' : '';
  const kind = instantOnly.exec(result.error instanceof Error ? result.error.message : '')?.[1];
  if (kind) {
    return (
      <Notice tone="info" title={`${before}A ${kind} can only be shown as a table.`}>
        <button type="button" class="link" onClick={toTable}>Show table</button>
      </Notice>
    );
  }
  if (result.error) return <Failure error={result.error} before={before} />;
  const { warnings = [], infos = [] } = result.answer ?? {};
  return (
    <>
      {warnings.map((w) => <Notice key={w} tone="warning" title={before + w}>{/truncated due to limit/.test(w) && `Only the first ${count(shownOf(result))} series are shown. Aggregate them, or add label matchers.`}</Notice>)}
      {infos.map((w) => <Notice key={w} tone="info" title={before + w} />)}
    </>
  );
}

const shownOf = (r: Result) => (Array.isArray(r.answer?.data.result) ? r.answer.data.result.length : 0);

function Share() {
  const [copied, set] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(location.href).then(() => {
      set(true);
      setTimeout(() => set(false), 1500);
    });
  };
  // Browsers provide the clipboard only with TLS. The address bar contains the same link.
  if (!navigator.clipboard) return null;
  return <button onClick={copy} title="Copy a link to these queries, time range and settings">{copied ? 'Copied' : 'Copy link'}</button>;
}

// This number of names fits without scrolling.
const shownNames = 24;

/** Start is shown before the first query is run. */
function Start(props: { session: ViewProps['session']; tenant: string; choose: (q: string) => void }) {
  const { session, tenant } = props;
  const now = Math.floor(Date.now() / 1000);
  const names = useLoad(
    (signal) => call<string[]>('label/__name__/values', { start: now - 86400, end: now, limit: shownNames + 1 }, { tenant, signal }).then((a) => a.data),
    [tenant],
  );
  if (names.error) return <Failure error={names.error} again={names.again} />;
  if (!names.data) return <div class="panel start" />;
  if (!names.data.length) {
    const self = session.self_tenant;
    return (
      <div class="panel start">
        <Empty title={tenant ? `Tenant “${tenant}” has no samples from the last day` : 'No tenant selected'}>
          <p>To send samples here, add this to your Prometheus configuration:</p>
          <pre>{`remote_write:\n  - url: ${new URL('api/v1/write', location.href)}${tenant && tenant !== 'default' ? `\n    headers: {X-Scope-OrgID: ${tenant}}` : ''}`}</pre>
          {self && tenant !== self && session.tenants.includes(self) && (
            <p>Or explore <a href={`#/explore?tenant=${encodeURIComponent(self)}`}>Cassia’s own metrics</a> in tenant <code>{self}</code>.</p>
          )}
        </Empty>
      </div>
    );
  }
  return (
    <div class="panel start">
      <h2>Metrics from the last day</h2>
      <ul class="chips">
        {names.data.slice(0, shownNames).map((name) => (
          <li key={name}><button onClick={() => props.choose(selector({ __name__: name }))}>{name}</button></li>
        ))}
      </ul>
      <p class="small">
        {names.data.length > shownNames ? `Only the first ${shownNames} by name are shown. ` : ''}
        Click a metric or enter a query. To search all metrics by name or help text, go to <a href={href('metrics', tenant ? { tenant } : {})}>Metrics</a>.
      </p>
    </div>
  );
}
