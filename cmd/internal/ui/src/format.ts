// Numbers for people.

const large: [number, string][] = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

/** short writes a number for an axis or a tile, with four digits of it. */
export function short(v: number): string {
  if (!isFinite(v)) return v > 0 ? '+Inf' : v < 0 ? '-Inf' : 'NaN';
  const a = Number(Math.abs(v).toPrecision(4)); // 999.96 is 1k.
  for (const [unit, letter] of large) if (a >= unit) return trim(v / unit) + letter;
  if (a !== 0 && a < 1e-3) return v.toExponential(2).replace(/\.?0+e/, 'e');
  return trim(v);
}

const trim = (v: number) => String(Number(v.toPrecision(4)));

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

/** bytes writes a size. */
export function bytes(v: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = 0;
  while (Math.round(v) >= 1024 && i < units.length - 1) {
    v /= 1024;
    i++;
  }
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
