// What a metric means, and which query suits it.
import { selector } from './format';

export interface Meaning {
  type: string;
  help: string;
  unit: string;
}

export type Metadata = Record<string, Meaning[]>;

/** meaningOf finds what is known of a metric; series of classic histograms and summaries have their family's. */
export function meaningOf(name: string, all: Metadata): Meaning {
  const own = all[name]?.[0];
  if (own) return own;
  const family = /^(.+)_(bucket|sum|count|total)$/.exec(name);
  const found = family ? all[family[1]!]?.[0] : undefined;
  if (!found || !family) return { type: '', help: '', unit: '' };
  if (family[2] === 'total') return found.type === 'counter' ? found : { type: '', help: '', unit: '' };
  return found.type === 'histogram' || found.type === 'summary' ? { ...found, type: family[2] === 'bucket' ? 'histogram' : 'counter' } : { type: '', help: '', unit: '' };
}

/** suiting is the query that most people want of a metric: its type decides, or where that isn't known, its name. */
export function suiting(name: string, type: string): string {
  const s = selector({ __name__: name });
  if (name.endsWith('_bucket') && (type === 'histogram' || !type)) return `histogram_quantile(0.99, sum by (le) (rate(${s}[5m])))`;
  if (type === 'histogram' || type === 'gaugehistogram') return type === 'histogram' ? `histogram_quantile(0.99, sum(rate(${s}[5m])))` : `histogram_quantile(0.99, sum(${s}))`;
  if (type === 'counter' || (!type && /_(total|count|sum)$/.test(name))) return `rate(${s}[5m])`;
  return s;
}

/** matching are the names that have every word of the text, in themselves or in their help; those in themselves come first. */
export function matching(names: string[], all: Metadata, text: string): string[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return names;
  const has = (where: string) => words.every((w) => where.toLowerCase().includes(w));
  const first = names.filter(has);
  const taken = new Set(first);
  return [...first, ...names.filter((n) => !taken.has(n) && has(`${n} ${meaningOf(n, all).help}`))];
}
