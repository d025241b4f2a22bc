// Results of queries, in the format of Prometheus' API.
import type { Answer } from './api';
import type { Labels } from './format';
import type { Bounds } from './time';

export interface Histogram {
  count: string;
  sum: string;
  buckets?: [number, string, string, string][];
}

export interface Series {
  metric: Labels;
  value?: [number, string];
  values?: [number, string][];
  histogram?: [number, Histogram];
  histograms?: [number, Histogram][];
}

export interface Segment {
  from: string;
  to: string;
  resolution: string;
  edges: string;
  approximate?: boolean;
  series: number;
}

/** Part is a part of a query that storage reads separately. */
export interface Part {
  expr: string;
  segments: Segment[] | null;
  series: number;
  samples: number;
  milliseconds: number;
  refused?: string;
}

export interface Stats {
  timings?: Record<string, number>;
  samples?: { totalQueryableSamples?: number; peakSamples?: number };
  parts?: Part[];
}

export type QueryData =
  | { resultType: 'matrix'; result: Series[]; stats?: Stats }
  | { resultType: 'vector'; result: Series[]; stats?: Stats }
  | { resultType: 'scalar'; result: [number, string]; stats?: Stats }
  | { resultType: 'string'; result: [number, string]; stats?: Stats };

/** Result is a query with its current result. */
export interface Result {
  query: string;
  answer?: Answer<QueryData>;
  /** bounds is the range of a range query's answer. It is missing for an instant query. */
  bounds?: Bounds;
  error?: unknown;
  loading: boolean;
}
