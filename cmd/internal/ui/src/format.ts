// Numbers for people.

const large: [number, string][] = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

// From here on numbers have exponents.
const huge = 1e18;

/** short writes a number for a tile, with four digits, or for an axis, with as many as the distance between its ticks needs. */
export function short(v: number, tick?: number): string {
  if (!isFinite(v)) return v > 0 ? '+Inf' : v < 0 ? '-Inf' : 'NaN';
  if (tick && Math.abs(v) < tick / 1e6) return '0'; // Ticks are sums, which are off by little.
  const a = tick ? Math.abs(v) * (1 + 1e-12) : Number(Math.abs(v).toPrecision(4)); // 999.96 is 1k.
  if (a >= huge || (a !== 0 && a < 1e-3)) {
    const unit = 10 ** Math.floor(Math.log10(a));
    return v.toExponential(tick ? decimals(tick / unit) : a >= huge ? 3 : 2).replace(/(\.\d*?)0+e/, '$1e').replace('.e', 'e').replace('e+', 'e');
  }
  for (const [unit, letter] of large) if (a >= unit) return digits(v / unit, tick && tick / unit) + letter;
  return digits(v, tick);
}

/** digits writes a number with four digits, or with those that its distance to the next tick needs; zeros at the end are left out. */
const digits = (v: number, tick?: number) => String(Number(tick ? v.toFixed(decimals(tick)) : v.toPrecision(4)));

/** decimals is how many digits after the point tell neighbouring ticks apart: all of the distance's if it has few. */
function decimals(tick: number): number {
  const needed = Math.max(0, Math.ceil(-Math.log10(tick) - 1e-9));
  for (let n = needed; n < needed + 2; n++) {
    const scaled = tick * 10 ** n;
    if (Math.abs(scaled - Math.round(scaled)) < 1e-6 * scaled) return Math.min(n, 15);
  }
  return Math.min(needed + 2, 15);
}

/** exact writes a number with all of it: the shortest text that is read back as the same bits. */
export function exact(v: number): string {
  if (!isFinite(v)) return short(v);
  return Object.is(v, -0) ? '-0' : String(v);
}

/** number reads a sample's value, as the API writes it and exact does. */
export function number(text: string): number {
  if (text === '+Inf' || text === 'Inf') return Infinity;
  return text === '-Inf' ? -Infinity : Number(text);
}

/** count writes a whole number with its thousands apart. */
export function count(v: number): string {
  return v.toLocaleString('en-US', { maximumFractionDigits: 0 });
}

/** bytes writes a size, or a tick of an axis of sizes. */
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

/** plural puts a number before a noun. */
export function plural(n: number, noun: string): string {
  if (n === 1) return `1 ${noun}`;
  if (noun === 'series') return `${count(n)} series`;
  return `${count(n)} ${noun}s`;
}

/** observations writes the exact count of a histogram, which may be a fraction. */
export function observations(text: string): string {
  const n = exact(number(text));
  return n === '1' ? '1 observation' : `${n} observations`;
}

/** Labels are a series' as the API gives them. */
export type Labels = Record<string, string>;

const quoted = (v: string) => '"' + v.replace(/[\\"]/g, '\\$&').replace(/\n/g, '\\n') + '"';
const plainName = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const plainLabel = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

/** selector writes labels as PromQL. */
export function selector(labels: Labels): string {
  const name = labels['__name__'] ?? '';
  const inside = Object.keys(labels)
    .filter((l) => l !== '__name__')
    .map((l) => `${plainLabel.test(l) ? l : quoted(l)}=${quoted(labels[l]!)}`);
  if (name && !plainName.test(name)) inside.unshift(quoted(name));
  const shown = plainName.test(name) ? name : '';
  return inside.length || !shown ? `${shown}{${inside.join(', ')}}` : shown;
}
