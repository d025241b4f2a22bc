import assert from 'node:assert/strict';
import test from 'node:test';
import { renamed } from '../src/absent';
import { metricsOf } from '../src/unit';

test('a name is replaced where it stands alone', () => {
  assert.equal(renamed('rate(up[5m]) / up_total + up{a="b"} + x:up', 'up', 'down'), 'rate(down[5m]) / up_total + down{a="b"} + x:up');
  assert.equal(renamed('a.b', 'a.b', 'c'), 'c');
  assert.equal(renamed('up + up', 'up', 'a$&b'), 'a$&b + a$&b');
});

test('metrics are found by name and by matcher', () => {
  const matched = { type: 'vectorSelector', matchers: [{ name: '__name__', type: '=', value: 'a' }] };
  assert.deepEqual(metricsOf({ type: 'binaryExpr', lhs: matched, rhs: { type: 'vectorSelector', name: 'b' } }), ['a', 'b']);
  assert.deepEqual(metricsOf({ type: 'vectorSelector', matchers: [{ name: '__name__', type: '=~', value: 'a.*' }] }), []);
});
