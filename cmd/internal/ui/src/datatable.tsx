// The result of an instant query as a table that can be sorted, filtered and downloaded as CSV.
import { useState } from 'preact/hooks';
import { csv, labelNames, shownRows, textOf, type Order } from './csv';
import { exact, number, observations, selector } from './format';
import { Absent } from './absent';
import { Scroll } from './parts';
import type { Histogram, Result } from './results';
import { Samples } from './samples';
import { local } from './time';

export function DataTable({ result, letter, tenant, replace }: { result: Result; letter: string; tenant: string; replace: (query: string) => void }) {
  const [order, setOrder] = useState<Order>({ by: '', down: false });
  const [text, setText] = useState('');
  const data = result.answer?.data;
  if (!data || result.bounds) return null; // This is still the result of the graph.
  if (data.resultType === 'matrix' && data.result.length) return <Samples series={data.result} letter={letter} />;
  if (data.resultType === 'scalar' || data.resultType === 'string') {
    return <p class="single">{letter && <b>{letter} </b>}{data.resultType === 'scalar' ? exact(number(data.result[1])) : data.result[1]}</p>;
  }
  if (!data.result.length) {
    return (
      <Absent query={result.query} letter={letter} tenant={tenant} title="No series at this time" replace={replace}>
        <p>The table shows the latest sample of each series in the 5 minutes before the end of the time range. Change the end, or use <code>last_over_time(…[1h])</code>.</p>
      </Absent>
    );
  }
  const at = data.result[0]!.value?.[0] ?? data.result[0]!.histogram?.[0] ?? 0;
  const rows = shownRows(data.result, order, text);
  const sort = (by: 'series' | 'value') => setOrder((o) => ({ by, down: o.by === by ? !o.down : by === 'value' }));
  const head = (by: 'series' | 'value', words: string, kind: string) => (
    <th class={kind} aria-sort={order.by === by ? (order.down ? 'descending' : 'ascending') : 'none'}>
      <button class="link" onClick={() => sort(by)}>{words}{order.by === by ? (order.down ? ' ↓' : ' ↑') : ''}</button>
    </th>
  );
  return (
    <>
      <div class="table-tools">
        <input value={text} onInput={(e) => setText(e.currentTarget.value)} placeholder="Filter by labels or value" aria-label={`Filter the series${letter && ' of ' + letter}`} />
        <span class="small">{rows.length === data.result.length ? '' : `${rows.length} of ${data.result.length} series`}</span>
        <span class="grow" />
        <button onClick={() => download(csv(rows), `cassia-${letter || 'A'}.csv`)}>Download CSV</button>
      </div>
      <Scroll label="Series and values">
        <table>
          <caption>{letter && <b>{letter} </b>}At {local(at)}; labels: {labelNames(data.result).join(', ') || 'none'}</caption>
          <thead><tr>{head('series', 'Series', '')}{head('value', 'Value', 'num')}</tr></thead>
          <tbody>
            {rows.map((s, i) => (
              <tr key={i}>
                <td class="mono">{selector(s.metric)}</td>
                <td class="num">{s.histogram ? <Buckets histogram={s.histogram[1]} /> : textOf(s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** download saves a text as a file in the browser. */
export function download(text: string, name: string, kind = 'text/csv') {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Buckets shows the distribution of a histogram. */
function Buckets({ histogram }: { histogram: Histogram }) {
  const buckets = histogram.buckets ?? [];
  const most = Math.max(...buckets.map((b) => Number(b[3])), 1);
  return (
    <div class="histogram">
      <span>{observations(histogram.count)}, sum {exact(number(histogram.sum))}</span>
      <span class="buckets" aria-hidden="true">
        {buckets.map((b, i) => <i key={i} title={`${b[1]} to ${b[2]}: ${b[3]}`} style={{ height: `${Math.max(4, (100 * Number(b[3])) / most)}%` }} />)}
      </span>
    </div>
  );
}
