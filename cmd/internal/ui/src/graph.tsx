// A graph of series over time, drawn with uPlot, with a legend that follows the cursor.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import type { Exemplar } from './exemplars';
import { number, selector, type Labels } from './format';
import { hoverText, Legend, statsOf } from './legend';
import { inUtc, local, type Bounds, zoomed } from './time';
import { inUnit, roundSteps, type Unit } from './unit';

/** Line is a series to draw. It has one value per step of the bounds, or null if there is no sample. */
export interface Line {
  labels: Labels;
  /** of is the letter of the query that returned the series. */
  of: string;
  values: (number | null)[];
  /** right is set if the line uses the axis on the right. */
  right?: boolean;
}

/** useTheme returns a number that changes whenever the colours change. */
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

// Most people can distinguish these colours, on light and dark backgrounds.
const colours = ['#3d85c6', '#e0762f', '#2f9e6e', '#b05fcc', '#d5506b', '#8a8a1f', '#1f9d9d', '#7b6fe0', '#a86a3d', '#6f8299'];

export const colourOf = (i: number) => colours[i % colours.length]!;

/** aligned assigns the samples of a response to the steps of the bounds. */
export function aligned(samples: [number, string][], b: Bounds): (number | null)[] {
  const values = new Array<number | null>(Math.round((b.end - b.start) / b.step) + 1).fill(null);
  for (const [t, v] of samples) values[Math.round((t - b.start) / b.step)] = number(v);
  return values;
}

/** drawable replaces the values that a line can't show, such as NaN, with null. The legend shows them. */
export function drawable(values: (number | null)[]): (number | null)[] {
  return values.map((v) => (v !== null && isFinite(v) ? v : null));
}

/** Layer is one line of a stack. Its area is between below and above. Both are null where the line has no value. */
export interface Layer {
  below: (number | null)[];
  above: (number | null)[];
}

/** stacked adds to each line the sum of the previous lines. A missing value counts as 0 in the sums. */
export function stacked(all: (number | null)[][]): Layer[] {
  const sums: number[] = [];
  return all.map((values) => {
    const below = values.map((v, i) => (v === null ? null : sums[i] ?? 0));
    const above = values.map((v, i) => (v === null ? null : (sums[i] = (sums[i] ?? 0) + v)));
    return { below, above };
  });
}

/** resolved returns a colour of style.css in the form that a canvas needs. */
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
  /** letters is set if the legend shows the letters of the queries. */
  letters: boolean;
  /** stack stacks the lines. log makes the axis logarithmic. */
  stack: boolean;
  log: boolean;
  /** units are the units of the left and of the right axis. */
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
  // This is a layout effect, so that the graph doesn't change after the user has pressed a mouse button on it.
  useLayoutEffect(() => {
    const box = at.current!;
    const axis: uPlot.Axis = {
      stroke: resolved('--muted'), font: '12px system-ui, sans-serif',
      grid: { stroke: resolved('--grid'), width: 1 }, ticks: { stroke: resolved('--grid'), width: 1, size: 4 },
    };
    const shown = lines.map((l) => drawable(l.values));
    const layers = stack ? onEach(lines, shown, stacked) : [];
    const data = stack ? layers.map((l) => l.above) : shown;
    // A logarithmic axis can't show values of 0 or less.
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
  // Units and exemplars arrive after the lines. They only cause a redraw, because a recreated graph would lose the
  // cursor.
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
    // Place the cursor on the line, because uPlot selects the nearest one.
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

/** InUnit shows a value as its axis formats it, if it has a unit. */
function InUnit({ value, unit }: { value: number | null | undefined; unit?: Unit }) {
  if (!unit || value === null || value === undefined) return null;
  return <span class="small">{inUnit(value, unit)}</span>;
}

/** inUnits makes an axis format its values in a unit. Ticks of a logarithmic axis aren't equidistant. */
function inUnits(unit: () => Unit | undefined, log: boolean): Partial<uPlot.Axis> {
  return { size: axisWidth, gap: 6, values: (_, all, __, ___, tick) => all.map((v) => (v === null ? '' : inUnit(v, unit(), log ? undefined : tick))), ...(!log && { incrs: () => roundSteps(unit()) }) };
}

/** fromZero returns a range that includes 0, for the axis of a stack. */
function fromZero(_: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax {
  return min === null || max === null ? [null, null] : uPlot.rangeNum(Math.min(0, min), Math.max(0, max), 0.1, true);
}

/**
 * area fills a layer of a stack between its gaps. uPlot's bands can't be used because they leave the area empty where
 * the line below has a gap.
 */
function area(u: uPlot, { below, above }: Layer, scale: string, colour: string) {
  const times = u.data[0];
  const { left, top, width, height } = u.bbox;
  // A logarithmic axis can't show 0, so a layer that starts there starts at the lower end.
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

/** onEach applies f separately to the lines of each axis. */
function onEach<T, R>(lines: Line[], all: T[], f: (some: T[]) => R[]): R[] {
  const out: R[] = [];
  for (const right of [false, true]) {
    const places = lines.flatMap((l, i) => (!!l.right === right ? [i] : []));
    f(places.map((i) => all[i]!)).forEach((one, k) => (out[places[k]!] = one));
  }
  return out;
}

/**
 * place returns the position of an exemplar in pixels of the canvas. Values outside of the axis are placed at its end.
 */
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

/** nearest returns the exemplar under the cursor, or null. */
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

/** lonely reports whether a line has points without neighbours, which a stroke doesn't show. */
function lonely(values: (number | null)[]): boolean {
  return values.some((v, i) => v !== null && (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null);
}

/** axisWidth returns the width that an axis needs for its longest number. */
export function axisWidth(u: uPlot, values: string[] | null, i: number, cycle: number): number {
  const axis = u.axes[i] as uPlot.Axis & { _size?: number };
  if (cycle > 1) return axis._size ?? 50;
  const longest = (values ?? []).reduce((n, v) => Math.max(n, v.length), 3);
  return Math.max(44, 18 + longest * 7);
}

/** timeLabels returns labels that are as short as their distance allows. At the start of a day, it returns the date. */
export function timeLabels(_: uPlot, splits: number[], __: number, ___: number, distance: number): string[] {
  return splits.map((t) => {
    const text = local(t);
    if (distance >= 86400 * 27) return text.slice(0, 7);
    if (text.endsWith('00:00:00') || distance >= 86400) return text.slice(5, 10);
    return distance < 60 ? text.slice(11) : text.slice(11, 16);
  });
}
