// Alerts & rules: which alerts fire and since when, which series are recorded, and which rules fail.
import { useState } from 'preact/hooks';
import { call } from './api';
import type { ViewProps } from './app';
import { count, exact, number, plural, selector, type Labels } from './format';
import { go, href } from './location';
import { Empty, Failure, missing, Notice, Panel, Scroll, Stat, Tabs, useLoad } from './parts';
import { found, never, type Alert, type Group, type Rule, type State } from './rules';
import type { Series } from './results';
import { duration, local, since } from './time';

export function Alerts({ tenant, place }: ViewProps) {
  const show = place.params.get('show') === 'rules' ? 'rules' : 'alerts';
  const [text, setText] = useState(place.params.get('find') ?? '');
  const list = useLoad((signal) => call<{ groups: Group[] | null }>('rules', {}, { tenant, signal }).then((a) => a.data.groups ?? []), [tenant], 10_000);
  const who = useLoad((signal) => call<Evaluator>('cassia/evaluator', {}, { signal }).then((a) => a.data), [], 30_000);
  const groups = list.data ?? [];
  const all = found(groups, 'all', '');
  const states = (state: State) => all.flatMap(({ rule }) => rule.alerts ?? []).filter((a) => a.state === state).length;
  const failing = all.filter(({ rule }) => rule.health === 'err').length;
  const shown = found(groups, show === 'alerts' ? 'alerting' : 'all', text);
  const change = (to: 'alerts' | 'rules') => {
    const params = new URLSearchParams(place.params);
    to === 'rules' ? params.set('show', 'rules') : params.delete('show');
    go('alerts', params);
  };
  const number = (n: number) => (list.data ? count(n) : missing(list));
  return (
    <>
      <div class="head-line">
        <h1>Alerts &amp; rules</h1>
        <p>Alerting and recording rules of tenant <b>{tenant}</b>, as of their last evaluation.{evaluated(who.data)}</p>
      </div>
      <div class="stats">
        <Stat name="Firing" value={number(states('firing'))} note={states('firing') === 1 ? 'alert' : 'alerts'} bad={states('firing') > 0} />
        <Stat name="Pending" value={number(states('pending'))} note={states('pending') === 1 ? 'alert, will fire if it persists' : 'alerts, will fire if they persist'} />
        <Stat name="Rules" value={number(all.length)} note={list.data && `in ${plural(groups.length, 'group')}`} />
        <Stat name="Failing" value={number(failing)} note={failing === 1 ? 'rule in its last evaluation' : 'rules in their last evaluation'} bad={failing > 0} />
      </div>
      {list.error ? <Failure error={list.error} again={list.again} /> : null}
      {list.data && !all.length ? (
        <section class="panel"><Empty title="This tenant has no rules">To load rule files in Prometheus’ format, start Cassia with <code>--rule.files={tenant && tenant !== 'default' ? `${tenant}=` : ''}rules/*.yml</code>.</Empty></section>
      ) : list.error && !list.data ? null : (
        <>
          <div class="toolbar">
            <Tabs label="Rules shown" tabs={[['alerts', 'Alerts'], ['rules', 'All rules']]} at={show} onChange={change} />
            <input class="find" placeholder="Name, label or query" aria-label="Search rules" value={text} onInput={(e) => setText(e.currentTarget.value)} />
          </div>
          {list.data && !shown.length && <section class="panel"><Empty title="No matching rules">Search for part of a rule name, label value, query or file name.</Empty></section>}
          {shown.map(({ group, rule }) => <RuleOf key={`${group.file} ${group.name} ${rule.name} ${rule.query}`} group={group} rule={rule} tenant={tenant} />)}
        </>
      )}
    </>
  );
}

/** Evaluator is the process that evaluates the rules. */
interface Evaluator {
  name: string;
  here: boolean;
  rules: boolean;
  shared: boolean;
  since?: string;
}

/**
 * evaluated returns a sentence about the process that evaluates the rules. It is empty if only one process uses the
 * store.
 */
function evaluated(e?: Evaluator): string {
  if (!e?.shared || !e.rules && !e.name) return '';
  if (!e.here && !e.name) return ' They aren’t evaluated by this process.';
  return ` Evaluated by ${e.here ? 'this process' : 'process'}${e.name && ` ${e.name}`}${e.since ? ` since ${local(Date.parse(e.since) / 1000).slice(0, 16)}` : ''}.`;
}

function RuleOf({ group, rule, tenant }: { group: Group; rule: Rule; tenant: string }) {
  const [history, setHistory] = useState(false);
  const alerting = rule.type === 'alerting';
  const alerts = rule.alerts ?? [];
  const explore = href('explore', { ...(tenant ? { tenant } : {}), q: rule.query });
  return (
    <Panel
      title={<><span class={`state s-${alerting ? rule.state : 'recording'}`}>{alerting ? rule.state : 'recording'}</span> {rule.name}</>}
      aside={<><span>Group {group.name} in {group.file.split('/').at(-1)}, evaluated every {duration(group.interval)}</span><a href={explore}>Explore</a></>}
    >
      <pre class="rule-query">{rule.query}</pre>
      <p class="small">
        {never(rule.lastEvaluation) ? 'Not evaluated yet' : `Last evaluated ${since(rule.lastEvaluation)}, took ${duration(rule.evaluationTime)}`}
        {alerting && rule.duration ? `; fires after ${duration(rule.duration)}` : ''}
        {Object.keys(rule.labels ?? {}).length > 0 && <>; adds labels <code>{selector(rule.labels!)}</code></>}
      </p>
      {rule.lastError && <Notice tone="error" title="The last evaluation failed.">{rule.lastError}</Notice>}
      {alerts.length > 0 && (
        <Scroll label={`Alerts of ${rule.name}`}>
          <table>
            <thead><tr><th>State</th><th>Labels</th><th>Annotations</th><th>Active since</th><th class="num">Value</th></tr></thead>
            <tbody>{alerts.map((a) => <AlertOf key={selector(a.labels)} alert={a} />)}</tbody>
          </table>
        </Scroll>
      )}
      {alerting && (history ? <History name={rule.name} tenant={tenant} /> : <button class="link" onClick={() => setHistory(true)} aria-label={`Show the last 24 hours of ${rule.name}`}>Show the last 24 hours</button>)}
    </Panel>
  );
}

function AlertOf({ alert: a }: { alert: Alert }) {
  const { alertname: _, ...labels } = a.labels;
  return (
    <tr>
      <td><span class={`state s-${a.state}`}>{a.state}</span></td>
      <td class="mono">{selector(labels)}</td>
      <td><Annotations of={a.annotations} /></td>
      <td class="nowrap" title={local(Date.parse(a.activeAt) / 1000)}>{since(a.activeAt)}</td>
      <td class="num">{exact(number(a.value))}</td>
    </tr>
  );
}

function Annotations({ of }: { of: Labels }) {
  return (
    <>
      {Object.entries(of).map(([name, text]) => (
        <div key={name}><span class="small">{name}: </span>{/^https?:\/\//.test(text) ? <a href={text} rel="noreferrer">{text}</a> : text}</div>
      ))}
    </>
  );
}

const day = 86400;

/** History shows the states of an alert on the last day, with a lane per set of labels. */
function History({ name, tenant }: { name: string; tenant: string }) {
  const step = 300;
  const seen = useLoad(async (signal) => {
    const end = Math.floor(Date.now() / 1000);
    const query = selector({ __name__: 'ALERTS', alertname: name });
    const { data } = await call<{ result: Series[] }>('query_range', { query, start: end - day, end, step, limit: 50 }, { tenant, signal, post: true });
    return { end, result: data.result };
  }, [tenant, name]);
  if (seen.error) return <Failure error={seen.error} again={seen.again} />;
  if (!seen.data) return <p class="small">…</p>;
  if (!seen.data.result.length) return <p class="small">No alerts were active in the last 24 hours.</p>;
  const at = (t: number) => (100 * (t - seen.data!.end + day)) / day;
  return (
    <div class="timeline">
      {seen.data.result.map((s, i) => {
        const { __name__: _, alertname: __, alertstate: state = '', ...labels } = s.metric;
        const times = (s.values ?? []).map(([t]) => t);
        return (
          <div class="lane" key={i}>
            <div class="lane-name">{state} <code>{selector(labels)}</code></div>
            <div class="lane-track" role="img" aria-label={`${state} at ${times.length} of ${day / step} points in time, most recently at ${local(times.at(-1) ?? 0)}`}>
              {times.map((t) => <span key={t} class={`block s-${state}`} style={{ left: `${at(t)}%`, width: `${(100 * step) / day}%` }} title={`${state} at ${local(t)}`} />)}
            </div>
          </div>
        );
      })}
      <div class="lane axis" aria-hidden="true"><div class="lane-name" /><div class="lane-axis"><span>24 hours ago</span><span>now</span></div></div>
    </div>
  );
}
