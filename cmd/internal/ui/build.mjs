// Bundles src into a folder, by default dist. What it writes depends on the sources and the lock file only, so that
// the Go test can compare it with what is committed. Names carry a hash of the content and may be cached for ever.
import { build } from 'esbuild';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const out = process.argv[2] ?? 'dist';
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const result = await build({
  entryPoints: { app: 'src/app.tsx', theme: 'src/theme.ts', style: 'src/style.css', icon: 'src/icon.svg' },
  outdir: join(out, 'assets'),
  entryNames: '[name]-[hash]',
  assetNames: '[name]-[hash]',
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.svg': 'copy' },
  supported: { 'inline-style': false },
  legalComments: 'none',
  charset: 'utf8',
  metafile: true,
  logLevel: 'warning',
});

// The page names the files as they are called now.
const names = Object.keys(result.metafile.outputs).map((name) => basename(name));
const page = readFileSync('src/index.html', 'utf8').replace(/\bassets\/(\w+)\.(\w+)/g, (_, name, kind) => {
  const found = names.find((n) => n.startsWith(name + '-') && n.endsWith('.' + kind));
  if (!found) throw new Error(`src/index.html names ${name}.${kind}, which isn't built`);
  return 'assets/' + found;
});
writeFileSync(join(out, 'index.html'), page);
