import assert from 'node:assert/strict';
import test from 'node:test';
import { basic } from '../src/api';
import { address, asked } from '../src/asked';
import { href, place } from '../src/location';
import { Completion } from '../src/promclient';

const at = (hash) => {
  globalThis.location = { hash };
  return place();
};

test('the address says the view, and comes back as it was', () => {
  assert.equal(at('').view, 'explore');
  assert.equal(at('#/storage').view, 'storage');
  assert.equal(at('#/storage?tenant=a%26b').params.get('tenant'), 'a&b');
  assert.equal(href('tenants'), '#/tenants');
  const query = 'rate(http_requests_total{path=~"/a?b=c#d|e+f"}[5m]) * 100 % 7';
  const full = { queries: [query, 'vector(1)'], range: { from: 'now-7d', to: '2026-11-22 07:15' }, step: '5m', resolution: '1h', tab: 'explain', hidden: [], stack: true, log: true, lines: true, exemplars: true, right: [1] };
  const back = at(href('explore', address(full, 'team b')));
  assert.deepEqual(asked(back.params), full);
  assert.equal(back.params.get('tenant'), 'team b');
});

test('an address without anything is the beginning, and one with too much is cut', () => {
  const none = asked(new URLSearchParams());
  assert.deepEqual(none, { queries: [''], range: { from: 'now-1h', to: 'now' }, step: '', resolution: 'auto', tab: 'graph', hidden: [], stack: false, log: false, lines: false, exemplars: false, right: [] });
  assert.equal(String(address(none, null)), 'from=now-1h&to=now');
  assert.equal(asked(new URLSearchParams('tab=other')).tab, 'graph');
  assert.equal(asked(new URLSearchParams(Array.from({ length: 30 }, (_, i) => ['q', `a${i}`]))).queries.length, 10);
});

test('a login is written in UTF-8', () => assert.equal(basic('änne', 'pä:ß'), 'Basic ' + Buffer.from('änne:pä:ß').toString('base64')));

test('completion asks once, for what the other matchers leave, and forgets a failure', async () => {
  const urls = [];
  globalThis.sessionStorage = { getItem: () => null };
  globalThis.fetch = async (url, { headers }) => {
    urls.push(url);
    assert.equal(headers.get('X-Scope-OrgID'), 'team-a');
    if (urls.length === 1) throw new Error('down');
    return new Response(JSON.stringify({ status: 'success', data: ['a'] }));
  };
  const completion = new Completion('team-a');
  const matchers = [{ type: '=', name: 'job', value: 'api' }, { type: '=~', name: 'host', value: 'a"b' }, { type: '=', name: 'empty', value: '' }];
  const ask = () => completion.labelValues('job', 'up', matchers);
  assert.deepEqual(await ask(), []);
  assert.deepEqual(await ask(), ['a']);
  assert.deepEqual(await ask(), ['a']);
  assert.equal(urls.length, 2);
  assert.equal(new URL(urls[1], 'http://x').searchParams.get('match[]'), 'up{host=~"a\\"b"}');
});
