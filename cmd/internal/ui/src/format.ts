// Formatting of numbers.

const large: [number, string][] = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

// Numbers from this one on have exponents.
const huge = 1e18;

/**
 * short formats a number: for a tile with four digits, and for an axis with as many digits as the distance between
 * ticks requires.
 */
export function short(v: number, tick?: number): string {
  if (!isFinite(v)) return v > 0 ? '+Inf' : v < 0 ? '-Inf' : 'NaN';
  if (tick && Math.abs(v) < tick / 1e6) return '0'; // Ticks are sums, which have rounding errors.
  const a = tick ? Math.abs(v) * (1 + 1e-12) : Number(Math.abs(v).toPrecision(4)); // 999.96 is displayed as 1k.
  if (a >= huge || (a !== 0 && a < 1e-3)) {
    const unit = 10 ** Math.floor(Math.log10(a));
    return v.toExponential(tick ? decimals(tick / unit) : a >= huge ? 3 : 2).replace(/(\.\d*?)0+e/, '$1e').replace('.e', 'e').replace('e+', 'e');
  }
  for (const [unit, letter] of large) if (a >= unit) return digits(v / unit, tick && tick / unit) + letter;
  return digits(v, tick);
}

/**
 * digits formats a number with four digits, or with as many as the distance to the next tick requires, without trailing
 * zeros.
 */
const digits = (v: number, tick?: number) => String(Number(tick ? v.toFixed(decimals(tick)) : v.toPrecision(4)));

/**
 * decimals returns the number of decimals needed to distinguish neighbouring ticks, or a few more if the distance then
 * is exact.
 */
function decimals(tick: number): number {
  const needed = Math.max(0, Math.ceil(-Math.log10(tick) - 1e-9));
  for (let n = needed; n < needed + 2; n++) {
    const scaled = tick * 10 ** n;
    if (Math.abs(scaled - Math.round(scaled)) < 1e-6 * scaled) return Math.min(n, 15);
  }
  return Math.min(needed + 2, 15);
}

/** exact formats a number as the shortest text that parses to the same bits. */
export function exact(v: number): string {
  if (!isFinite(v)) return short(v);
  return Object.is(v, -0) ? '-0' : String(v);
}

/** number parses a sample's value in the format of the API or of exact. */
export function number(text: string): number {
  if (text === '+Inf' || text === 'Inf') return Infinity;
  return text === '-Inf' ? -Infinity : Number(text);
}

/** count formats an integer with thousands separators. */
export function count(v: number): string {
  return v.toLocaleString('en-US', { maximumFractionDigits: 0 });
}

/** bytes formats a size, or a tick on an axis of sizes. */
export function bytes(v: number, tick?: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let i = 0;
  while (Math.round(v) >= 1024 && i < units.length - 1) {
    v /= 1024;
    i++;
  }
  if (tick) return `${v >= 1024 ? short(v, tick / 1024 ** i) : digits(v, tick / 1024 ** i)} ${units[i]}`;
  return `${i === 0 || v >= 99.95 ? Math.round(v) : v.toFixed(1)} ${units[i]}`;
}

/** plural returns a number followed by its noun. */
export function plural(n: number, noun: string): string {
  if (n === 1) return `1 ${noun}`;
  if (noun === 'series') return `${count(n)} series`;
  return `${count(n)} ${noun}s`;
}

/** observations formats the exact count of a histogram, which may be a fraction. */
export function observations(text: string): string {
  const n = exact(number(text));
  return n === '1' ? '1 observation' : `${n} observations`;
}

/** Labels are the labels of a series in the format of the API. */
export type Labels = Record<string, string>;

const quoted = (v: string) => '"' + v.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n') + '"';
const plainName = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const plainLabel = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

/** selector formats labels as a PromQL selector. */
export function selector(labels: Labels): string {
  const name = labels['__name__'] ?? '';
  const inside = Object.keys(labels)
    .filter((l) => l !== '__name__')
    .map((l) => `${plainLabel.test(l) ? l : quoted(l)}=${quoted(labels[l]!)}`);
  if (name && !plainName.test(name)) inside.unshift(quoted(name));
  const shown = plainName.test(name) ? name : '';
  return inside.length || !shown ? `${shown}{${inside.join(', ')}}` : shown;
}
