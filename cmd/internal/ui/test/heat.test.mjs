import assert from 'node:assert/strict';
import test from 'node:test';
import { heatOf, rowText } from '../src/heat';

const bounds = { start: 100, end: 160, step: 60 };

test('classic buckets are told apart, and summed over series', () => {
  const series = (le, ...values) => ({ metric: { le, job: 'a' }, values: values.map((v, i) => [100 + 60 * i, String(v)]) });
  const heat = heatOf([[series('+Inf', 10, 4), series('0.5', 3, 1), series('1', 7, 1), series('0.5', 1), series('1', 1), series('+Inf', 1)]], bounds);
  assert.deepEqual(heat.rows, [{ from: -Infinity, to: 0.5 }, { from: 0.5, to: 1 }, { from: 1, to: Infinity }]);
  assert.deepEqual(heat.counts, [[4, 1], [4, 0], [3, 3]]);
  assert.equal(heat.most, 4);
  assert.deepEqual(heat.rows.map((r) => rowText(r)), ['up to 0.5', '0.5 – 1', 'above 1']);
  assert.equal(heatOf([[{ metric: {}, values: [[100, '1']] }]], bounds), null);
});

test('native buckets of any sign and width stand on common rows, and none is lost', () => {
  const histograms = (...all) => ({ metric: {}, histograms: all.map((buckets, i) => [100 + 60 * i, { count: '1', sum: '1', buckets: buckets.map(([f, t, n]) => [0, String(f), String(t), String(n)]) }]) });
  const heat = heatOf([[histograms([[-2, -1, 3], [-0.1, 0.1, 5], [1, 2, 7], [2, 4, 1]], [[1, 4, 8]])]], bounds);
  assert.deepEqual(heat.rows, [{ from: -2, to: -1 }, { from: -0.1, to: 0.1 }, { from: 1, to: 2 }, { from: 2, to: 4 }]);
  assert.deepEqual(heat.counts, [[3, 0], [5, 0], [7, 4], [1, 4]]);

  const fine = Array.from({ length: 400 }, (_, i) => [2 ** (i / 8), 2 ** ((i + 1) / 8), 1]);
  const many = heatOf([[histograms(fine, fine)]], bounds);
  assert.ok(many.rows.length <= 48);
  for (const column of [0, 1]) assert.ok(Math.abs(many.counts.reduce((sum, row) => sum + row[column], 0) - 400) < 1e-6);
  const custom = heatOf([[histograms([[-Infinity, 1, 2], [1, 2, 3], [2, Infinity, 4]])]], bounds);
  assert.equal(custom.counts.reduce((sum, row) => sum + row[0], 0), 9);
});

test('only one histogram and nothing else is a heat map', () => {
  const values = [[100, '1']];
  const bucket = (name) => ({ metric: { ...(name && { __name__: name }), le: '1' }, values });
  const native = (name) => ({ metric: { __name__: name }, histograms: [[100, { count: '1', sum: '1', buckets: [[0, '1', '2', '1']] }]] });
  const plain = { metric: { __name__: 'up' }, values };
  for (const one of [[bucket('a_bucket')], [bucket('')], [native('a')]]) {
    assert.ok(heatOf([one], bounds));
    assert.ok(heatOf([[], one], bounds), 'a query without an answer hides nothing');
    for (const other of [plain, bucket('b_bucket'), native('b')]) {
      assert.equal(heatOf([[...one, other]], bounds), null, 'in one query');
      assert.equal(heatOf([one, [other]], bounds), null, 'in two queries');
    }
  }
  assert.equal(heatOf([], bounds), null);
});

test('series whose le is no number, and histograms without buckets, are no heat map', () => {
  const values = [[100, '1']];
  const bucket = (le) => ({ metric: { __name__: 'a', le }, values });
  for (const le of ['low', 'NaN', ' ', '1x']) {
    assert.equal(heatOf([[bucket(le)]], bounds), null, le);
    assert.equal(heatOf([[bucket('1'), bucket(le)]], bounds), null, 'it would hide a series');
  }
  const native = (buckets) => ({ metric: { __name__: 'a' }, histograms: [[100, { count: '0', sum: '0', ...(buckets && { buckets }) }]] });
  assert.equal(heatOf([[native(undefined), native([])]], bounds), null);
});
