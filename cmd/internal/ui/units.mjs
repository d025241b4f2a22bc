// Runs the unit tests of the page with Node's own test runner. The tests are bundled first, as the page is, because
// Node doesn't run TypeScript.
import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const out = mkdtempSync(join(tmpdir(), 'cassia-ui-'));
try {
  const tests = readdirSync('test').filter((name) => name.endsWith('.test.mjs'));
  await build({
    entryPoints: tests.map((name) => join('test', name)), outdir: out, outExtension: { '.js': '.mjs' }, bundle: true,
    platform: 'node', format: 'esm', jsx: 'automatic', jsxImportSource: 'preact', logLevel: 'warning',
  });
  // Use a time zone with an offset that isn't whole hours.
  const env = { ...process.env, TZ: 'Asia/Kolkata' };
  process.exitCode = spawnSync(process.execPath, ['--test', ...tests.map((name) => join(out, name))], { stdio: 'inherit', env }).status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}
