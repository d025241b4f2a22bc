// The series of an instant query as rows: sorting, filtering, and CSV.
import { exact, number, selector } from './format';
import type { Series } from './results';

export interface Order {
  by: '' | 'series' | 'value';
  down: boolean;
}

/** textOf returns the exact value of a series for a table. For a histogram, it returns the number of observations. */
export function textOf(s: Series): string {
  return s.value ? exact(number(s.value[1])) : s.histogram ? exact(number(s.histogram[1].count)) : '';
}

/** labelNames returns the sorted names of all labels of the series. */
export function labelNames(all: Series[]): string[] {
  return [...new Set(all.flatMap((s) => Object.keys(s.metric)))].sort();
}

// compare defines a total order: NaN is less than any number, and -0 is less than 0.
function compare(a: number, b: number): number {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(b)) - Number(Number.isNaN(a));
  if (a === 0 && b === 0) return Number(Object.is(b, -0)) - Number(Object.is(a, -0));
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * shownRows returns the series that contain every word of the text, in the selected order. If no order is selected, it
 * keeps the order of the response.
 */
export function shownRows(all: Series[], order: Order, text: string): Series[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = all.filter((s) => {
    const own = `${selector(s.metric)} ${textOf(s)}`.toLowerCase();
    return words.every((w) => own.includes(w));
  });
  if (!order.by) return rows;
  const sign = order.down ? -1 : 1;
  return rows.sort((a, b) => {
    const by = order.by === 'value' ? compare(number(textOf(a)), number(textOf(b))) : selector(a.metric) < selector(b.metric) ? -1 : 1;
    return sign * by;
  });
}

const quoted = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

// Spreadsheets interpret texts that start with these characters as formulas, which anyone who sends samples could
// inject. Numbers are written without safe, because they can't contain a formula.
const safe = (text: string) => quoted(/^[=+\-@\t]/.test(text) ? `'${text}` : text);

/** csv returns rows with one column per label, the time in seconds, and the exact value. */
export function csv(rows: Series[]): string {
  const names = labelNames(rows);
  const lines = rows.map((s) => [
    ...names.map((n) => safe(s.metric[n] ?? '')), String(s.value?.[0] ?? s.histogram?.[0] ?? ''), quoted(textOf(s)),
  ]);
  return [[...names.map(safe), 'timestamp', 'value'], ...lines].map((cells) => cells.join(',') + '\r\n').join('');
}
