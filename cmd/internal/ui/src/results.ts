// What queries answer, as Prometheus' API has it.
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

/** Part is a piece of a query that storage answered by itself. */
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

/** Result is a query with what came of it so far. */
export interface Result {
  query: string;
  answer?: Answer<QueryData>;
  /** bounds are those of the range that answer is of; without, it is of an instant. */
  bounds?: Bounds;
  error?: unknown;
  loading: boolean;
}
