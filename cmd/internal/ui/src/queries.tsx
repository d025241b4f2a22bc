// Queries: those that run or wait now, with a button that stops them, and those that took most.
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
        <p>Those of tenant <b>{tenant}</b> that run or wait now, and those that ended, in this process.</p>
      </div>
      {list.error ? <Failure error={list.error} again={list.again} /> : null}
      {failed ? <Failure error={failed} /> : null}
      <Panel title={all.length === 1 ? '1 runs' : all.length ? `${count(all.length)} run` : 'Running queries'} aside="looked at every two seconds">
        {!list.error && !all.length && <Empty title={list.data ? 'None runs' : '…'}>Slow ones appear here, and can be stopped; the log has those that took long.</Empty>}
        {all.length > 0 && (
          <Scroll label="Running queries">
            <table>
              <thead><tr><th>Query</th><th>Asks for</th><th>Since</th><th>From</th><th>Stop</th></tr></thead>
              <tbody>
                {all.map((q) => (
                  <tr key={q.id}>
                    <td class="mono"><a href={href('explore', { ...(tenant ? { tenant } : {}), q: q.query })}>{q.query}</a></td>
                    <td>{q.stepSeconds ? `${duration((Date.parse(q.end) - Date.parse(q.start)) / 1000)}, every ${duration(q.stepSeconds)}` : local(Date.parse(q.end) / 1000)}</td>
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
