// Heat maps: how the distribution of observations over buckets changes over time, for native histograms and for classic
// ones.
import { number, short } from './format';
import type { Histogram, Series } from './results';
import type { Bounds } from './time';

/** Row is a bucket with the values above from, up to and including to. */
export interface Row {
  from: number;
  to: number;
}

/** Heat contains a count per row and column. Rows are in ascending order, and columns are the steps of the bounds. */
export interface Heat {
  rows: Row[];
  counts: number[][];
  most: number;
}

// More rows can't be distinguished.
const maxRows = 48;

const columnOf = (t: number, b: Bounds) => Math.round((t - b.start) / b.step);

/**
 * heatOf returns a heat map of the results. It returns null unless they consist of a single histogram with buckets: of
 * one query and one metric, and nothing else.
 */
export function heatOf(answers: Series[][], b: Bounds): Heat | null {
  const [all = [], ...more] = answers.filter((series) => series.length);
  if (!all.length || more.length || all.some((s) => s.metric['__name__'] !== all[0]!.metric['__name__'])) return null;
  if (all.every((s) => s.histograms?.length && !s.values?.length)) return finished(ofNative(all, b));
  return all.every((s) => isEdge(s.metric['le']) && s.values?.length && !s.histograms?.length) ? finished(ofClassic(all, b)) : null;
}

// Any series may have a label le. It is a bucket only if the value is a number.
const isEdge = (le: string | undefined) => le !== undefined && le.trim() !== '' && !isNaN(number(le));

/** finished completes a heat map. It returns null for a histogram without buckets, which has no observations. */
function finished(heat: Omit<Heat, 'most'>): Heat | null {
  if (!heat.rows.length) return null;
  return { ...heat, most: heat.counts.reduce((most, row) => row.reduce((m, v) => Math.max(m, v), most), 0) };
}

const empty = (rows: number, b: Bounds) => Array.from({ length: rows }, () => new Array<number>(columnOf(b.end, b) + 1).fill(0));

/** ofClassic computes the differences of cumulative buckets. It adds up all series with the same le. */
function ofClassic(all: Series[], b: Bounds): Omit<Heat, 'most'> {
  const edges = [...new Set(all.map((s) => number(s.metric['le']!)))].sort((x, y) => x - y);
  const upTo = empty(edges.length, b);
  for (const s of all) {
    const row = upTo[edges.indexOf(number(s.metric['le']!))];
    if (row) for (const [t, v] of s.values!) row[columnOf(t, b)]! += finite(number(v));
  }
  const counts = upTo.map((row, i) => row.map((v, k) => Math.max(0, i ? v - upTo[i - 1]![k]! : v)));
  return { rows: edges.map((to, i) => ({ from: i ? edges[i - 1]! : -Infinity, to })), counts };
}

const finite = (v: number) => (isFinite(v) ? v : 0);

/** ofNative assigns buckets of different widths to common rows. Rows are as wide as needed to limit their number. */
function ofNative(all: Series[], b: Bounds): Omit<Heat, 'most'> {
  const buckets = all.flatMap((s) => s.histograms!.flatMap(([t, h]) => bucketsOf(h).map((one) => ({ ...one, column: columnOf(t, b) }))));
  const positive = buckets.filter((o) => o.from >= 0 && o.to > 0 && !(o.from === 0 && isZero(o)));
  const negative = buckets.filter((o) => o.to <= 0 && o.from < 0).map((o) => ({ ...o, from: -o.to, to: -o.from }));
  const zero = buckets.filter((o) => o.from < 0 && o.to > 0 || isZero(o));
  const room = negative.length && positive.length ? maxRows / 2 : maxRows;
  const [up, down] = [edgesOf(positive, room), edgesOf(negative, room)];
  const width = zero.reduce((w, o) => Math.max(w, o.to), 0);
  const rows: Row[] = [
    ...down.slice(1).map((to, i) => ({ from: -to, to: -down[i]! })).reverse(),
    ...(zero.length ? [{ from: -width, to: width }] : []),
    ...up.slice(1).map((to, i) => ({ from: up[i]!, to })),
  ];
  const counts = empty(rows.length, b);
  const first = Math.max(0, down.length - 1) + (zero.length ? 1 : 0);
  for (const o of zero) counts[first - 1]![o.column]! += o.count;
  for (const o of positive) spread(o, up, (i, n) => (counts[first + i]![o.column]! += n));
  for (const o of negative) spread(o, down, (i, n) => (counts[down.length - 2 - i]![o.column]! += n));
  return { rows, counts };
}

interface Bucket extends Row {
  count: number;
}

// The zero bucket includes both of its edges.
const isZero = (o: Row) => o.from === -o.to;

function bucketsOf(h: Histogram): Bucket[] {
  return (h.buckets ?? []).map(([, from, to, n]) => ({ from: number(from), to: number(to), count: finite(number(n)) }));
}

/**
 * edgesOf returns edges of the buckets, omitting edges if there would be more than most rows. Neighbouring buckets
 * share an edge.
 */
function edgesOf(buckets: Row[], most: number): number[] {
  const all = [...new Set(buckets.flatMap((o) => [o.from, o.to]))].sort((x, y) => x - y);
  if (all.length <= most + 1) return all;
  const every = Math.ceil((all.length - 1) / most);
  return all.filter((_, i) => i % every === 0 || i === all.length - 1);
}

/**
 * spread distributes a bucket's count over the rows that it overlaps, in proportion to the overlap on a logarithmic
 * scale.
 */
function spread(o: Bucket, edges: number[], add: (row: number, n: number) => void) {
  const rows: [number, number][] = [];
  for (let i = 0; i < edges.length - 1; i++) {
    const [from, to] = [Math.max(o.from, edges[i]!), Math.min(o.to, edges[i + 1]!)];
    if (to > from) rows.push([i, Math.log(to) - Math.log(from)]);
  }
  const total = rows.reduce((sum, [, part]) => sum + part, 0);
  // On a logarithmic scale, a bucket that extends to 0 or to infinity has no length.
  if (rows.length === 1 || !isFinite(total)) return add(rows.at(-1)?.[0] ?? 0, o.count);
  for (const [i, part] of rows) add(i, (o.count * part) / total);
}

/** rowText describes the values of a row. */
export function rowText({ from, to }: Row, write: (v: number) => string = short): string {
  if (from === -Infinity) return `up to ${write(to)}`;
  return to === Infinity ? `above ${write(from)}` : `${write(from)} – ${write(to)}`;
}
