// What Explore is asked, and the part of the page's address that says it.
import type { Range } from './time';

export const maxQueries = 10;

export type Tab = 'graph' | 'table' | 'explain';

/** Asked is all of the view that its address says. */
export interface Asked {
  queries: string[];
  range: Range;
  step: string;
  resolution: string;
  tab: Tab;
  /** stack draws lines on each other, log the axis by powers of ten. */
  stack: boolean;
  log: boolean;
}

/** asked reads an address. */
export function asked(params: URLSearchParams): Asked {
  const queries = params.getAll('q').slice(0, maxQueries);
  const tab = params.get('tab');
  return {
    queries: queries.length ? queries : [''],
    range: { from: params.get('from') ?? 'now-1h', to: params.get('to') ?? 'now' },
    step: params.get('step') ?? '',
    resolution: params.get('resolution') ?? 'auto',
    tab: tab === 'table' || tab === 'explain' ? tab : 'graph',
    stack: params.get('stack') === '1',
    log: params.get('log') === '1',
  };
}

/** address writes one; tenant null leaves the choice to the server. */
export function address(a: Asked, tenant: string | null): URLSearchParams {
  const params = new URLSearchParams();
  if (tenant) params.set('tenant', tenant);
  for (const q of a.queries) if (q.trim()) params.append('q', q);
  params.set('from', a.range.from);
  params.set('to', a.range.to);
  if (a.step) params.set('step', a.step);
  if (a.resolution !== 'auto') params.set('resolution', a.resolution);
  if (a.tab !== 'graph') params.set('tab', a.tab);
  if (a.stack) params.set('stack', '1');
  if (a.log) params.set('log', '1');
  return params;
}
