// A graph of series over time, drawn by uPlot, with a legend that follows the cursor.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { Exemplar } from './exemplars';
import { number, selector, type Labels } from './format';
import { hoverText, Legend, statsOf } from './legend';
import { inUtc, local, type Bounds, zoomed } from './time';
import { inUnit, roundSteps, type Unit } from './unit';

/** Line is one series to draw; its values are at the steps of the bounds, null where there is none. */
export interface Line {
  labels: Labels;
  /** of is the letter of the query that it answers. */
  of: string;
  values: (number | null)[];
  /** right says that its axis is the one on the right. */
  right?: boolean;
}

/** useTheme changes whenever colours do. */
export function useTheme(): number {
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const again = () => setTheme((n) => n + 1);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    window.addEventListener('themechange', again);
    dark.addEventListener('change', again);
    return () => {
      window.removeEventListener('themechange', again);
      dark.removeEventListener('change', again);
    };
  }, []);
  return theme;
}

// These are told apart by most people, on light and on dark ground.
const colours = ['#3d85c6', '#e0762f', '#2f9e6e', '#b05fcc', '#d5506b', '#8a8a1f', '#1f9d9d', '#7b6fe0', '#a86a3d', '#6f8299'];

export const colourOf = (i: number) => colours[i % colours.length]!;

/** aligned puts the samples of an answer on the grid. */
export function aligned(samples: [number, string][], b: Bounds): (number | null)[] {
  const values = new Array<number | null>(Math.round((b.end - b.start) / b.step) + 1).fill(null);
  for (const [t, v] of samples) values[Math.round((t - b.start) / b.step)] = number(v);
  return values;
}

/** drawable leaves out what no line can show; the legend says it. */
export function drawable(values: (number | null)[]): (number | null)[] {
  return values.map((v) => (v !== null && isFinite(v) ? v : null));
}

/** Layer is one line of a stack: its area lies between below and above. Both are null where the line has no value. */
export interface Layer {
  below: (number | null)[];
  above: (number | null)[];
}

/** stacked puts each line on the sum of the lines before it; a missing value adds nothing to the sum. */
export function stacked(all: (number | null)[][]): Layer[] {
  const sums: number[] = [];
  return all.map((values) => {
    const below = values.map((v, i) => (v === null ? null : sums[i] ?? 0));
    const above = values.map((v, i) => (v === null ? null : (sums[i] = (sums[i] ?? 0) + v)));
    return { below, above };
  });
}

/** resolved is a colour of style.css as the canvas needs it. */
export function resolved(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

interface Props {
  lines: Line[];
  bounds: Bounds;
  /** letters shows which query a series answers. */
  letters: boolean;
  /** stack draws each line on those before, log the axis by powers of ten. */
  stack: boolean;
  log: boolean;
  /** units are those of the axes on the left and on the right. */
  units: [Unit | undefined, Unit | undefined];
  exemplars: Exemplar[];
  onZoom: (from: number, to: number) => void;
  onDown: (e: MouseEvent) => void;
}

const height = 320;

export function Graph({ lines, bounds, letters, stack, log, units, exemplars, onZoom, onDown }: Props) {
  const at = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const [cursor, setCursor] = useState<number | null>(null);
  const [near, setNear] = useState<number | null>(null);
  const [found, setFound] = useState<Exemplar | null>(null);
  const [only, setOnly] = useState<Set<number>>(new Set());
  const theme = useTheme();
  const stats = useMemo(() => lines.map((l) => statsOf(l.values)), [lines]);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const late = useRef({ units, exemplars });
  late.current = { units, exemplars };

  const times = useMemo(() => {
    const n = Math.round((bounds.end - bounds.start) / bounds.step) + 1;
    return Array.from({ length: n }, (_, i) => bounds.start + i * bounds.step);
  }, [bounds]);

  useEffect(() => setOnly(new Set()), [lines]);
  // At once: what is shown must not change under a mouse button that has gone down since.
  useLayoutEffect(() => {
    const box = at.current!;
    const axis: uPlot.Axis = {
      stroke: resolved('--muted'), font: '12px system-ui, sans-serif',
      grid: { stroke: resolved('--grid'), width: 1 }, ticks: { stroke: resolved('--grid'), width: 1, size: 4 },
    };
    const shown = lines.map((l) => drawable(l.values));
    const layers = stack ? onEach(lines, shown, stacked) : [];
    const data = stack ? layers.map((l) => l.above) : shown;
    // Powers of ten have no place for what isn't above 0.
    const drawnData = log ? data.map((values) => values.map((v) => (v !== null && v > 0 ? v : null))) : data;
    const options: uPlot.Options = {
      width: box.clientWidth, height, legend: { show: false },
      tzDate: (at) => (inUtc() ? uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') : new Date(at * 1000)),
      cursor: { drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 7 } },
      focus: { alpha: lines.length > 1 ? 0.35 : 1 },
      scales: { x: { time: true, range: () => [bounds.start, Math.max(bounds.end, bounds.start + bounds.step)] }, ...(log ? { y: { distr: 3 as const }, right: { distr: 3 as const } } : stack && { y: { range: fromZero }, right: { range: fromZero } }) },
      axes: [
        { ...axis, space: 70, size: 34, values: timeLabels },
        { ...axis, ...inUnits(() => late.current.units[0], log), scale: 'y' },
        ...(lines.some((l) => l.right) ? [{ ...axis, ...inUnits(() => late.current.units[1], log), scale: 'right', side: 1 as const, grid: { show: false } }] : []),
      ],
      series: [
        {},
        ...lines.map((line, i) => ({
          label: selector(line.labels), stroke: colourOf(i), width: 1.5, spanGaps: false, scale: line.right ? 'right' : 'y',
          ...(line.right && { dash: [6, 3] }),
          points: { show: lonely(drawnData[i]!), size: 4, fill: colourOf(i) },
        })),
      ],
      hooks: {
        drawAxes: [(u) => layers.forEach((l, i) => u.series[i + 1]!.show && area(u, l, lines[i]!.right ? 'right' : 'y', colourOf(i) + '70'))],
        draw: [(u) => diamonds(u, late.current.exemplars, resolved('--text'), resolved('--panel'))],
        setCursor: [(u) => {
          setCursor(u.cursor.idx ?? null);
          setFound(u.cursor.left! < 0 ? null : nearest(u, late.current.exemplars));
        }],
        setSeries: [(_, i) => setNear(i === null || i === undefined ? null : i - 1)],
        setSelect: [(u) => {
          if (u.select.width > 4) zoom.current(u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x'));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };
    const u = new uPlot(options, [times, ...drawnData] as uPlot.AlignedData, box);
    plot.current = u;
    const resize = new ResizeObserver(() => u.setSize({ width: box.clientWidth, height }));
    resize.observe(box);
    return () => {
      resize.disconnect();
      u.destroy();
    };
  }, [lines, bounds, theme, stack, log]);
  // These come later than the lines, and the graph is only drawn again then: made anew, it would lose the cursor.
  useEffect(() => plot.current?.redraw(false, true), [units[0], units[1], exemplars]);

  const toggle = (i: number, add: boolean) => {
    const next = new Set(add ? only : []);
    if (only.has(i) && (add || only.size === 1)) next.delete(i);
    else next.add(i);
    setOnly(next);
    plot.current?.batch(() => lines.forEach((_, k) => plot.current!.setSeries(k + 1, { show: !next.size || next.has(k) })));
  };

  const move = (idx: number | null, line: number | null) => {
    const u = plot.current;
    if (!u) return;
    // At the line itself, for uPlot takes the one that is nearest.
    const value = idx === null || line === null ? null : u.data[line + 1]?.[idx];
    u.setCursor(idx === null ? { left: -10, top: -10 } : { left: u.valToPos(times[idx]!, 'x'), top: typeof value === 'number' ? u.valToPos(value, lines[line!]!.right ? 'right' : 'y') : 10 });
    setCursor(idx);
    setNear(line);
  };
  const keys = (e: KeyboardEvent) => {
    const last = times.length - 1;
    const line = Math.min(near ?? 0, lines.length - 1);
    const to: Record<string, [number, number]> = {
      ArrowLeft: [Math.max(0, (cursor ?? last + 1) - 1), line], ArrowRight: [Math.min(last, (cursor ?? last - 1) + 1), line], Home: [0, line], End: [last, line],
      ArrowUp: [cursor ?? last, Math.max(0, (near ?? 1) - 1)], ArrowDown: [cursor ?? last, Math.min(lines.length - 1, (near ?? -1) + 1)],
    };
    const next = to[e.key];
    const range = zoomed(e.key, bounds, cursor === null ? undefined : times[cursor]);
    if (!(next || range) || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    if (next) move(...next);
    else zoom.current(...range!);
  };
  const tip = cursor !== null && near !== null && lines[near] && times[cursor] !== undefined && plot.current
    ? { line: near, left: plot.current.valToPos(times[cursor]!, 'x') + plot.current.over.offsetLeft } : null;

  return (
    <div class="graph">
      <div class="plot" ref={at} tabIndex={0} role="group" aria-label="Graph. The left and right arrow keys move in time, the up and down arrow keys select a series, plus and minus zoom." onMouseDown={onDown} onKeyDown={keys} onBlur={() => move(null, null)} />
      {tip && (
        <div class="hover" aria-live="polite" style={tip.left > (at.current?.clientWidth ?? 0) / 2 ? { right: `${(at.current?.clientWidth ?? 0) - tip.left + 12}px` } : { left: `${tip.left + 12}px` }}>
          <span class="small">{local(times[cursor!]!)}</span>
          <span><i class="swatch" style={{ background: colourOf(tip.line) }} /> <code>{selector(lines[tip.line]!.labels)}</code></span>
          <b class="hover-value">{hoverText(lines[tip.line]!.values[cursor!])}</b>
          <InUnit value={lines[tip.line]!.values[cursor!]} unit={units[lines[tip.line]!.right ? 1 : 0]} />
          {found && <span class="found">◆ {local(found.at)} <b>{hoverText(found.value)}</b> <code>{selector(found.labels)}</code></span>}
        </div>
      )}
      <p class="plot-time">
        {cursor === null || times[cursor] === undefined ? 'Latest values. To zoom in, drag across the graph or press +.' : local(times[cursor]!)}
      </p>
      <Legend lines={lines} stats={stats} cursor={cursor} near={near} only={only} letters={letters} toggle={toggle} />
    </div>
  );
}

/** InUnit is a value as its axis would write it, where that says more than the number. */
function InUnit({ value, unit }: { value: number | null | undefined; unit?: Unit }) {
  if (!unit || value === null || value === undefined) return null;
  return <span class="small">{inUnit(value, unit)}</span>;
}

/** inUnits makes an axis write its values in a unit. On a logarithmic one distances aren't even. */
function inUnits(unit: () => Unit | undefined, log: boolean): Partial<uPlot.Axis> {
  return { size: axisWidth, gap: 6, values: (_, all, __, ___, tick) => all.map((v) => (v === null ? '' : inUnit(v, unit(), log ? undefined : tick))), ...(!log && { incrs: () => roundSteps(unit()) }) };
}

/** fromZero is the range of an axis whose layers stand on 0. */
function fromZero(_: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax {
  return min === null || max === null ? [null, null] : uPlot.rangeNum(Math.min(0, min), Math.max(0, max), 0.1, true);
}

/** area fills a layer of a stack, from gap to gap. uPlot's bands would leave it empty where the line below has a gap. */
function area(u: uPlot, { below, above }: Layer, scale: string, colour: string) {
  const times = u.data[0];
  const { left, top, width, height } = u.bbox;
  // A logarithmic axis has no place for 0: its lower end is as far down as a layer is drawn.
  const y = (v: number) => {
    const at = u.valToPos(v, scale, true);
    return isFinite(at) ? at : top + height;
  };
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(left, top, width, height);
  u.ctx.clip();
  u.ctx.fillStyle = colour;
  for (let from = 0; from < above.length; from++) {
    if (above[from] === null) continue;
    let to = from;
    while (to + 1 < above.length && above[to + 1] !== null) to++;
    u.ctx.beginPath();
    for (let i = from; i <= to; i++) u.ctx.lineTo(u.valToPos(times[i]!, 'x', true), y(above[i]!));
    for (let i = to; i >= from; i--) u.ctx.lineTo(u.valToPos(times[i]!, 'x', true), y(below[i]!));
    u.ctx.fill();
    from = to;
  }
  u.ctx.restore();
}

/** onEach applies f to the lines of each axis by themselves. */
function onEach<T, R>(lines: Line[], all: T[], f: (some: T[]) => R[]): R[] {
  const out: R[] = [];
  for (const right of [false, true]) {
    const places = lines.flatMap((l, i) => (!!l.right === right ? [i] : []));
    f(places.map((i) => all[i]!)).forEach((one, k) => (out[places[k]!] = one));
  }
  return out;
}

/** place is where an exemplar is drawn, pixels of the canvas; what lies beyond the axis stands at its end. */
function place(u: uPlot, e: Exemplar): [number, number] | null {
  const { min, max } = u.scales['y']!;
  if (min === undefined || max === undefined || min === null || max === null || !isFinite(e.value)) return null;
  return [u.valToPos(e.at, 'x', true), u.valToPos(Math.min(max, Math.max(min, e.value)), 'y', true)];
}

function diamonds(u: uPlot, all: Exemplar[], colour: string, around: string) {
  const size = 4.5 * devicePixelRatio;
  u.ctx.save();
  u.ctx.fillStyle = colour;
  u.ctx.strokeStyle = around;
  for (const e of all) {
    const at = place(u, e);
    if (!at) continue;
    const [x, y] = at;
    u.ctx.beginPath();
    u.ctx.moveTo(x, y - size);
    u.ctx.lineTo(x + size, y);
    u.ctx.lineTo(x, y + size);
    u.ctx.lineTo(x - size, y);
    u.ctx.closePath();
    u.ctx.fill();
    u.ctx.stroke();
  }
  u.ctx.restore();
}

/** nearest is the exemplar under the cursor. */
function nearest(u: uPlot, all: Exemplar[]): Exemplar | null {
  const { left, top } = u.cursor;
  const [x, y] = [left! * devicePixelRatio + u.bbox.left, top! * devicePixelRatio + u.bbox.top];
  let best = (9 * devicePixelRatio) ** 2;
  let found: Exemplar | null = null;
  for (const e of all) {
    const at = place(u, e);
    const d = at ? (at[0] - x) ** 2 + (at[1] - y) ** 2 : Infinity;
    if (d < best) [best, found] = [d, e];
  }
  return found;
}

/** lonely says that a line has points without neighbours, which a stroke wouldn't show. */
function lonely(values: (number | null)[]): boolean {
  return values.some((v, i) => v !== null && (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null);
}

/** axisWidth makes room for the longest number. */
export function axisWidth(u: uPlot, values: string[] | null, i: number, cycle: number): number {
  const axis = u.axes[i] as uPlot.Axis & { _size?: number };
  if (cycle > 1) return axis._size ?? 50;
  const longest = (values ?? []).reduce((n, v) => Math.max(n, v.length), 3);
  return Math.max(44, 18 + longest * 7);
}

/** timeLabels are as short as the distance between them allows; where a day begins, its date stands. */
export function timeLabels(_: uPlot, splits: number[], __: number, ___: number, distance: number): string[] {
  return splits.map((t) => {
    const text = local(t);
    if (distance >= 86400 * 27) return text.slice(0, 7);
    if (text.endsWith('00:00:00') || distance >= 86400) return text.slice(5, 10);
    return distance < 60 ? text.slice(11) : text.slice(11, 16);
  });
}
