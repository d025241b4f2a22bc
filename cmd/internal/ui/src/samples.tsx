// The result of a range selector as a table of stored samples.
import { csv, textOf } from './csv';
import { download } from './datatable';
import { count, exact, observations, plural, selector } from './format';
import { Empty, Scroll } from './parts';
import type { Series } from './results';
import { local } from './time';

// Rendering more takes the browser seconds. The CSV file contains all.
const most = 2000;

export function Samples({ series, letter }: { series: Series[]; letter: string }) {
  const rows: Series[] = series.flatMap((s) => [
    ...(s.values ?? []).map((value) => ({ metric: s.metric, value })),
    ...(s.histograms ?? []).map((histogram) => ({ metric: s.metric, histogram })),
  ]);
  if (!rows.length) return <Empty title={`${letter ? letter + ': ' : ''}No samples in this range`}>Change the end of the time range, or use a longer range in the brackets.</Empty>;
  const at = (s: Series) => s.value?.[0] ?? s.histogram?.[0] ?? 0;
  return (
    <>
      <div class="table-tools">
        <span class="small">{rows.length > most && `Only the first ${count(most)} samples are shown.`}</span>
        <span class="grow" />
        <button onClick={() => download(csv(rows), `cassia-${letter || 'A'}.csv`)}>Download CSV</button>
      </div>
      <Scroll label="Samples">
        <table>
          <caption>{letter && <b>{letter} </b>}{plural(rows.length, 'sample')} of {plural(series.length, 'series')}</caption>
          <thead><tr><th>Series</th><th>Time</th><th class="num">Value</th></tr></thead>
          <tbody>
            {rows.slice(0, most).map((s, i) => (
              <tr key={i}>
                <td class="mono">{selector(s.metric)}</td>
                <td class="nowrap">{local(at(s))} <span class="small">{exact(at(s))}</span></td>
                <td class="num">{s.histogram ? observations(s.histogram[1].count) : textOf(s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}
