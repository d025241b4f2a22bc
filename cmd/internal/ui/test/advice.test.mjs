import assert from 'node:assert/strict';
import test from 'node:test';
import { ApiError } from '../src/api';
import { adviceFor } from '../src/parts';

const less = /^Reduce the query/;

test('to reduce the query is advised where that helps', () => {
  for (const message of [
    'tenant default: query_series: the query needs too much: it reads 12 series, at most 10 are allowed; choose fewer, or ask the operator for more',
    'expanding series: storage: the query needs too much: its labels and encoded samples are more than 5 bytes; ask for a shorter range',
    'storage: the query is too large: it reads more than 5 samples',
    'query processing would load too many samples into memory in query execution',
  ]) assert.match(adviceFor(new ApiError(422, 'execution', message)), less);
  for (const message of [
    'vector cannot contain metrics with the same labelset',
    'found duplicate series for the match group {job="api"} on the right hand-side of the operation',
  ]) assert.equal(adviceFor(new ApiError(422, 'execution', message)), '');
  assert.match(adviceFor(new ApiError(503, 'unavailable', 'not ready')), /^Cassia can’t answer at the moment/);
});
