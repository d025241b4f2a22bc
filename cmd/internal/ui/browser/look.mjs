// Checks that the browser tests run on every page: for errors, requests to other hosts, layout shifts, and truncated or
// overlapping text.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * watched opens a page and records errors and requests to other hosts. Patterns in page.allowed exempt expected errors.
 */
export async function watched(browser, base, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const wrong = [];
  page.allowed = [];
  page.on('console', (m) => {
    if (m.type() !== 'error' && m.type() !== 'warning') return;
    if (page.allowed.some((a) => a.test(m.text()))) return;
    wrong.push(`console: ${m.text()}`);
  });
  page.on('pageerror', (e) => wrong.push(`exception: ${e.stack}`));
  page.on('request', (r) => {
    if (!r.url().startsWith(base) && !r.url().startsWith('data:')) wrong.push(`a request to another host: ${r.url()}`);
  });
  await page.addInitScript(() => {
    window.seen = { violations: [], shift: 0, acted: false };
    for (const kind of ['pointerdown', 'keydown', 'input', 'wheel', 'resize']) {
      addEventListener(kind, () => Object.assign(window.seen, { shift: 0, acted: true }), { capture: true, passive: true });
    }
    document.addEventListener('securitypolicyviolation', (e) => window.seen.violations.push(`${e.violatedDirective}: ${e.blockedURI}`));
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!window.seen.acted) window.seen.shift += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
  });
  page.quiet = () => assert.deepEqual(wrong, [], 'nothing goes wrong');
  return page;
}

/**
 * sound checks the current state of a page. what describes the state in messages. mayShift is the max layout shift
 * since the last call, as a share of the window. Shifts after a click, a key press or a resize don't count, because
 * the machine's speed determines when their effects appear. With forAll, axe also checks the page, which takes
 * seconds.
 */
export async function sound(page, what, mayShift = 0.1, forAll = false) {
  page.quiet();
  const found = await page.evaluate(inspect);
  assert.deepEqual(found.violations, [], `${what}: the content security policy`);
  assert.deepEqual(found.cut, [], `${what}: text that is cut`);
  assert.deepEqual(found.overlaps, [], `${what}: texts that overlap`);
  assert.ok(found.shift < mayShift, `${what}: the layout shifted by ${found.shift}`);
  if (forAll) assert.deepEqual(await accessible(page), [], `${what}: what axe finds`);
  assert.ok(found.texts > 5, `${what}: there are ${found.texts} texts`);
}

/** accessible returns the violations that axe finds, each with its location. */
async function accessible(page) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
  return page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
    return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 200)} ${n.failureSummary}`));
  });
}

// inspect runs in the page. It checks what is visible: the boxes of texts, without the parts hidden by scrolling
// elements.
function inspect() {
  const cut = [];
  const texts = [];
  const scrolls = (style) => /auto|scroll/.test(style.overflowX + style.overflowY);
  const name = (e) => `${e.tagName.toLowerCase()}.${e.className} “${e.textContent.trim().slice(0, 60)}”`;

  // visible returns the part of a box that isn't clipped by its ancestors. cutBy is the ancestor that clips it without
  // scrolling.
  const visible = (element, box) => {
    let { left, top, right, bottom } = box;
    let cutBy = null;
    for (let e = element; e && e !== document.documentElement; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.visibility === 'hidden' || style.display === 'none' || e.classList.contains('hidden') || e.classList.contains('skip')) return null;
      if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
      const clip = e.getBoundingClientRect();
      if (!scrolls(style) && (left < clip.left - 1 || right > clip.right + 1 || top < clip.top - 1 || bottom > clip.bottom + 1)) cutBy = e;
      left = Math.max(left, clip.left);
      top = Math.max(top, clip.top);
      right = Math.min(right, clip.right);
      bottom = Math.min(bottom, clip.bottom);
    }
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom, cutBy } : null;
  };

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || !parent || !parent.checkVisibility() || parent.closest('.cm-editor, noscript, script, option')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      const seen = visible(parent, box);
      if (!seen) continue;
      if (seen.cutBy) cut.push(`${name(parent)} by ${seen.cutBy.className}`);
      if (box.right > innerWidth + 1 && !parent.closest('.scroll, pre')) cut.push(`${name(parent)} is outside of the window`);
      texts.push({ ...seen, parent });
    }
  }
  for (const e of document.querySelectorAll('button, a, .badge, .stat, th, .tabs')) {
    if (e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1 && !scrolls(getComputedStyle(e)) && !e.classList.contains('skip')) cut.push(`${name(e)} is wider than its box`);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) cut.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);

  const overlaps = [];
  texts.sort((a, b) => a.top - b.top);
  for (let i = 0; i < texts.length; i++) {
    for (let k = i + 1; k < texts.length && texts[k].top < texts[i].bottom; k++) {
      const a = texts[i];
      const b = texts[k];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      // Popovers and the header are meant to cover the page.
      const over = (e) => e.closest('.popover, .top');
      if (wide > 2 && high > 5 && over(a.parent) === over(b.parent)) overlaps.push(`${name(a.parent)} and ${name(b.parent)}`);
    }
  }
  const { violations, shift } = window.seen;
  Object.assign(window.seen, { shift: 0, acted: false });
  return { cut, overlaps, texts: texts.length, violations, shift };
}

/** drawn returns the number of pixels in the graph with a colour (#rrggbb). */
export function drawn(page, colour) {
  return page.evaluate((colour) => {
    const canvas = document.querySelector('.plot canvas');
    if (!canvas) return 0;
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const want = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    let n = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] > 128 && want.every((v, k) => Math.abs(data[i + k] - v) < 12)) n++;
    }
    return n;
  }, colour);
}

/** filled returns, for each colour (#rrggbb), the number of translucent pixels in the graph with only this colour. */
export function filled(page, colours) {
  return page.evaluate((colours) => {
    const canvas = document.querySelector('.plot canvas');
    if (!canvas) return colours.map(() => 0);
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    return colours.map((colour) => {
      const want = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
      let n = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] > 30 && data[i + 3] < 200 && want.every((v, k) => Math.abs(data[i + k] - v) < 12)) n++;
      }
      return n;
    });
  }, colours);
}

/** painted returns the number of pixels in the cells of a heat map. */
export function painted(page) {
  return page.evaluate(() => {
    const canvas = document.querySelector('.plot.heat canvas');
    if (!canvas) return 0;
    const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let n = 0; // The numbers of the axis are left of the cells.
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 10 && (i / 4) % width > 120) n++;
    return n;
  });
}
