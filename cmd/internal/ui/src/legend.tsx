// The legend of a graph: each series with its value at the cursor and its statistics in the range.
import { useState } from 'preact/hooks';
import { exact, selector } from './format';
import { colourOf, type Line } from './graph';
import { Scroll } from './parts';

/** Stats are the statistics of a line, or null if there are no values. NaN is ignored except for newest. */
export interface Stats {
  newest: number | null;
  least: number | null;
  greatest: number | null;
  mean: number | null;
}

export function statsOf(values: (number | null)[]): Stats {
  const out: Stats = { newest: null, least: null, greatest: null, mean: null };
  let n = 0;
  for (const v of values) {
    if (v === null) continue;
    out.newest = v;
    if (Number.isNaN(v)) continue;
    n++;
    if (out.least === null || v < out.least) out.least = v;
    if (out.greatest === null || v > out.greatest) out.greatest = v;
    // The mean isn't computed from the sum, which may exceed the largest number.
    out.mean = out.mean === null ? v : !isFinite(v) || !isFinite(out.mean) ? out.mean + v : out.mean + (v / n - out.mean / n);
  }
  return out;
}

/** hoverText formats a value at the cursor. */
export function hoverText(v: number | null | undefined): string {
  return v === null || v === undefined ? '–' : exact(v);
}

type Column = 'value' | 'least' | 'greatest' | 'mean';

interface Props {
  lines: Line[];
  stats: Stats[];
  cursor: number | null;
  near: number | null;
  only: Set<number>;
  letters: boolean;
  toggle: (i: number, add: boolean) => void;
}

export function Legend(props: Props) {
  const [order, setOrder] = useState<{ by: Column | 'name'; down: boolean } | null>(null);
  const { lines, stats, cursor } = props;
  const value = (i: number, c: Column) => (c !== 'value' ? stats[i]![c] : cursor === null ? stats[i]!.newest : lines[i]!.values[cursor]!);
  const places = lines.map((_, i) => i);
  if (order) {
    const sign = order.down ? -1 : 1;
    const lowest = (v: number | null) => (v === null || Number.isNaN(v) ? -Infinity : v);
    // Sort by the newest values rather than those at the cursor, because rows that move with the cursor are unreadable.
    const of = (i: number) => lowest(order.by === 'value' ? stats[i]!.newest : order.by === 'name' ? null : stats[i]![order.by]);
    const names = lines.map((l) => l.of + selector(l.labels));
    places.sort((a, b) => sign * (order.by === 'name' ? (names[a]! < names[b]! ? -1 : 1) : of(a) === of(b) ? 0 : of(a) < of(b) ? -1 : 1));
  }
  const sort = (by: Column | 'name') => setOrder((o) => (o?.by === by ? { by, down: !o.down } : { by, down: by !== 'name' }));
  const head = (by: Column | 'name', words: string) => (
    <th key={by} class={by === 'name' ? '' : 'num'} aria-sort={order?.by === by ? (order.down ? 'descending' : 'ascending') : 'none'}>
      <button class="link" onClick={() => sort(by)}>{words}{order?.by === by ? (order.down ? ' ↓' : ' ↑') : ''}</button>
    </th>
  );
  return (
    <Scroll label="Series" class="legend">
      <table>
        <thead><tr>{head('name', 'Series')}{head('value', cursor === null ? 'Latest' : 'Value')}{head('least', 'Min')}{head('greatest', 'Max')}{head('mean', 'Mean')}</tr></thead>
        <tbody>
          {places.map((i) => {
            const faint = props.only.size > 0 && !props.only.has(i);
            return (
              <tr key={i} class={`${faint ? 'faint' : ''} ${props.near === i ? 'near' : ''}`}>
                <td>
                  <button class="legend-line" aria-pressed={props.only.has(i)} onClick={(e) => props.toggle(i, e.ctrlKey || e.metaKey || e.shiftKey)} title="Click to show only this series, Ctrl+click to add or remove it">
                    <i class="swatch" style={{ background: colourOf(i) }} />
                    {props.letters && <b class="letter">{lines[i]!.of}</b>}
                    <span class="legend-name">{selector(lines[i]!.labels)}</span>
                  </button>
                </td>
                <td class="num legend-value">{hoverText(value(i, 'value'))}</td>
                {(['least', 'greatest', 'mean'] as const).map((c) => <td key={c} class="num">{hoverText(value(i, c))}</td>)}
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
