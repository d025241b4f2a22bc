import assert from 'node:assert/strict';
import test from 'node:test';
import { ApiError } from '../src/api';
import { adviceFor } from '../src/parts';

const less = /^Reduce the query/;

test('to reduce the query is advised where that helps', () => {
  for (const message of [
    'tenant default: query_series: the query is too large: it selects more than 10 series; select fewer series, or ask the operator to raise the limit',
    'expanding series: storage: the query is too large: its labels and encoded samples exceed 5 bytes; query a shorter range or fewer series, or raise the limit',
    'storage: the query is too large: it reads more than 5 samples',
    'query processing would load too many samples into memory in query execution',
  ]) assert.match(adviceFor(new ApiError(422, 'execution', message)), less);
  for (const message of [
    'vector cannot contain metrics with the same labelset',
    'found duplicate series for the match group {job="api"} on the right hand-side of the operation',
  ]) assert.equal(adviceFor(new ApiError(422, 'execution', message)), '');
  assert.match(adviceFor(new ApiError(503, 'unavailable', 'not ready')), /^Cassia can’t answer at the moment/);
});
