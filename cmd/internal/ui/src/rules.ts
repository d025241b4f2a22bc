// Rules and alerts in the format of Prometheus' API: api/v1/rules.
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

/** found returns the rules of a kind that contain the text, with their groups. Firing alerts come first. */
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

/** never reports whether a time is Go's zero time, which means that there is none. */
export const never = (at: string) => at.startsWith('0001-');
