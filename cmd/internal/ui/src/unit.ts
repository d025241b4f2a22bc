// Units of query results: computed from metadata and names of metrics, through functions and operators. Without a
// definite unit, the result has none.
import { bytes, short } from './format';

/** Unit is a unit of values: one that axes can format, or a word from the metadata. */
export interface Unit {
  kind: 'bytes' | 'seconds' | 'ratio' | 'percent' | 'other';
  /** word follows a number if the kind is other. */
  word: string;
  /** perSecond is set if the unit is a rate. */
  perSecond: boolean;
}

/** Tree is a parsed query, as returned by parse_query. */
export interface Tree {
  type: string;
  name?: string;
  val?: string;
  op?: string;
  func?: { name: string };
  args?: Tree[];
  expr?: Tree | null;
  lhs?: Tree;
  rhs?: Tree;
  matchers?: { name: string; type: string; value: string }[];
}

const plain = (kind: Unit['kind'], word = ''): Unit => ({ kind, word, perSecond: false });

const words: Record<string, Unit> = {
  bytes: plain('bytes'), byte: plain('bytes'), by: plain('bytes'), seconds: plain('seconds'), second: plain('seconds'), s: plain('seconds'),
  ratio: plain('ratio'), percent: plain('percent'), '%': plain('percent'), celsius: plain('other', '°C'), volts: plain('other', 'V'), amperes: plain('other', 'A'),
  joules: plain('other', 'J'), grams: plain('other', 'g'), meters: plain('other', 'm'), hertz: plain('other', 'Hz'), watts: plain('other', 'W'),
};

/** unitOfMetric returns the unit of a metric from its metadata or, if they have none, from the end of its name. */
export function unitOfMetric(name: string, told: string): Unit | undefined {
  const known = words[told.toLowerCase()];
  if (known) return known;
  if (told) return plain('other', told);
  const base = name.replace(/_(total|sum|bucket|max|min|avg)$/, '');
  if (/_(info|count|created|timestamp_seconds|time_seconds)$/.test(name)) return undefined;
  return words[/_([a-z]+)$/.exec(base)?.[1] ?? ''];
}

const without = new Set(['count', 'count_values', 'group', 'count_over_time', 'changes', 'resets', 'absent', 'absent_over_time', 'present_over_time', 'time', 'timestamp',
  'histogram_count', 'histogram_fraction', 'sgn', 'stdvar', 'stdvar_over_time', 'histogram_stdvar', 'exp', 'ln', 'log2', 'log10', 'sqrt', 'hour', 'minute', 'month', 'year', 'day_of_week',
  'day_of_month', 'day_of_year', 'days_in_month', 'vector', 'scalar', 'label_replace_', 'pi', 'deg', 'rad']);
const rates = new Set(['rate', 'irate', 'deriv']);

const same = (a: Unit, b: Unit) => a.kind === b.kind && a.word === b.word && a.perSecond === b.perSecond;

/** metricsOf returns the names of the metrics in a query. */
export function metricsOf(tree: Tree): string[] {
  const out = new Set<string>();
  const walk = (t: Tree | null | undefined) => {
    if (!t) return;
    if (/selector/i.test(t.type)) {
      const name = t.name || t.matchers?.find((m) => m.name === '__name__' && m.type === '=')?.value;
      if (name) out.add(name);
    }
    for (const part of [t.expr, t.lhs, t.rhs, ...(t.args ?? [])]) walk(part);
  };
  walk(tree);
  return [...out];
}

/** unitOf returns the unit of a query's result. of returns the unit of a metric. */
export function unitOf(tree: Tree | null | undefined, of: (metric: string) => Unit | undefined): Unit | undefined {
  if (!tree) return undefined;
  switch (tree.type) {
    case 'vectorSelector':
    case 'matrixSelector':
      return tree.name && !tree.name.endsWith('_bucket') ? of(tree.name) : undefined;
    case 'parenExpr':
    case 'unaryExpr':
    case 'subquery':
      return unitOf(tree.expr, of);
    case 'aggregation':
      return without.has(tree.op!) ? undefined : unitOf(tree.expr, of);
    case 'call':
      return ofCall(tree, of);
    case 'binaryExpr':
      return ofOperator(tree, of);
  }
  return undefined;
}

function ofCall(tree: Tree, of: (metric: string) => Unit | undefined): Unit | undefined {
  const name = tree.func!.name;
  const args = tree.args ?? [];
  if (without.has(name)) return undefined;
  if (/^histogram_quantile/.test(name)) {
    // The unit of the observations, which the name of the buckets contains.
    const metrics = args.flatMap(metricsOf);
    return metrics.length === 1 ? of(metrics[0]!.replace(/_bucket$/, '')) : undefined;
  }
  const unit = unitOf(/^quantile/.test(name) ? args[1] : args[0], of);
  if (!unit || unit.perSecond) return undefined;
  if (/^histogram_(avg|stddev)$/.test(name)) return unit.kind === 'ratio' ? plain('seconds') : unit;
  if (!rates.has(name)) return unit;
  return unit.kind === 'seconds' ? plain('ratio') : { ...unit, perSecond: true };
}

function ofOperator(tree: Tree, of: (metric: string) => Unit | undefined): Unit | undefined {
  const [l, r] = [unitOf(tree.lhs, of), unitOf(tree.rhs, of)];
  const number = (t?: Tree) => (t?.type === 'numberLiteral' ? Number(t.val) : undefined);
  const [ln, rn] = [number(tree.lhs), number(tree.rhs)];
  switch (tree.op) {
    case '/':
      if (l && r) return same(l, r) ? plain('ratio') : undefined;
      if (rn === 1 && l) return l;
      // A mean: a sum of seconds divided by the number of observations. The quotient of two rates isn't a rate.
      return l && rn === undefined && /_count|count/.test(JSON.stringify(tree.rhs)) ? { ...(l.kind === 'ratio' ? plain('seconds') : l), perSecond: false } : undefined;
    case '*':
      if (ln === 100 && r?.kind === 'ratio' || rn === 100 && l?.kind === 'ratio') return plain('percent');
      return ln === 8 && r?.kind === 'bytes' || rn === 8 && l?.kind === 'bytes' ? plain('other', l?.perSecond || r?.perSecond ? 'bit/s' : 'bit') : undefined;
    case '+':
    case '-':
      if (l && r) return same(l, r) ? l : undefined;
      // For example, 1 minus a ratio is a ratio.
      return (ln !== undefined ? r : rn !== undefined ? l : undefined);
    case '==': case '!=': case '<': case '>': case '<=': case '>=': case 'and': case 'unless': case '%':
      return l;
    case 'or':
      return l && r && same(l, r) ? l : undefined;
  }
  return undefined;
}

const spans: [number, string][] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']];

/** inUnit formats a value for an axis. tick is the distance between the labels of the axis, if they are equidistant. */
export function inUnit(v: number, unit?: Unit, tick?: number): string {
  if (!unit || !isFinite(v)) return short(v, tick);
  const rate = unit.perSecond ? '/s' : '';
  const less = v < 0 ? '-' : '';
  switch (unit.kind) {
    case 'bytes':
      return Math.abs(v) < 1 && v !== 0 ? `${short(v, tick)} B${rate}` : less + bytes(Math.abs(v), tick) + rate;
    case 'seconds': {
      const a = tick ? Math.abs(v) : Number(Math.abs(v).toPrecision(4));
      const [size, word] = spans.find(([s]) => a * (1 + 1e-12) >= s) ?? [1, 's'];
      if (a === 0 || tick && a < tick / 1e6) return '0 s';
      return a < 1e-9 ? `${short(v, tick)} s` : `${less}${short(a / size, tick && tick / size)} ${word}`;
    }
    case 'ratio':
      return `${short(Number((v * 100).toPrecision(12)), tick && tick * 100)}%`;
    case 'percent':
      return `${short(v, tick)}%`;
  }
  return `${short(v, tick)} ${unit.word}${rate}`;
}

const decimal = Array.from({ length: 65 }, (_, k) => [1, 2, 2.5, 5].map((n) => Number(`${n}e${k - 32}`))).flat();

/** roundSteps returns distances between grid lines that are round numbers in a unit. */
export function roundSteps(unit?: Unit): number[] {
  if (unit?.kind === 'bytes') {
    const parts = decimal.filter((s) => s < 1);
    return [...parts, ...Array.from({ length: 7 }, (_, k) => [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].map((n) => n * 1024 ** k)).flat()];
  }
  if (unit?.kind !== 'seconds') return decimal;
  const small = Array.from({ length: 10 }, (_, k) => [1, 2, 5].map((n) => Number(`${n}e${k - 9}`))).flat().filter((s) => s < 15);
  const days = Array.from({ length: 6 }, (_, k) => [1, 2, 5].map((n) => n * 86400 * 10 ** k)).flat();
  return [...small, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, ...days];
}

/** nameOf returns the name of a unit, for screen readers and next to exact values. */
export function nameOf(unit?: Unit): string {
  if (!unit) return '';
  const name = unit.kind === 'other' ? unit.word : { bytes: 'bytes', seconds: 'seconds', ratio: 'ratio', percent: 'percent' }[unit.kind];
  return name + (unit.perSecond ? ' per second' : '');
}
