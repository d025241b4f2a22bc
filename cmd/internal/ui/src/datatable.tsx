// The answer of an instant query as a table.
import { exact, number, selector } from './format';
import { Empty, Scroll } from './parts';
import type { Histogram, Result } from './results';
import { local } from './time';

export function DataTable({ result, letter }: { result: Result; letter: string }) {
  const data = result.answer?.data;
  if (!data || data.resultType === 'matrix') return null;
  if (data.resultType === 'scalar' || data.resultType === 'string') {
    return <p class="single">{letter && <b>{letter} </b>}{data.resultType === 'scalar' ? exact(number(data.result[1])) : data.result[1]}</p>;
  }
  if (!data.result.length) return <Empty title={`${letter ? letter + ': ' : ''}No series at this time`}>An instant looks back 5 minutes. Choose another end of the range, or wrap the query in <code>last_over_time(…[1h])</code>.</Empty>;
  const at = data.result[0]!.value?.[0] ?? data.result[0]!.histogram?.[0] ?? 0;
  return (
    <Scroll label="Series and values">
      <table>
        <caption>{letter && <b>{letter} </b>}At {local(at)}</caption>
        <thead><tr><th>Series</th><th class="num">Value</th></tr></thead>
        <tbody>
          {data.result.map((s, i) => (
            <tr key={i}>
              <td class="mono">{selector(s.metric)}</td>
              <td class="num">{s.value ? exact(number(s.value[1])) : s.histogram && <Buckets histogram={s.histogram[1]} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** Buckets draws a histogram's distribution. */
function Buckets({ histogram }: { histogram: Histogram }) {
  const buckets = histogram.buckets ?? [];
  const most = Math.max(...buckets.map((b) => Number(b[3])), 1);
  return (
    <div class="histogram">
      <span>{exact(number(histogram.count))} observations, sum {exact(number(histogram.sum))}</span>
      <span class="buckets" aria-hidden="true">
        {buckets.map((b, i) => <i key={i} title={`${b[1]} to ${b[2]}: ${b[3]}`} style={{ height: `${Math.max(4, (100 * Number(b[3])) / most)}%` }} />)}
      </span>
    </div>
  );
}
