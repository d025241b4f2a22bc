// How the result of a query was computed: the resolution of each part, the amount of data, and the time.
import { count, plural } from './format';
import type { Part, Result, Segment } from './results';
import { local } from './time';

const edges: Record<string, string> = {
  exact: 'exact, the same result as from raw samples',
  snapped: 'time windows were aligned to buckets',
  widened: 'time windows were extended to whole buckets, because raw samples were not read',
};

export function Explain({ result, letter }: { result: Result; letter: string }) {
  const { answer } = result;
  if (!answer) return null;
  const stats = answer.data.stats ?? {};
  const timings = stats.timings ?? {};
  const of = (name: string) => (timings[name] ?? 0) * 1000;
  const ms = (n: number) => `${Math.max(0, n).toFixed(1)} ms`;
  // The parts are read before the query engine starts. This is included in the engine's preparation time.
  const parts = (stats.parts ?? []).reduce((n, p) => n + p.milliseconds, 0);
  return (
    <div class="explain">
      {letter && <h3>{letter} <code>{result.query}</code></h3>}
      <dl class="facts">
        <div><dt>Resolution</dt><dd>{answer.resolution || 'no stored samples'}</dd></div>
        <div><dt>Total time</dt><dd>{ms(of('execTotalTime'))}</dd></div>
        <div><dt>Time in queue</dt><dd>{ms(of('execQueueTime'))}</dd></div>
        {parts > 0 && <div><dt>Parts computed by storage</dt><dd>{ms(parts)}</dd></div>}
        <div><dt>Finding series</dt><dd>{ms(of('queryPreparationTime') - parts)}</dd></div>
        <div><dt>Query engine</dt><dd>{ms(of('innerEvalTime'))}</dd></div>
        <div><dt>Total samples</dt><dd>{count(stats.samples?.totalQueryableSamples ?? 0)}</dd></div>
        <div><dt>Peak samples in memory</dt><dd>{count(stats.samples?.peakSamples ?? 0)}</dd></div>
      </dl>
      {stats.parts?.length ? (
        stats.parts.map((p, i) => <PartOf key={i} part={p} />)
      ) : (
        <p class="small">Prometheus’ query engine evaluated the whole query; no part of it was computed by the storage engine.</p>
      )}
    </div>
  );
}

function PartOf({ part }: { part: Part }) {
  return (
    <div class="part">
      <code class="part-expr">{part.expr}</code>
      {part.refused ? (
        <p>Evaluated by Prometheus’ query engine: {part.refused}</p>
      ) : (
        <p>{plural(part.series, 'series')}, {count(part.samples)} samples or buckets read, {part.milliseconds.toFixed(1)} ms</p>
      )}
      <ul class="segments">{(part.segments ?? []).map((s, i) => <li key={i}><SegmentOf segment={s} /></li>)}</ul>
    </div>
  );
}

function SegmentOf({ segment: s }: { segment: Segment }) {
  const begin = Date.parse(s.from) / 1000;
  const end = Date.parse(s.to) / 1000;
  return (
    <>
      <b class={`res-chip r-${s.resolution}`}>{s.resolution}</b>{' '}
      <span>{begin === end ? local(begin) : `${local(begin)} – ${local(end)}`}: {edges[s.edges] ?? s.edges}{s.approximate && ', approximate'}</span>
    </>
  );
}
