// Exemplars: single observations, with the traces that they belong to.
import { exact, number, selector, type Labels } from './format';
import { Scroll } from './parts';
import { local } from './time';

/** Exemplars are the exemplars of one series in a response of query_exemplars. */
export interface Exemplars {
  seriesLabels: Labels;
  exemplars: { labels: Labels; value: string; timestamp: number }[];
}

/** Exemplar is a single exemplar with its series. */
export interface Exemplar {
  series: Labels;
  labels: Labels;
  value: number;
  at: number;
}

// The max numbers of drawn and of listed exemplars.
const most = 500;
const listed = 100;

/** thinned returns at most most exemplars in time order, evenly distributed over all of them. */
export function thinned(all: Exemplars[]): Exemplar[] {
  const flat = all.flatMap((s) => s.exemplars.map((e) => ({ series: s.seriesLabels, labels: e.labels, value: number(e.value), at: e.timestamp })));
  flat.sort((a, b) => a.at - b.at);
  if (flat.length <= most) return flat;
  return Array.from({ length: most }, (_, i) => flat[Math.floor((i * flat.length) / most)]!);
}

/** ExemplarList lists the newest exemplars in a table, so that their labels are accessible without a mouse. */
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
