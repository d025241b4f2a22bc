import assert from 'node:assert/strict';
import test from 'node:test';
import { csv, shownRows, textOf } from '../src/csv';
import { exact, number } from '../src/format';
import { hoverText, statsOf } from '../src/legend';
import { floats } from './floats.mjs';

const series = (values) => values.map((v, i) => ({ metric: { i: String(i) }, value: [1700000000, exact(v)] }));

test('10,000 numbers of every kind are exact in table, CSV, legend and hover', () => {
  const all = floats(10_000);
  const rows = series(all);
  const lines = csv(rows).trimEnd().split('\r\n').slice(1);
  all.forEach((v, i) => {
    assert.ok(Object.is(number(textOf(rows[i])), v), `table: ${textOf(rows[i])}`);
    assert.ok(Object.is(number(lines[i].split(',')[2]), v), `CSV: ${lines[i]}`);
    const stats = statsOf([null, v, null]);
    assert.ok(Object.is(number(exact(stats.newest)), v), 'legend: newest');
    for (const n of [stats.least, stats.greatest]) assert.ok(Number.isNaN(v) ? n === null : Object.is(number(exact(n)), v), 'legend: bounds');
    assert.ok(Object.is(number(hoverText(v)), v), `hover: ${hoverText(v)}`);
  });
});

test('rows are sorted and filtered', () => {
  const rows = series([2, NaN, -0, 0, Infinity, -Infinity, 10]);
  const values = (order, text = '') => shownRows(rows, order, text).map(textOf);
  assert.deepEqual(values({ by: '', down: false }), ['2', 'NaN', '-0', '0', '+Inf', '-Inf', '10']);
  assert.deepEqual(values({ by: 'value', down: false }), ['NaN', '-Inf', '-0', '0', '2', '10', '+Inf']);
  assert.deepEqual(values({ by: 'value', down: true })[0], '+Inf');
  assert.deepEqual(values({ by: 'series', down: true }).at(-1), '2');
  assert.deepEqual(values({ by: '', down: false }, 'i="6" 10'), ['10']);
});

test('CSV keeps what is in labels, and no formula of theirs', () => {
  const text = csv([{ metric: { a: 'x,"y"\n', b: '=1+1' }, value: [5, '-1'] }, { metric: { a: 'z' }, histogram: [6, { count: '3', sum: '1' }] }]);
  assert.equal(text, 'a,b,timestamp,value\r\n"x,""y""\n",\'=1+1,5,-1\r\nz,,6,3\r\n');
});

test('a legend tells the newest, least, greatest and mean', () => {
  assert.deepEqual(statsOf([3, null, 1, 2, null]), { newest: 2, least: 1, greatest: 3, mean: 2 });
  assert.deepEqual(statsOf([NaN, 1]), { newest: 1, least: 1, greatest: 1, mean: 1 });
  assert.deepEqual(statsOf([Infinity, 1]), { newest: 1, least: 1, greatest: Infinity, mean: Infinity });
  assert.deepEqual(statsOf([Number.MAX_VALUE, Number.MAX_VALUE]).mean, Number.MAX_VALUE);
  assert.deepEqual(statsOf([null]), { newest: null, least: null, greatest: null, mean: null });
});
