// Exemplars of what queries read: single observations, with the trace that each belongs to.
import { exact, number, selector, type Labels } from './format';
import { Scroll } from './parts';
import { local } from './time';

/** Exemplars are those of one series, as query_exemplars answers them. */
export interface Exemplars {
  seriesLabels: Labels;
  exemplars: { labels: Labels; value: string; timestamp: number }[];
}

/** Exemplar is one of them. */
export interface Exemplar {
  series: Labels;
  labels: Labels;
  value: number;
  at: number;
}

// So many are drawn, and so many listed.
const most = 500;
const listed = 100;

/** thinned are the exemplars in the order of time, at most so many: even over all of them. */
export function thinned(all: Exemplars[]): Exemplar[] {
  const flat = all.flatMap((s) => s.exemplars.map((e) => ({ series: s.seriesLabels, labels: e.labels, value: number(e.value), at: e.timestamp })));
  flat.sort((a, b) => a.at - b.at);
  if (flat.length <= most) return flat;
  return Array.from({ length: most }, (_, i) => flat[Math.floor((i * flat.length) / most)]!);
}

/** ExemplarList has the newest as a table: who doesn't use a mouse finds their labels there. */
export function ExemplarList({ all }: { all: Exemplar[] }) {
  if (!all.length) return <p class="small">No exemplars are stored for these queries in this range.</p>;
  const shown = all.slice(-listed).reverse();
  return (
    <details class="exemplars">
      <summary>{all.length === 1 ? '1 exemplar' : `${all.length} exemplars`}{shown.length < all.length ? `, the latest ${listed} are listed` : ''}</summary>
      <Scroll label="Exemplars" class="legend">
        <table>
          <thead><tr><th>Time</th><th class="num">Value</th><th>Exemplar</th><th>Series</th></tr></thead>
          <tbody>
            {shown.map((e, i) => (
              <tr key={i}>
                <td class="nowrap">{local(e.at)}</td>
                <td class="num">{exact(e.value)}</td>
                <td class="mono">{selector(e.labels)}</td>
                <td class="mono">{selector(e.series)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}
