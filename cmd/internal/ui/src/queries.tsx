// Queries: the running and waiting queries, with a button that cancels them, and the most expensive ones.
import { useState } from 'preact/hooks';
import { call, remove } from './api';
import type { ViewProps } from './app';
import { count } from './format';
import { href } from './location';
import { Empty, Failure, Panel, Scroll, useLoad } from './parts';
import { duration, local, since } from './time';
import { TopQueries } from './top';

interface Active {
  id: string;
  query: string;
  since: string;
  start: string;
  end: string;
  stepSeconds: number;
  origin: { address?: string; userAgent?: string; requestId?: string };
}

export function Queries({ tenant }: ViewProps) {
  const [failed, setFailed] = useState<unknown>();
  const list = useLoad((signal) => call<Active[]>('status/active_queries', {}, { tenant, signal }).then((a) => a.data), [tenant], 2000);
  const stop = async (id: string) => {
    setFailed(undefined);
    try {
      await remove('status/active_queries/' + encodeURIComponent(id), { tenant });
    } catch (err) {
      setFailed(err);
    }
    list.again();
  };
  const all = list.data ?? [];
  return (
    <>
      <div class="head-line">
        <h1>Queries</h1>
        <p>Running, queued and recent queries of tenant <b>{tenant}</b> in this process.</p>
      </div>
      {list.error ? <Failure error={list.error} again={list.again} /> : null}
      {failed ? <Failure error={failed} /> : null}
      <Panel title={all.length === 1 ? '1 running query' : all.length ? `${count(all.length)} running queries` : 'Running queries'} aside="refreshed every 2 seconds">
        {!list.error && !all.length && <Empty title={list.data ? 'No running queries' : '…'}>Long-running queries appear here and can be stopped. Slow queries are also logged.</Empty>}
        {all.length > 0 && (
          <Scroll label="Running queries">
            <table>
              <thead><tr><th>Query</th><th>Time range</th><th>Started</th><th>Client</th><th>Action</th></tr></thead>
              <tbody>
                {all.map((q) => (
                  <tr key={q.id}>
                    <td class="mono"><a href={href('explore', { ...(tenant ? { tenant } : {}), q: q.query })}>{q.query}</a></td>
                    <td>{q.stepSeconds ? `${duration((Date.parse(q.end) - Date.parse(q.start)) / 1000)}, step ${duration(q.stepSeconds)}` : local(Date.parse(q.end) / 1000)}</td>
                    <td class="nowrap" title={local(Date.parse(q.since) / 1000)}>{since(q.since)}</td>
                    <td>{[q.origin.address, q.origin.userAgent, q.origin.requestId].filter(Boolean).join(' ') || 'this process'}</td>
                    <td><button onClick={() => void stop(q.id)} aria-label={`Stop ${q.query}`}>Stop</button></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </Panel>
      <TopQueries tenant={tenant} />
    </>
  );
}
