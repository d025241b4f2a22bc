// The most expensive queries of the last hours, by text.
import { useState } from 'preact/hooks';
import { call } from './api';
import { count, exact } from './format';
import { href } from './location';
import { Empty, Failure, Meter, Panel, Scroll, Tabs, useLoad } from './parts';
import { local, since } from './time';

interface TopQuery {
  query: string;
  count: number;
  errors: number;
  seconds: number;
  slowestSeconds: number;
  samples: number;
  peakSamples: number;
  last: string;
  origin: { address?: string; userAgent?: string };
}

interface Top {
  since: string;
  queries: TopQuery[];
  all: number;
}

type By = 'time' | 'slowest' | 'samples' | 'count';

const weight: Record<By, (q: TopQuery) => number> = {
  time: (q) => q.seconds, slowest: (q) => q.slowestSeconds, samples: (q) => q.samples, count: (q) => q.count,
};

const limit = 50;

/** took formats a duration in seconds. */
const took = (s: number) => (s >= 100 ? `${count(s)} s` : s >= 1 ? `${Number(s.toPrecision(3))} s` : `${Number((s * 1000).toPrecision(3))} ms`);

export function TopQueries({ tenant }: { tenant: string }) {
  const [by, setBy] = useState<By>('time');
  const list = useLoad((signal) => call<Top>('status/top_queries', { by, limit }, { tenant, signal }).then((a) => a.data), [tenant, by], 10_000);
  const top = list.data?.queries ?? [];
  const most = Math.max(...top.map(weight[by]), 1e-9);
  return (
    <Panel
      title="Top queries"
      aside={list.data && <span>{top.length < list.data.all ? `top ${limit} of ${count(list.data.all)}, ` : ''}since {local(Date.parse(list.data.since) / 1000).slice(0, 16)}</span>}
    >
      <div class="table-tools">
        <Tabs label="Sort by" tabs={[['time', 'Total time'], ['slowest', 'Max time'], ['samples', 'Samples'], ['count', 'Count']]} at={by} onChange={setBy} />
      </div>
      {list.error ? <Failure error={list.error} again={list.again} /> : null}
      <div class={list.data ? '' : 'reserve'}>
        {list.data && !top.length && <Empty title="No completed queries yet">Queries completed in the last one to two hours are listed here, grouped by their text. Rule evaluations are included.</Empty>}
        {top.length > 0 && (
          <Scroll label="Top queries">
            <table>
              <thead><tr><th>Query</th><th class="num">Count</th><th class="num">Total time</th><th class="num">Mean time</th><th class="num">Max time</th><th class="num">Samples</th><th class="num">Errors</th><th>Last run</th></tr></thead>
              <tbody>
                {top.map((q) => (
                  <tr key={q.query}>
                    <td class="mono top-query">
                      <a href={href('explore', { ...(tenant ? { tenant } : {}), q: q.query })}>{q.query}</a>
                      <Meter share={weight[by](q) / most} label={`${Math.round((100 * weight[by](q)) / most)}% of the top query`} />
                    </td>
                    <td class="num">{count(q.count)}</td>
                    <td class="num" title={`${exact(q.seconds)} s`}>{took(q.seconds)}</td>
                    <td class="num">{took(q.seconds / q.count)}</td>
                    <td class="num">{took(q.slowestSeconds)}</td>
                    <td class="num" title={`Peak samples in memory: ${count(q.peakSamples)}`}>{count(q.samples)}</td>
                    <td class="num">{q.errors ? count(q.errors) : '–'}</td>
                    <td class="nowrap" title={[local(Date.parse(q.last) / 1000), q.origin.address, q.origin.userAgent].filter(Boolean).join(' ')}>{since(q.last)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </div>
    </Panel>
  );
}
