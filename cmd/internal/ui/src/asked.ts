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
  return params;
}
