import assert from 'node:assert/strict';
import test from 'node:test';
import { address, asked } from '../src/asked';
import { forget, ran, remembered, save } from '../src/remembered';

test('queries are remembered, each once, and saved ones stay', () => {
  const kept = new Map();
  globalThis.localStorage = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
  ran('', ['up', ' ']);
  ran('', ['rate(a[5m])', 'up ']);
  assert.deepEqual(remembered('').recent, ['rate(a[5m])', 'up']);
  assert.deepEqual(remembered('ann').recent, [], 'each user has their own');
  save('', 'up', true);
  save('', 'up', true);
  assert.deepEqual(forget(''), { recent: [], saved: ['up'] });
  assert.deepEqual(save('', 'up', false).saved, []);
  ran('', Array.from({ length: 80 }, (_, i) => `q${i}`));
  assert.equal(remembered('').recent.length, 50);
  for (const broken of ['{', 'null', '{"recent":5,"saved":[1,"a"]}']) {
    kept.set('cassia.queries', broken);
    assert.deepEqual(remembered('').recent, []);
  }
  globalThis.localStorage = { getItem: () => null, setItem: () => { throw new Error('full'); } };
  assert.deepEqual(ran('', ['up']).recent, ['up']);
});

test('hidden queries are known by the address, whatever empty ones stand between', () => {
  const a = { ...asked(new URLSearchParams('')), queries: ['a', '', 'b', 'c'], hidden: [2] };
  assert.deepEqual(asked(address(a, null)).hidden, [1]);
  assert.deepEqual(asked(new URLSearchParams('q=a&hide=B&hide=x&hide=ZZ')).hidden, []);
});
