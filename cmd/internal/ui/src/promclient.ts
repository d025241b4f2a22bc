// The data source of the editor's completion: names and values of the tenant, up to a limit.
import type { Matcher } from '@prometheus-io/codemirror-promql/dist/esm/types';
import type { PrometheusClient } from '@prometheus-io/codemirror-promql/dist/esm/client/prometheus';
import { call, type Params } from './api';

type Metadata = Record<string, { type: string; help: string }[]>;

// Longer lists make completion slow and are of no use.
const limit = 10000;
// The time for which responses are cached, in milliseconds.
const fresh = 5 * 60_000;
// The length of the time range in which names are looked up, in seconds.
const lookBack = 12 * 3600;

/** Completion requests and caches the completions for one tenant. */
export class Completion implements PrometheusClient {
  private readonly known = new Map<string, { at: number; answer: Promise<unknown> }>();

  constructor(private readonly tenant: string) {}

  labelNames(metric?: string): Promise<string[]> {
    return this.ask<string[]>('labels', this.matching(metric), []);
  }

  labelValues(label: string, metric?: string, matchers?: Matcher[]): Promise<string[]> {
    return this.ask<string[]>(`label/${encodeURIComponent(label)}/values`, this.matching(metric, matchers, label), []);
  }

  metricNames(): Promise<string[]> {
    return this.labelValues('__name__');
  }

  metricMetadata(): Promise<Metadata> {
    return this.ask<Metadata>('metadata', { limit }, {});
  }

  series(metric: string, matchers?: Matcher[], label?: string): Promise<Map<string, string>[]> {
    return this.ask<Map<string, string>[]>('series', this.matching(metric, matchers, label), []);
  }

  flags(): Promise<Record<string, string>> {
    return Promise.resolve({});
  }

  /**
   * refuses returns a function that reports whether the server rejects a function, aggregation or modifier, by the
   * label of its completion.
   */
  async refuses(): Promise<(label: string) => boolean> {
    const all = await this.ask<Record<string, Record<string, boolean>>>('features', {}, {});
    const off = new Set(['promql', 'promql_functions', 'promql_operators'].flatMap((kind) => Object.entries(all[kind] ?? {}).flatMap(([name, on]) => (on ? [] : [name]))));
    const durations = all['promql']?.['duration_expr'] === false;
    // Duration functions have the same names as functions of vectors, but their labels contain parentheses.
    return (label) => off.has(label) || (durations && /^(step|range|min_of|max_of)\(/.test(label));
  }

  private matching(metric?: string, matchers: Matcher[] = [], but?: string): Params {
    const parts = matchers
      .filter((m) => m.name !== but && m.value !== '')
      .map((m) => `${m.name}${['=', '=~', '!=', '!~'].includes(String(m.type)) ? m.type : '='}${JSON.stringify(m.value)}`);
    const text = `${metric ?? ''}${parts.length ? `{${parts.join(',')}}` : ''}`;
    return { 'match[]': text || undefined, limit };
  }

  private ask<T>(path: string, params: Params, otherwise: T): Promise<T> {
    const key = JSON.stringify([path, params]);
    const found = this.known.get(key);
    if (found && Date.now() - found.at < fresh) return found.answer as Promise<T>;
    const now = Math.floor(Date.now() / 1000);
    const when = path === 'metadata' || path === 'features' ? {} : { start: now - lookBack, end: now };
    // Errors are ignored: completion that is missing is better than an error at every keystroke.
    const answer = call<T>(path, { ...params, ...when }, { tenant: this.tenant }).then(
      (a) => a.data,
      () => {
        this.known.delete(key);
        return otherwise;
      },
    );
    this.known.set(key, { at: Date.now(), answer });
    return answer;
  }
}
