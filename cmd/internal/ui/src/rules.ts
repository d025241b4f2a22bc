// Rules and alerts as Prometheus' API has them: api/v1/rules.
import type { Labels } from './format';

export type State = 'firing' | 'pending' | 'inactive' | 'unknown';

export interface Alert {
  labels: Labels;
  annotations: Labels;
  state: State;
  activeAt: string;
  value: string;
}

export interface Rule {
  type: 'alerting' | 'recording';
  name: string;
  query: string;
  labels?: Labels;
  annotations?: Labels;
  health: string;
  lastError?: string;
  lastEvaluation: string;
  evaluationTime: number;
  state?: State;
  duration?: number;
  alerts?: Alert[];
}

export interface Group {
  name: string;
  file: string;
  interval: number;
  lastEvaluation: string;
  evaluationTime: number;
  rules: Rule[];
}

const order: State[] = ['firing', 'pending', 'unknown', 'inactive'];

/** found are the rules of a kind that have the text in what people look for, with their group; alerts that fire come first. */
export function found(groups: Group[], kind: 'alerting' | 'all', text: string): { group: Group; rule: Rule }[] {
  const part = text.trim().toLowerCase();
  const has = (words: (string | undefined)[]) => words.some((w) => w?.toLowerCase().includes(part));
  const all = groups.flatMap((group) => group.rules.map((rule) => ({ group, rule }))).filter(({ group, rule }) => {
    if (kind === 'alerting' && rule.type !== 'alerting') return false;
    const alerts = (rule.alerts ?? []).flatMap((a) => Object.values(a.labels));
    return !part || has([rule.name, rule.query, group.name, group.file, ...Object.values(rule.labels ?? {}), ...alerts]);
  });
  const place = (r: Rule) => order.indexOf(r.state ?? 'inactive');
  return kind === 'all' ? all : all.sort((a, b) => place(a.rule) - place(b.rule));
}

/** never says that a time is Go's zero: there was none. */
export const never = (at: string) => at.startsWith('0001-');
