// A heat map of histograms, with axes drawn by uPlot and cells drawn here.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { exact, plural, short } from './format';
import { axisWidth, resolved, timeLabels, useTheme } from './graph';
import { rowText, type Heat } from './heat';
import { inUtc, local, type Bounds, zoomed } from './time';
import { inUnit, type Unit } from './unit';

const height = 320;

interface Props {
  heat: Heat;
  bounds: Bounds;
  /** unit is the unit of the observations. */
  unit?: Unit;
  onZoom: (from: number, to: number) => void;
  onDown: (e: MouseEvent) => void;
}

interface Cell {
  row: number;
  column: number;
}

export function Heatmap({ heat, bounds, unit, onZoom, onDown }: Props) {
  const at = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const [cell, setCell] = useState<Cell | null>(null);
  const theme = useTheme();
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const times = useMemo(() => heat.counts[0]!.map((_, i) => bounds.start + i * bounds.step), [heat, bounds]);
  // The unit arrives after the heat map. It only causes a redraw, because a recreated heat map would lose the cursor.
  const write = useRef((v: number) => inUnit(v, unit));
  write.current = (v) => inUnit(v, unit);
  useEffect(() => plot.current?.redraw(false, true), [unit]);

  // This is a layout effect, so that the heat map doesn't change after the user has pressed a mouse button on it.
  useLayoutEffect(() => {
    const box = at.current!;
    const axis: uPlot.Axis = {
      stroke: resolved('--muted'), font: '12px system-ui, sans-serif', grid: { show: false }, ticks: { stroke: resolved('--grid'), width: 1, size: 4 },
    };
    const colour = resolved('--accent');
    // The axis has numbers at the edges of rows, but not more than fit.
    const every = Math.ceil(heat.rows.length / 12);
    const splits = heat.rows.map((_, i) => i + 1).filter((i) => i % every === 0);
    const options: uPlot.Options = {
      width: box.clientWidth, height, legend: { show: false },
      tzDate: (t) => (inUtc() ? uPlot.tzDate(new Date(t * 1000), 'Etc/UTC') : new Date(t * 1000)),
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
      scales: { x: { time: true, range: () => [bounds.start - bounds.step / 2, bounds.end + bounds.step / 2] }, y: { range: () => [0, heat.rows.length] } },
      axes: [
        { ...axis, space: 70, size: 34, values: timeLabels },
        { ...axis, size: axisWidth, gap: 6, splits: () => splits, values: (_, all) => all.map((i) => (i === null ? '' : write.current(heat.rows[i - 1]!.to))) },
      ],
      series: [{}, { show: false }],
      hooks: {
        draw: [(u) => cells(u, heat, times, bounds.step, colour)],
        setCursor: [(u) => {
          const { left = -1, top = -1 } = u.cursor;
          setCell(left < 0 ? null : {
            column: Math.min(times.length - 1, Math.max(0, Math.round((u.posToVal(left, 'x') - bounds.start) / bounds.step))),
            row: Math.min(heat.rows.length - 1, Math.max(0, Math.floor(u.posToVal(top, 'y')))),
          });
        }],
        setSelect: [(u) => {
          if (u.select.width > 4) zoom.current(u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x'));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
      },
    };
    const u = new uPlot(options, [times, times.map(() => null)] as uPlot.AlignedData, box);
    plot.current = u;
    const resize = new ResizeObserver(() => u.setSize({ width: box.clientWidth, height }));
    resize.observe(box);
    return () => {
      resize.disconnect();
      u.destroy();
    };
  }, [heat, bounds, theme]);

  const keys = (e: KeyboardEvent) => {
    const [right, top] = [times.length - 1, heat.rows.length - 1];
    const now = cell ?? { column: right + 1, row: 0 };
    const to: Record<string, Cell> = {
      ArrowLeft: { ...now, column: Math.max(0, now.column - 1) }, ArrowRight: { ...now, column: Math.min(right, now.column + 1) },
      ArrowUp: { column: Math.min(right, now.column), row: Math.min(top, now.row + 1) }, ArrowDown: { column: Math.min(right, now.column), row: Math.max(0, now.row - 1) },
      Home: { ...now, column: 0 }, End: { ...now, column: right },
    };
    const next = to[e.key];
    const range = zoomed(e.key, bounds, cell ? times[cell.column] : undefined);
    const u = plot.current;
    if (!(next || range) || !u || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    if (!next) return zoom.current(...range!);
    u.setCursor({ left: u.valToPos(times[next.column]!, 'x'), top: u.valToPos(next.row + 0.5, 'y') });
    setCell(next);
  };
  const left = cell && plot.current ? plot.current.valToPos(times[cell.column]!, 'x') + plot.current.over.offsetLeft : 0;
  const width = at.current?.clientWidth ?? 0;
  return (
    <div class="graph">
      <div class="plot heat" ref={at} tabIndex={0} role="group" aria-label="Heatmap. The left and right arrow keys move in time, the up and down arrow keys select a bucket, plus and minus zoom." onMouseDown={onDown} onKeyDown={keys} onBlur={() => setCell(null)} />
      {cell && heat.rows[cell.row] && (
        <div class="hover" aria-live="polite" style={left > width / 2 ? { right: `${width - left + 12}px` } : { left: `${left + 12}px` }}>
          <span class="small">{local(times[cell.column]!)}</span>
          <span>{rowText(heat.rows[cell.row]!, write.current)}</span>
          <b class="hover-value">{exact(heat.counts[cell.row]![cell.column]!)}</b>
        </div>
      )}
      <p class="plot-time">{plural(heat.rows.length, 'bucket')}, max value of a cell: {short(heat.most)}. To zoom in, drag across the heatmap or press +.</p>
    </div>
  );
}

/**
 * cells draws the counts above 0. The square root makes small counts, which most cells have, distinguishable from 0.
 */
function cells(u: uPlot, heat: Heat, times: number[], step: number, colour: string) {
  const { ctx } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  ctx.fillStyle = colour;
  const x = times.map((t) => Math.round(u.valToPos(t - step / 2, 'x', true)));
  x.push(Math.round(u.valToPos(times.at(-1)! + step / 2, 'x', true)));
  heat.counts.forEach((row, i) => {
    const [bottom, top] = [Math.round(u.valToPos(i, 'y', true)), Math.round(u.valToPos(i + 1, 'y', true))];
    row.forEach((v, k) => {
      if (!(v > 0)) return;
      ctx.globalAlpha = 0.08 + 0.92 * Math.sqrt(v / heat.most);
      ctx.fillRect(x[k]!, top, x[k + 1]! - x[k]!, bottom - top);
    });
  });
  ctx.restore();
}
