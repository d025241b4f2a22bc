// Relabel: the rules for incoming samples, the numbers of dropped samples, and the effect that other rules and
// retentions would have on stored samples.
import { useState } from 'preact/hooks';
import { call } from './api';
import type { ViewProps } from './app';
import { bytes, count, plural } from './format';
import { Empty, Failure, Meter, Notice, Panel, Scroll, Stat, useLoad, useReveal } from './parts';
import { lasting, local, seconds } from './time';

interface Rule {
  number: number;
  text: string;
  dropped_samples: number;
  dropped_exemplars: number;
}

interface Amount {
  series: number;
  samples: number;
  day_bytes: number;
}

interface RuleTrial {
  number: number;
  text: string;
  dropped: Amount;
  changed: Amount;
  examples: { before: string; after: string }[];
}

interface Trial {
  start: string;
  end: string;
  all: Amount;
  dropped: Amount;
  refused: Amount;
  refusal: string;
  changed: Amount;
  merged: number;
  rules: RuleTrial[];
  metrics: number;
  all_metrics: number;
  cut: boolean;
  measured: boolean;
}

interface RetentionTrial {
  resolution: string;
  now: number;
  then: number;
  day_bytes: number;
  bytes_now: number;
  windows: number;
  bytes: number;
  expired_windows: number;
  expired_bytes: number;
  bytes_at_rest: number;
}

interface Answer {
  rules: Trial | null;
  retention: RetentionTrial[];
}

const ranges: [number, string][] = [[3600, '1 hour'], [6 * 3600, '6 hours'], [86400, '1 day'], [7 * 86400, '7 days']];
const resolutions = ['raw', '5m', '1h'];
const example = `- source_labels: [__name__]\n  regex: go_.*\n  action: drop\n`;

export function Relabel({ tenant }: ViewProps) {
  const status = useLoad((signal) => call<{ own: boolean; rules: Rule[] }>('cassia/relabel', {}, { tenant, signal }).then((a) => a.data), [tenant], 10_000);
  const [rules, setRules] = useState(example);
  const [range, setRange] = useState(3600);
  const [kept, setKept] = useState<Record<string, string>>({});
  const [state, setState] = useState<{ answer?: Answer; error?: unknown; loading?: boolean }>({});
  const answer = useReveal<HTMLDivElement>(state.answer);
  const now = status.data?.rules ?? [];
  const retention: Record<string, number> = {};
  let wrong = '';
  for (const res of resolutions) {
    const text = kept[res]?.trim();
    if (!text) continue;
    const value = text === '0' ? 0 : seconds(text);
    if (isNaN(value)) wrong = `Invalid duration “${text}”. Use for example 30d, or 0 to keep data forever.`;
    retention[res] = value;
  }
  const attempt = async (e: Event) => {
    e.preventDefault();
    if (wrong) return;
    setState({ loading: true });
    try {
      const { data } = await call<Answer>('cassia/relabel', {}, { tenant, json: { rules, range_seconds: range, retention } });
      setState({ answer: data });
    } catch (error) {
      setState({ error });
    }
  };
  return (
    <>
      <div class="head-line">
        <h1>Relabel</h1>
        <p>Relabeling rules drop or change the series that tenant <b>{tenant}</b> sends, before they are stored.</p>
      </div>
      <Panel title="Active rules" aside={status.data && now.length > 0 && <span>{status.data.own ? 'for this tenant only' : 'for all tenants without rules of their own'}</span>}>
        {status.error ? <Failure error={status.error} again={status.again} /> : null}
        {status.data && !now.length && <Empty title="No rules apply to this tenant">Rules are read from the file set by <code>--write.relabel-file</code>, in the format of Prometheus’ <code>write_relabel_configs</code>.</Empty>}
        {now.length > 0 && (
          <Scroll label="Active rules">
            <table>
              <thead><tr><th>Rule</th><th class="num">Samples dropped</th><th class="num">Exemplars dropped</th></tr></thead>
              <tbody>
                {now.map((r) => (
                  <tr key={r.number}><td class="mono">{r.number}. {r.text}</td><td class="num">{count(r.dropped_samples)}</td><td class="num">{count(r.dropped_exemplars)}</td></tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </Panel>
      {/* Not before the rules in force, which would move it. */}
      {(status.data || status.error) && <Panel title="Test rules on stored data" aside="dry run, no data is changed">
        <form class="trial" onSubmit={(e) => void attempt(e)}>
          <label class="trial-rules">
            <span>Rules in the format of <code>write_relabel_configs</code></span>
            <textarea class="mono" rows={7} spellcheck={false} value={rules} onInput={(e) => setRules(e.currentTarget.value)} />
          </label>
          <div class="toolbar">
            <label class="field">
              <span>Samples from the last</span>
              <select value={range} onChange={(e) => setRange(Number(e.currentTarget.value))}>{ranges.map(([s, name]) => <option key={s} value={s}>{name}</option>)}</select>
            </label>
            {resolutions.map((res) => (
              <label class="field" key={res}>
                <span>Retention of {res}</span>
                <input class="short" value={kept[res] ?? ''} placeholder="unchanged" onInput={(e) => setKept({ ...kept, [res]: e.currentTarget.value })} />
              </label>
            ))}
            <span class="grow" />
            <button class="primary" disabled={state.loading || !!wrong}>Test</button>
          </div>
          {wrong && <p class="small" role="alert">{wrong}</p>}
        </form>
        <div class={`progress ${state.loading ? 'on' : ''}`} />
        {state.error ? <Failure error={state.error} /> : null}
      </Panel>}
      {state.answer && <div class="answer" ref={answer}>
        {state.answer.rules && <Rules trial={state.answer.rules} />}
        {state.answer.retention.length > 0 && <Retentions list={state.answer.retention} />}
      </div>}
    </>
  );
}

/** day formats an amount of bytes per day. */
const day = (a: Amount) => `${bytes(a.day_bytes)} per day`;

function Rules({ trial: t }: { trial: Trial }) {
  const share = (a: Amount) => (t.all.series ? a.series / t.all.series : 0);
  const at = (text: string) => local(Date.parse(text) / 1000).slice(0, 16);
  const tile = (name: string, a: Amount, bad = false) => <Stat name={name} value={plural(a.series, 'series')} note={`${plural(a.samples, 'sample')}, ${day(a)}`} bad={bad} />;
  if (!t.all.series) return <section class="panel"><Empty title="No samples in this time range">Test the rules on a longer range.</Empty></section>;
  return (
    <Panel title="Effect of these rules" aside={<span>{at(t.start)} to {at(t.end)}</span>}>
      <div class="stats">
        {tile('Examined', t.all)}
        {tile('Dropped', t.dropped)}
        {tile('Changed', t.changed)}
        {tile('Rejected', t.refused, t.refused.series > 0)}
      </div>
      {t.cut && <Notice tone="warning" title={`Only ${count(t.metrics)} of ${count(t.all_metrics)} metrics were examined.`}>There are too many series for a test on this page. To examine all of them, run <code>cassia relabel</code> on the data directory.</Notice>}
      {t.refused.series > 0 && <Notice tone="warning" title="Some series would be rejected.">{t.refusal}</Notice>}
      {t.merged > 0 && <Notice tone="warning" title={`${plural(t.merged, 'series')} would get the same labels as another series.`}>If two samples have the same timestamp, the larger value is kept.</Notice>}
      <Scroll label="Effect of each rule">
        <table>
          <thead><tr><th>Rule</th><th class="num">Series dropped</th><th class="num">Series changed</th><th class="num">Samples</th><th class="num">Size per day</th></tr></thead>
          <tbody>
            {t.rules.map((r) => {
              const most = r.dropped.series ? r.dropped : r.changed;
              return (
                <tr key={r.number}>
                  <td class="mono">
                    {r.number}. {r.text}
                    <Meter share={share(most)} label={`${(100 * share(most)).toFixed(1)}% of the series`} />
                    {r.examples.map((e, i) => <div key={i} class="small">{e.before}{e.after && ` → ${e.after}`}</div>)}
                  </td>
                  <td class="num">{r.dropped.series ? count(r.dropped.series) : '–'}</td>
                  <td class="num">{r.changed.series ? count(r.changed.series) : '–'}</td>
                  <td class="num">{count(most.samples)}</td>
                  <td class="num">{bytes(most.day_bytes)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      <p class="small">{t.measured ? 'Sizes are estimated from the sealed data, including rollups.' : 'Sizes are of uncompressed samples, without rollups, because there is no sealed data, not all metrics were examined, or the storage engine doesn’t report sizes.'}</p>
    </Panel>
  );
}

function Retentions({ list }: { list: RetentionTrial[] }) {
  return (
    <Panel title="Effect of the new retention" aside="estimated from the current ingestion rate and these rules">
      <Scroll label="Effect of the new retention">
        <table>
          <thead><tr><th>Resolution</th><th>Current retention</th><th>New retention</th><th class="num">Size per day</th><th class="num">Current size</th><th class="num">Expires immediately</th><th class="num">Already expired</th><th class="num">Final size</th></tr></thead>
          <tbody>
            {list.map((r) => (
              <tr key={r.resolution}>
                <td>{r.resolution}</td><td>{lasting(r.now)}</td><td>{lasting(r.then)}</td>
                <td class="num">{r.day_bytes ? bytes(r.day_bytes) : 'unknown'}</td>
                <td class="num">{bytes(r.bytes_now)}</td>
                <td class="num">{r.windows ? `${plural(r.windows, 'window')}, ${bytes(r.bytes)}` : '–'}</td>
                <td class="num">{r.expired_windows ? `${plural(r.expired_windows, 'window')}, ${bytes(r.expired_bytes)}` : '–'}</td>
                <td class="num">{r.bytes_at_rest < 0 ? 'grows without limit' : r.day_bytes ? bytes(r.bytes_at_rest) : 'unknown'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}
