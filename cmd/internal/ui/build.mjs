// Bundles src into a folder, by default dist. The output depends only on the sources and the lock file, so that the Go
// test can compare it with the committed output. The file names contain a hash of the contents, so the files may be
// cached forever. esbuild's own hash can't be used because it also depends on the path of node_modules.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, parse } from 'node:path';

const out = process.argv[2] ?? 'dist';
rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, 'assets'), { recursive: true });

const result = await build({
  entryPoints: { app: 'src/app.tsx', theme: 'src/theme.ts', style: 'src/style.css', icon: 'src/icon.svg' },
  outdir: join(out, 'assets'),
  entryNames: '[name]',
  assetNames: '[name]',
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
  write: false,
  logLevel: 'warning',
});

const names = new Map();
for (const { path, contents } of result.outputFiles) {
  const { name, ext } = parse(path);
  const named = `${name}-${createHash('sha256').update(contents).digest('hex').slice(0, 8)}${ext}`;
  names.set(name + ext, named);
  writeFileSync(join(out, 'assets', named), contents);
}

// Insert the current file names into the page.
const page = readFileSync('src/index.html', 'utf8').replace(/\bassets\/(\w+\.\w+)/g, (_, name) => {
  if (!names.has(name)) throw new Error(`src/index.html names ${name}, which isn't built`);
  return 'assets/' + names.get(name);
});
writeFileSync(join(out, 'index.html'), page);
