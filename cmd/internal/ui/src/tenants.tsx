// Tenants: the limits of each tenant, and their usage.
import { useState } from 'preact/hooks';
import { call } from './api';
import type { ViewProps } from './app';
import { bytes, count, plural } from './format';
import { href } from './location';
import { Failure, Meter, useLoad } from './parts';
import { duration } from './time';

interface Limits {
  tenant: string;
  limits: Record<string, number>;
  used: Record<string, number>;
  left: Record<string, number>;
}

// The names in --limits.file, the most relevant first.
const names: Record<string, string> = {
  samples_per_second: 'Samples per second', samples_burst: 'Burst size in samples', active_series: 'Active series', new_series_per_hour: 'New series per hour',
  exemplars_per_second: 'Exemplars per second', queries: 'Concurrent queries', queries_waiting: 'Queued queries', query_series: 'Series per query', query_samples: 'Samples per query',
  query_bytes: 'Bytes per query', query_range: 'Time range of a query', labels: 'Labels per series', label_name_bytes: 'Label name length',
  label_value_bytes: 'Label value length', request_bytes: 'Request size',
};

// For limits on rates, the usage is the used share of the burst size. The default burst size is ten seconds of samples.
const rates: Record<string, (t: Limits) => number> = {
  samples_per_second: (t) => {
    const burst = t.limits['samples_burst'] ?? Math.max(2000, 10 * t.limits['samples_per_second']!);
    return Math.min(1, Math.max(0, 1 - (t.left['samples_per_second'] ?? burst) / burst));
  },
};

const shownAtFirst = 60;

export function Tenants({ session, tenant }: ViewProps) {
  const [text, setText] = useState('');
  const [more, setMore] = useState(false);
  const list = useLoad((signal) => call<{ tenants: Limits[]; all: number }>('cassia/tenants', {}, { signal }).then((a) => a.data), [], 10_000);
  const found = (list.data?.tenants ?? []).filter((t) => t.tenant.toLowerCase().includes(text.toLowerCase()));
  const shown = more ? found : found.slice(0, shownAtFirst);
  return (
    <>
      <div class="head-line">
        <h1>Tenants</h1>
        <p>Limits of each tenant and their current use in this process.</p>
        {list.data && list.data.all > 6 && <input class="find" placeholder={`Search ${count(list.data.all)} tenants`} aria-label="Search tenants" value={text} onInput={(e) => setText(e.currentTarget.value)} />}
      </div>
      {list.error ? <Failure error={list.error} again={list.again} /> : null}
      {list.data && list.data.all > list.data.tenants.length && <p class="small">Only {list.data.tenants.length} of {plural(list.data.all, 'tenant')} are listed: those with the most active series.</p>}
      <div class="columns tenant-list">
        {shown.map((t) => <Tenant key={t.tenant} of={t} session={session} here={t.tenant === tenant} />)}
      </div>
      {found.length > shown.length && <button onClick={() => setMore(true)}>Show all {count(found.length)}</button>}
      {list.data && !found.length && <p class="small">No matching tenant.</p>}
    </>
  );
}

function shownAs(key: string, v: number): string {
  if (key.endsWith('_bytes') && !key.startsWith('label')) return bytes(v);
  if (key === 'query_range') return duration(v);
  return count(v);
}

function Tenant({ of: t, session, here }: { of: Limits; session: ViewProps['session']; here: boolean }) {
  const long = (t.limits as Record<string, unknown>)['long_label_values']; // the only limit that isn't a number
  const limits = Object.keys(names).filter((k) => t.limits[k]);
  const used = (key: string) => t.used[key] ?? (t.left[key] !== undefined && !rates[key] ? Math.max(0, t.limits[key]! - t.left[key]!) : undefined);
  return (
    <section class={`panel tenant ${here ? 'here' : ''}`}>
      <header class="panel-head">
        <h2>{t.tenant}</h2>
        {t.tenant === session.self_tenant && <span class="tag">Cassia’s own metrics</span>}
        <div class="aside">
          <a href={href('explore', { tenant: t.tenant })}>Explore</a>
          <a href={href('cardinality', { tenant: t.tenant })}>Cardinality</a>
        </div>
      </header>
      <dl class="facts">
        <div><dt>Active series</dt><dd>{count(t.used['active_series'] ?? 0)}</dd></div>
        <div><dt>Queries</dt><dd>{count(t.used['queries'] ?? 0)} running, {count(t.used['queries_waiting'] ?? 0)} queued</dd></div>
      </dl>
      {limits.length || long ? (
        <ul class="counts limits">
          {long !== undefined && (
            <li>
              <div class="count-line">
                <span class="count-name" title="long_label_values">Long label values</span>
                <span class="count-value">{long === 'truncate' ? 'truncated' : 'rejected'}</span>
              </div>
            </li>
          )}
          {limits.map((k) => {
            const n = used(k);
            const rate = rates[k]?.(t);
            const share = rate ?? (n === undefined ? 0 : n / t.limits[k]!);
            return (
              <li key={k}>
                <div class="count-line">
                  <span class="count-name" title={k}>{names[k]}</span>
                  <span class="count-value">{rate !== undefined ? `${shownAs(k, t.limits[k]!)}; ${Math.round(rate * 100)}% of the burst used` : n === undefined ? `at most ${shownAs(k, t.limits[k]!)}` : `${shownAs(k, n)} of ${shownAs(k, t.limits[k]!)}`}</span>
                </div>
                {(n !== undefined || rate !== undefined) && <Meter share={share} tone={share > 0.9 ? 'full' : ''} />}
              </li>
            );
          })}
        </ul>
      ) : (
        <p class="small">No limits are set for this tenant; the limits of the process apply. To set limits, use <code>--limits.file</code>.</p>
      )}
    </section>
  );
}
