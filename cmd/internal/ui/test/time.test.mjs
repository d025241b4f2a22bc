import assert from 'node:assert/strict';
import test from 'node:test';
import { aligned, drawable, stacked } from '../src/graph';
import { about, bounds, duration, instant, lasting, local, points, quickRanges, rangeText, seconds, setUtc, since, zone, zoomed } from '../src/time';

const now = Date.parse('2026-11-22T07:15:30Z') / 1000;

test('durations are read and written', () => {
  for (const [text, want] of [['90s', 90], ['1h30m', 5400], ['1.5d', 129600], ['2w', 1209600], ['', NaN], ['5', NaN], ['1h30', NaN], ['h', NaN], ['1 h', NaN]]) {
    assert.equal(seconds(text), want, text);
  }
  for (const [value, want] of [[0, '0s'], [0.25, '250ms'], [90, '1m30s'], [3600, '1h'], [90061, '1d1h'], [86399.7, '1d']]) assert.equal(duration(value), want);
  for (const [value, want] of [[3 * 86400, '3 days'], [730 * 86400, '2 years'], [912 * 86400, '2.5 years'], [7200, '2h']]) assert.equal(about(value), want);
  assert.equal(since('2026-11-20T07:15:30Z', now * 1000), '2 days ago');
  assert.equal(since('2026-11-22T08:15:30Z', now * 1000), 'in 1h');
});

test('instants are read as people write them', () => {
  for (const [text, want] of [
    ['now', now], [' now-6h ', now - 21600], ['now-1h30m', now - 5400], ['1700000000', 1700000000], ['1700000000.5', 1700000000.5],
    ['2026-11-22 07:15', Date.parse('2026-11-22T01:45:00Z') / 1000], ['2026-11-22', Date.parse('2026-11-21T18:30:00Z') / 1000],
    ['2026-11-22T07:15:00Z', Date.parse('2026-11-22T07:15:00Z') / 1000],
    ['yesterday', NaN], ['now-', NaN], ['now-soon', NaN], ['2026-13-40', NaN], ['', NaN],
  ]) assert.equal(instant(text, now), want, text);
  assert.equal(local(now), '2026-11-22 12:45:30');
  assert.equal(local(NaN), '');
  assert.equal(instant(local(now), 0), now, 'what is written can be read');
});

test('times are read and written in UTC where that is chosen', () => {
  setUtc(true);
  try {
    assert.equal(zone(), 'UTC');
    assert.equal(local(now), '2026-11-22 07:15:30');
    assert.equal(instant(local(now), 0), now);
    assert.equal(instant('2026-11-22', 0), Date.parse('2026-11-22T00:00:00Z') / 1000);
    assert.equal(instant('2026-11-22T12:45:30+05:30', 0), now);
    assert.equal(instant('2026-11-22T07:15:30Z', 0), now);
  } finally {
    setUtc(false);
  }
});

test('ranges are said in words', () => {
  assert.equal(rangeText({ from: 'now-6h', to: 'now' }), 'Last 6 hours');
  assert.equal(rangeText({ from: 'now-6h', to: 'now-1h' }), '6 hours ago – 1 hour ago');
  assert.equal(rangeText({ from: 'now-30m', to: 'now' }), 'Last 30 minutes');
  assert.equal(rangeText({ from: 'now-1h30m', to: 'now' }), 'Last 1 hour 30 minutes');
  assert.equal(rangeText({ from: 'now-90s', to: 'now-30s' }), '1 minute 30 seconds ago – 30 seconds ago');
  assert.equal(rangeText({ from: '2026-11-22T00:00:00Z', to: 'now' }), '2026-11-22 05:30 – now');
  for (const [from] of quickRanges) assert.ok(instant(from, now) < now, from);
});

test('bounds lie on a grid where rollups answer exactly', () => {
  for (const [from, step, want] of [['now-1h', '', 10], ['now-6h', '', 60], ['now-30d', '', 7200], ['now-1y', '', 86400], ['now-2y', '', 172800], ['now-1h', '1m', 60], ['now-30d', '15s', 260]]) {
    const b = bounds({ from, to: 'now' }, points, step, now);
    assert.equal(b.step, want, `${from} ${step}`);
    assert.ok(b.start % b.step === 0 && b.end % b.step === 0 && b.start >= instant(from, now) && b.end <= now, `${from}: the ends`);
    assert.ok((b.end - b.start) / b.step <= 11000, `${from}: no more points than Prometheus answers`);
  }
  assert.match(bounds({ from: 'now', to: 'now-1h' }, points, '', now), /must be before its end/);
  assert.match(bounds({ from: 'x', to: 'now' }, points, '', now), /Invalid start time “x”/);
  assert.match(bounds({ from: 'now-1h', to: 'x' }, points, '', now), /Invalid end time “x”/);
});

test('keys zoom around a time, within the range where it gets shorter', () => {
  const b = { start: 1000, end: 2000 };
  assert.deepEqual(zoomed('+', b), [1250, 1750]);
  assert.deepEqual(zoomed('=', b, 2000), [1500, 2000]);
  assert.deepEqual(zoomed('+', b, 1000), [1000, 1500]);
  assert.deepEqual(zoomed('-', b), [500, 2500]);
  assert.equal(zoomed('x', b), undefined);
  assert.equal(zoomed('+', { start: 0, end: 30 }), undefined, 'close enough');
});

test('retentions are whole days where they are that', () => {
  assert.deepEqual([0, 3600, 86400, 30 * 86400, 365 * 86400, 1825 * 86400].map(lasting), ['forever', '1h', '1 day', '30 days', '1 year', '5 years']);
});

test('samples are put on the grid of a graph', () => {
  const b = { start: 100, end: 140, step: 10 };
  assert.deepEqual(aligned([[110, '1'], [120, 'NaN'], [130, '+Inf'], [140, '-2.5']], b), [null, 1, NaN, Infinity, -2.5]);
  assert.deepEqual(drawable([null, 1, NaN, Infinity, -2.5]), [null, 1, null, null, -2.5]);
  assert.deepEqual(aligned([], { start: 100, end: 100, step: 10 }), [null]);
});

test('each layer of a stack lies on the sum of those before it, also where one of them has a gap', () => {
  assert.deepEqual(stacked([[1, 1, 1], [2, null, 2], [4, 4, null]]), [
    { below: [0, 0, 0], above: [1, 1, 1] },
    { below: [1, null, 1], above: [3, null, 3] },
    { below: [3, 1, null], above: [7, 5, null] },
  ]);
});
