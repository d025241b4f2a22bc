// What Explore is asked, and the part of the page's address that says it.
import type { Range } from './time';

export const maxQueries = 10;

export type Tab = 'graph' | 'table' | 'explain' | 'json';

/** Asked is all of the view that its address says. */
export interface Asked {
  queries: string[];
  /** hidden are the places of the queries that aren't asked. */
  hidden: number[];
  range: Range;
  step: string;
  resolution: string;
  tab: Tab;
  /** stack draws lines on each other, log the axis by powers of ten. */
  stack: boolean;
  log: boolean;
  /** lines draws histograms by le as lines in place of a heat map; exemplars draws these, too. */
  lines: boolean;
  exemplars: boolean;
  /** right are the places of the queries whose axis is the one on the right. */
  right: number[];
}

/** letter names a query by its place. */
export const letter = (i: number) => String.fromCharCode(65 + i);

/** asked reads an address. */
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

/** address writes one; tenant null leaves the choice to the server. */
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
