import assert from 'node:assert/strict';
import test from 'node:test';
import { inUnit, metricsOf, nameOf, roundSteps, unitOf, unitOfMetric } from '../src/unit';

const v = (name) => ({ type: 'vectorSelector', name });
const m = (name) => ({ type: 'matrixSelector', name });
const call = (name, ...args) => ({ type: 'call', func: { name }, args });
const op = (lhs, op, rhs) => ({ type: 'binaryExpr', op, lhs, rhs });
const sum = (expr) => ({ type: 'aggregation', op: 'sum', expr });
const n = (val) => ({ type: 'numberLiteral', val: String(val) });
const of = (name) => unitOfMetric(name, '');
const name = (tree) => nameOf(unitOf(tree, of));

test('units go through queries', () => {
  for (const [tree, want] of [
    [v('node_memory_free_bytes'), 'bytes'], [v('up'), ''], [v('temperature_celsius'), '°C'],
    [call('rate', m('sent_bytes_total')), 'bytes per second'], [sum(call('rate', m('sent_bytes_total'))), 'bytes per second'],
    [call('rate', m('cpu_seconds_total')), 'ratio'], [call('increase', m('cpu_seconds_total')), 'seconds'], [call('rate', m('requests_total')), ''],
    [op(v('free_bytes'), '/', v('size_bytes')), 'ratio'], [op(n(100), '*', op(v('free_bytes'), '/', v('size_bytes'))), 'percent'],
    [op(n(1), '-', op(v('free_bytes'), '/', v('size_bytes'))), 'ratio'], [op(v('free_bytes'), '*', v('size_bytes')), ''],
    [op(v('a_bytes'), '+', v('b_seconds')), ''], [op(v('a_bytes'), '>', n(5)), 'bytes'], [op(call('rate', m('sent_bytes_total')), '*', n(8)), 'bit/s'],
    [call('histogram_quantile', n(0.9), sum(call('rate', m('request_duration_seconds_bucket')))), 'seconds'],
    [call('rate', m('request_duration_seconds_bucket')), ''], [call('rate', m('request_duration_seconds_count')), ''],
    [op(call('rate', m('request_duration_seconds_sum')), '/', call('rate', m('request_duration_seconds_count'))), 'seconds'],
    [op(call('rate', m('response_bytes_sum')), '/', call('rate', m('response_bytes_count'))), 'bytes'],
    [{ type: 'aggregation', op: 'count', expr: v('free_bytes') }, ''], [call('quantile_over_time', n(0.5), m('lag_seconds')), 'seconds'], [call('time'), ''],
    [v('process_start_time_seconds'), ''], [op(call('time'), '-', v('process_start_time_seconds')), ''], [null, ''],
  ]) assert.equal(name(tree), want, JSON.stringify(tree));
  assert.deepEqual(metricsOf(op(v('a'), '/', sum(m('b')))), ['a', 'b']);
  assert.equal(nameOf(unitOfMetric('x', 'By')), 'bytes');
  assert.equal(nameOf(unitOfMetric('x_seconds', 'apples')), 'apples');
});

test('axes are written in units', () => {
  const unit = (kind, perSecond = false, word = '') => ({ kind, word, perSecond });
  for (const [v, u, want] of [
    [1536, unit('bytes'), '1.5 KiB'], [-1536, unit('bytes', true), '-1.5 KiB/s'], [0.5, unit('bytes', true), '0.5 B/s'], [0, unit('bytes'), '0 B'],
    [0.25, unit('seconds'), '250 ms'], [0, unit('seconds'), '0 s'], [90, unit('seconds'), '1.5 min'], [-7200, unit('seconds'), '-2 h'], [2e-10, unit('seconds'), '2e-10 s'],
    [0.07, unit('ratio'), '7%'], [7, unit('percent'), '7%'], [1500, unit('other', true, 'apples'), '1.5k apples/s'], [1500, undefined, '1.5k'], [NaN, unit('bytes'), 'NaN'],
  ]) assert.equal(inUnit(v, u), want);
  for (const kind of ['bytes', 'seconds', 'ratio']) {
    const steps = roundSteps(unit(kind));
    assert.ok(steps.every((s, i) => !i || s > steps[i - 1]), steps.join());
  }
});

test('labels of an axis have the digits that its ticks need', () => {
  const labels = (unit, from, tick, n = 5) => Array.from({ length: n }, (_, i) => inUnit(from + i * tick, unit, tick));
  const unit = (kind, word = '') => ({ kind, word, perSecond: false });
  const [ki, mi, gi] = [1024, 1024 ** 2, 1024 ** 3];
  for (const [got, want] of [
    [labels(undefined, 1796000000, 600, 3), ['1.796G', '1.7960006G', '1.7960012G']],
    [labels(undefined, 0, 0.1), ['0', '0.1', '0.2', '0.3', '0.4']], [labels(undefined, -5, 2.5), ['-5', '-2.5', '0', '2.5', '5']],
    [labels(undefined, 1e21, 1e21, 3), ['1e21', '2e21', '3e21']], [labels(undefined, 1e18, 5e16, 3), ['1e18', '1.05e18', '1.1e18']],
    [labels(undefined, 1e-5, 5e-6, 3), ['1e-5', '1.5e-5', '2e-5']], [labels(undefined, 990, 5, 3), ['990', '995', '1k']],
    [labels(unit('bytes'), gi, gi / 4), ['1 GiB', '1.25 GiB', '1.5 GiB', '1.75 GiB', '2 GiB']],
    [labels(unit('bytes'), gi, gi / 8, 3), ['1 GiB', '1.125 GiB', '1.25 GiB']], [labels(unit('bytes'), 0, 512 * mi, 4), ['0 B', '512 MiB', '1 GiB', '1.5 GiB']],
    [labels(unit('bytes'), 40 * gi, mi, 2), ['40 GiB', '40.000977 GiB']], [labels(unit('bytes'), 0, 256 * ki, 2), ['0 B', '256 KiB']],
    [labels(unit('seconds'), 3600, 60, 3), ['1 h', '1.0167 h', '1.0333 h']], [labels(unit('seconds'), 0, 0.25, 3), ['0 s', '250 ms', '500 ms']],
    [labels(unit('ratio'), 0.99, 0.0005, 3), ['99%', '99.05%', '99.1%']], [labels(unit('percent'), 99, 0.05, 2), ['99%', '99.05%']],
    [labels(unit('other', 'V'), 12e3, 5, 2), ['12k V', '12.005k V']],
  ]) assert.deepEqual(got, want);
  for (const u of [undefined, unit('bytes'), unit('seconds'), unit('ratio')]) {
    for (const tick of roundSteps(u).filter((s) => s > 1e-9 && s < 1e20)) {
      for (const from of [0, 7, 1234, 9.5e6]) {
        const all = labels(u, from * tick, tick, 8);
        assert.equal(new Set(all).size, 8, all.join());
      }
    }
  }
});
