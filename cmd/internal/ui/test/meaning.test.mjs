import assert from 'node:assert/strict';
import test from 'node:test';
import { matching, meaningOf, suiting } from '../src/meaning';
import { found } from '../src/rules';

const all = {
  requests_total: [{ type: 'counter', help: 'Answers sent.', unit: '' }], latency_seconds: [{ type: 'histogram', help: 'How long.', unit: 'seconds' }],
  up: [{ type: 'gauge', help: 'Whether it answers', unit: '' }], older: [{ type: 'counter', help: 'x', unit: '' }],
};

test('a query suits its metric', () => {
  for (const [name, want] of [
    ['requests_total', 'rate(requests_total[5m])'], ['latency_seconds', 'histogram_quantile(0.99, sum(rate(latency_seconds[5m])))'],
    ['latency_seconds_bucket', 'histogram_quantile(0.99, sum by (le) (rate(latency_seconds_bucket[5m])))'], ['latency_seconds_sum', 'rate(latency_seconds_sum[5m])'],
    ['up', 'up'], ['nobody_knows_total', 'rate(nobody_knows_total[5m])'], ['nobody_knows', 'nobody_knows'], ['older_total', 'rate(older_total[5m])'],
    ['http.requests', '{"http.requests"}'],
  ]) assert.equal(suiting(name, meaningOf(name, all).type), want);
});

test('metrics are found by name and by help', () => {
  const names = Object.keys(all);
  assert.deepEqual(matching(names, all, ''), names);
  assert.deepEqual(matching(names, all, 'ANSWER'), ['requests_total', 'up']);
  assert.deepEqual(matching(names, all, 'how lat'), ['latency_seconds']);
  assert.deepEqual(matching(names, all, 'none'), []);
});

test('rules are found, and what fires comes first', () => {
  const rule = (name, state, more) => ({ type: state ? 'alerting' : 'recording', name, query: 'up == 0', state, alerts: [], ...more });
  const groups = [
    { name: 'g', file: 'f.yml', rules: [rule('Quiet', 'inactive'), rule('job:up', undefined), rule('Late', 'pending')] },
    { name: 'h', file: 'f.yml', rules: [rule('Down', 'firing', { alerts: [{ labels: { job: 'Shop' } }] })] },
  ];
  const names = (kind, text) => found(groups, kind, text).map(({ rule }) => rule.name);
  assert.deepEqual(names('alerting', ''), ['Down', 'Late', 'Quiet']);
  assert.deepEqual(names('all', ''), ['Quiet', 'job:up', 'Late', 'Down']);
  assert.deepEqual(names('all', 'shop'), ['Down']);
  assert.deepEqual(names('alerting', 'JOB:'), []);
});
