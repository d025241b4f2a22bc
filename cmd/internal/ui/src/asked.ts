// The state of the view Explore, and its representation in the page's address.
import type { Range } from './time';

export const maxQueries = 10;

export type Tab = 'graph' | 'table' | 'explain' | 'json';

/** Asked is the part of the view's state that the address contains. */
export interface Asked {
  queries: string[];
  /** hidden contains the indexes of the queries that aren't run. */
  hidden: number[];
  range: Range;
  step: string;
  resolution: string;
  tab: Tab;
  /** stack stacks the lines. log makes the axis logarithmic. */
  stack: boolean;
  log: boolean;
  /** lines shows classic histograms as lines rather than as a heat map. exemplars shows exemplars. */
  lines: boolean;
  exemplars: boolean;
  /** right contains the indexes of the queries that use the axis on the right. */
  right: number[];
}

/** letter returns the letter that names the query at an index. */
export const letter = (i: number) => String.fromCharCode(65 + i);

/** asked parses the parameters of an address. */
export function asked(params: URLSearchParams): Asked {
  const queries = params.getAll('q').slice(0, maxQueries);
  const tab = params.get('tab');
  return {
    queries: queries.length ? queries : [''],
    hidden: queries.flatMap((_, i) => (params.getAll('hide').includes(letter(i)) ? [i] : [])),
    range: { from: params.get('from') ?? 'now-1h', to: params.get('to') ?? 'now' },
    step: params.get('step') ?? '',
    resolution: params.get('resolution') ?? 'auto',
    tab: tab === 'table' || tab === 'explain' || tab === 'json' ? tab : 'graph',
    stack: params.get('stack') === '1',
    log: params.get('log') === '1',
    lines: params.get('lines') === '1',
    exemplars: params.get('exemplars') === '1',
    right: queries.flatMap((_, i) => (params.getAll('right').includes(letter(i)) ? [i] : [])),
  };
}

/** address returns the parameters of an address. If tenant is null, the server selects the tenant. */
export function address(a: Asked, tenant: string | null): URLSearchParams {
  const params = new URLSearchParams();
  if (tenant) params.set('tenant', tenant);
  const full = a.queries.flatMap((q, i) => (q.trim() ? [i] : []));
  for (const i of full) params.append('q', a.queries[i]!);
  full.forEach((i, k) => a.hidden.includes(i) && params.append('hide', letter(k)));
  full.forEach((i, k) => a.right.includes(i) && params.append('right', letter(k)));
  params.set('from', a.range.from);
  params.set('to', a.range.to);
  if (a.step) params.set('step', a.step);
  if (a.resolution !== 'auto') params.set('resolution', a.resolution);
  if (a.tab !== 'graph') params.set('tab', a.tab);
  if (a.stack) params.set('stack', '1');
  if (a.log) params.set('log', '1');
  if (a.lines) params.set('lines', '1');
  if (a.exemplars) params.set('exemplars', '1');
  return params;
}
