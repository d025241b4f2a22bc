// Metadata of metrics, and a suitable query for each.
import { selector } from './format';

export interface Meaning {
  type: string;
  help: string;
  unit: string;
}

export type Metadata = Record<string, Meaning[]>;

/**
 * meaningOf returns the metadata of a metric. The series of classic histograms and summaries have the metadata of their
 * family.
 */
export function meaningOf(name: string, all: Metadata): Meaning {
  const own = all[name]?.[0];
  if (own) return own;
  const family = /^(.+)_(bucket|sum|count|total)$/.exec(name);
  const found = family ? all[family[1]!]?.[0] : undefined;
  if (!found || !family) return { type: '', help: '', unit: '' };
  if (family[2] === 'total') return found.type === 'counter' ? found : { type: '', help: '', unit: '' };
  return found.type === 'histogram' || found.type === 'summary' ? { ...found, type: family[2] === 'bucket' ? 'histogram' : 'counter' } : { type: '', help: '', unit: '' };
}

/**
 * suiting returns the query that most users want for a metric. It depends on the type or, if that is unknown, on the
 * name.
 */
export function suiting(name: string, type: string): string {
  const s = selector({ __name__: name });
  if (name.endsWith('_bucket') && (type === 'histogram' || !type)) return `histogram_quantile(0.99, sum by (le) (rate(${s}[5m])))`;
  if (type === 'histogram' || type === 'gaugehistogram') return type === 'histogram' ? `histogram_quantile(0.99, sum(rate(${s}[5m])))` : `histogram_quantile(0.99, sum(${s}))`;
  if (type === 'counter' || (!type && /_(total|count|sum)$/.test(name))) return `rate(${s}[5m])`;
  return s;
}

/**
 * matching returns the names that contain every word of the text, followed by those whose name and help together
 * contain them.
 */
export function matching(names: string[], all: Metadata, text: string): string[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return names;
  const has = (where: string) => words.every((w) => where.toLowerCase().includes(w));
  const first = names.filter(has);
  const taken = new Set(first);
  return [...first, ...names.filter((n) => !taken.has(n) && has(`${n} ${meaningOf(n, all).help}`))];
}
