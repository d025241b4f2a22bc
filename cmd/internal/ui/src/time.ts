// Parsing and formatting of times such as now, now-6h and 2026-11-22 07:15.

const units: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400, w: 604800, y: 31536000 };

/** seconds parses a duration such as 90s or 1h30m. It returns NaN if the text isn't a duration. */
export function seconds(text: string): number {
  const all = [...text.matchAll(/(\d+(?:\.\d+)?)([smhdwy])/g)];
  if (!all.length || all.map((m) => m[0]).join('') !== text) return NaN;
  return all.reduce((sum, m) => sum + Number(m[1]) * units[m[2]!]!, 0);
}

/** duration formats seconds briefly, such as 1m30s for 90. */
export function duration(value: number): string {
  if (value < 1) return value === 0 ? '0s' : `${Math.round(value * 1000)}ms`;
  let left = Math.round(value);
  const parts: string[] = [];
  for (const unit of ['d', 'h', 'm', 's']) {
    const n = Math.floor(left / units[unit]!);
    if (n > 0) parts.push(n + unit);
    left -= n * units[unit]!;
    if (parts.length === 2) break;
  }
  return parts.join('');
}

// utcZone is set if times are parsed and formatted in UTC instead of the browser's time zone.
let utcZone = false;

/** inUtc reports whether times are in UTC. */
export const inUtc = () => utcZone;

/** setUtc selects UTC or the browser's time zone. */
export function setUtc(utc: boolean): void {
  utcZone = utc;
}

/**
 * instant parses a time and returns seconds since 1970, or NaN if the text isn't a time. A time without a zone is in
 * the selected time zone.
 */
export function instant(text: string, now: number): number {
  const t = text.trim();
  if (t === 'now') return now;
  const ago = /^now-(.+)$/.exec(t);
  if (ago) return now - seconds(ago[1]!);
  if (/^\d{9,11}(\.\d+)?$/.test(t)) return Number(t);
  if (!/^\d{4}-\d{2}-\d{2}/.test(t)) return NaN;
  const dateOnly = /^\d{4}-\d{2}-\d{2}$/.test(t);
  const full = dateOnly ? t + 'T00:00' : t.replace(' ', 'T');
  const zoned = /(Z|[+-]\d{2}:?\d{2})$/.test(full.slice(10));
  return Date.parse(utcZone && !zoned ? full + 'Z' : full) / 1000;
}

const two = (n: number) => String(n).padStart(2, '0');

/** local formats a time in the selected time zone. */
export function local(at: number): string {
  const d = new Date(at * 1000);
  if (isNaN(d.getTime())) return '';
  if (utcZone) return d.toISOString().slice(0, 19).replace('T', ' ');
  const date = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  return `${date} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** day formats the date of a time in UTC, because windows and slots start at UTC times. */
export function day(at: string | number): string {
  return new Date(at).toISOString().slice(0, 10);
}

/** utc formats a time in UTC, without seconds. */
export function utc(at: string | number): string {
  return new Date(at).toISOString().slice(0, 16).replace('T', ' ');
}

/** about formats a long duration with one unit. */
export function about(value: number): string {
  const days = value / 86400;
  if (days >= 730) return `${+(days / 365).toFixed(1)} years`;
  return days >= 2 ? `${Math.round(days)} days` : duration(value);
}

/** lasting formats a retention, in whole days if possible. 0 means forever. */
export function lasting(s: number): string {
  if (s === 0) return 'forever';
  const days = s / 86400;
  if (!Number.isInteger(days)) return about(s);
  const years = days / 365;
  if (Number.isInteger(years)) return years === 1 ? '1 year' : `${years} years`;
  return days === 1 ? '1 day' : `${days} days`;
}

/** since formats how long ago a time was, or how far in the future it is. */
export function since(at: string, now = Date.now()): string {
  const s = (now - Date.parse(at)) / 1000;
  return s >= 0 ? `${about(s)} ago` : `in ${about(-s)}`;
}

const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time';

/** zone returns the name of the selected time zone. */
export const zone = () => (utcZone ? 'UTC' : browserZone);

// The min range in seconds when zooming with keys.
const closest = 20;

/** zoomed returns the range after a zoom key: + halves the range around a time, and - doubles it. */
export function zoomed(key: string, b: { start: number; end: number }, around: number | undefined): [number, number] | undefined {
  const width = b.end - b.start;
  const by = key === '+' || key === '=' ? 0.5 : key === '-' ? 2 : 0;
  if (!by || width * by < closest) return undefined;
  const middle = around ?? (b.start + b.end) / 2;
  const from = by < 1 ? Math.min(Math.max(b.start, middle - (width * by) / 2), b.end - width * by) : middle - (width * by) / 2;
  return [from, from + width * by];
}

/** Range is a time range as selected in the picker. instant parses both texts. */
export interface Range {
  from: string;
  to: string;
}

export const quickRanges: [string, string][] = [
  ['now-5m', '5 minutes'], ['now-15m', '15 minutes'], ['now-1h', '1 hour'], ['now-3h', '3 hours'], ['now-6h', '6 hours'],
  ['now-12h', '12 hours'], ['now-1d', '1 day'], ['now-2d', '2 days'], ['now-7d', '7 days'], ['now-30d', '30 days'],
  ['now-90d', '90 days'], ['now-1y', '1 year'], ['now-2y', '2 years'],
];

/** inWords formats a duration with the names of its units, such as 1 hour 30 minutes. */
function inWords(value: number): string {
  const names: Record<string, string> = { ms: 'millisecond', d: 'day', h: 'hour', m: 'minute', s: 'second' };
  return [...duration(value).matchAll(/(\d+)(ms|[dhms])/g)].map(([, n, unit]) => `${n} ${names[unit!]}${n === '1' ? '' : 's'}`).join(' ');
}

/** rangeText describes a range in words. */
export function rangeText(r: Range): string {
  const quick = quickRanges.find(([from]) => from === r.from);
  if (quick && r.to === 'now') return 'Last ' + quick[1];
  const ago = /^now-(.+)$/.exec(r.from);
  if (ago && r.to === 'now' && seconds(ago[1]!) > 0) return 'Last ' + inWords(seconds(ago[1]!));
  const show = (t: string) => {
    const past = /^now-(.+)$/.exec(t);
    if (past && seconds(past[1]!) > 0) return inWords(seconds(past[1]!)) + ' ago';
    return t === 'now' ? t : local(instant(t, 0)).replace(/:00$/, '') || t;
  };
  return `${show(r.from)} – ${show(r.to)}`;
}

/** Bounds is a range with absolute times, in seconds since 1970. */
export interface Bounds {
  start: number;
  end: number;
  step: number;
}

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** points is the max number of points in a graph: one per day of a year. */
export const points = 366;

/**
 * bounds returns the range with at most points steps. Long steps are multiples of the buckets of 5 minutes and of an
 * hour, and times are multiples of the step, because rollups then return exact results.
 */
export function bounds(r: Range, points: number, step: string, now = Date.now() / 1000): Bounds | string {
  const start = instant(r.from, now);
  const end = instant(r.to, now);
  if (isNaN(start)) return `Invalid start time “${r.from}”. Use for example now-6h or 2026-11-22 07:15.`;
  if (isNaN(end)) return `Invalid end time “${r.to}”. Use for example now or 2026-11-22 07:15.`;
  if (start >= end) return 'The start of the range must be before its end.';
  let width = seconds(step);
  if (isNaN(width) || width <= 0) {
    const least = (end - start) / points;
    width = steps.find((s) => s >= least) ?? Math.ceil(least / 604800) * 604800;
  }
  // Prometheus' API returns at most 11,000 points per series.
  width = Math.max(width, Math.ceil((end - start) / 10000));
  return { start: Math.ceil(start / width) * width, end: Math.floor(end / width) * width, step: width };
}
