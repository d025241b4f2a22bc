import assert from 'node:assert/strict';
import test from 'node:test';
import { bytes, count, exact, number, observations, plural, selector, short } from '../src/format';
import { floats } from './floats.mjs';

const table = (f, cases) => {
  for (const [from, want] of cases) assert.equal(f(from), want, `of ${from}`);
};

test('short writes numbers for axes', () => table(short, [
  [0, '0'], [12.345678, '12.35'], [999.96, '1k'], [1000, '1k'], [-1234567, '-1.235M'], [999_999, '1M'], [2.5e9, '2.5G'], [1e15, '1P'], [999e15, '999P'], [1e18, '1e18'], [-1.2345e21, '-1.234e21'],
  [0.000123, '1.23e-4'], [-0.0001, '-1e-4'], [NaN, 'NaN'], [Infinity, '+Inf'], [-Infinity, '-Inf'],
]));

test('exact keeps all of a number', () => table(exact, [
  [1795394751.29, '1795394751.29'], [0.1 + 0.2, '0.30000000000000004'], [-5, '-5'], [-0, '-0'], [5e-324, '5e-324'], [1e300, '1e+300'],
  [Infinity, '+Inf'], [-Infinity, '-Inf'], [NaN, 'NaN'],
]));

test('what the API writes is shown so that it is read back as the same bits', () => {
  for (const v of floats(10_000)) {
    const api = exact(v); // Prometheus' API also writes the shortest text, but uses exponents for other numbers.
    for (const text of [api, v.toExponential(17)]) if (isFinite(v) && v !== 0) assert.ok(Object.is(number(text), v), text);
    assert.ok(Object.is(number(exact(number(api))), v), api);
  }
});

test('sizes and counts', () => {
  table(bytes, [[0, '0 B'], [1023, '1023 B'], [1024, '1.0 KiB'], [1024 * 1023.9, '1.0 MiB'], [99.97 * 1024, '100 KiB'], [123 * 1024 ** 2, '123 MiB'], [3.5 * 1024 ** 4, '3.5 TiB']]);
  table(count, [[999, '999'], [1e6, '1,000,000']]);
  assert.deepEqual(['metric', 'series'].map((noun) => plural(1, noun)), ['1 metric', '1 series']);
  assert.deepEqual(['metric', 'series'].map((noun) => plural(2000, noun)), ['2,000 metrics', '2,000 series']);
  table(observations, [['1', '1 observation'], ['0.25', '0.25 observations'], ['12345', '12345 observations']]);
});

test('selector writes labels as PromQL takes them', () => {
  for (const [labels, want] of [
    [{ __name__: 'up' }, 'up'],
    [{ __name__: 'up', job: 'a"b\\c\n' }, 'up{job="a\\"b\\\\c\\n"}'],
    [{ job: 'api', host: 'b' }, '{job="api", host="b"}'],
    [{ __name__: 'http.requests', 'service.name': 'x' }, '{"http.requests", "service.name"="x"}'],
    [{}, '{}'],
  ]) assert.equal(selector(labels), want);
});
