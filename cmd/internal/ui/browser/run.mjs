// Uses the whole page in a real browser. Environment variables: BASE is the URL of a server with data. LOCKED is the
// URL of a server with --auth.file, whose backups fail. BARE is the URL of a server without backups. DAMAGED is the URL
// of a server on which the labels of a metric are unreadable. CHROMIUM is the browser, SHOTS is a folder for
// screenshots, and PICTURES is a folder for the images of the manual.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { chromium } from 'playwright-core';
import { drawn, filled, painted, sound, watched } from './look.mjs';

const { BASE: base, LOCKED: locked, BARE: bare, DAMAGED: damaged, CHROMIUM: executablePath, SHOTS: shots, PICTURES: pictures } = process.env;
mkdirSync(shots, { recursive: true });
const [first, second] = ['#3d85c6', '#e0762f'];
const patience = 60_000;

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });
const steps = [];
const step = (name, f) => steps.push([name, f]);
const shot = (page, name, fullPage = false) => page.screenshot({ path: `${shots}/${name}.png`, fullPage });

// picture writes an image for the manual as WebP, which is smaller than PNG. It shows the whole page or, if the page is
// long, its first panels.
async function picture(page, name) {
  const devtools = await page.context().newCDPSession(page);
  const height = await page.evaluate((most) => {
    const ends = [...document.querySelectorAll('main > section')].map((e) => e.getBoundingClientRect().bottom + 20);
    const all = document.documentElement.scrollHeight;
    return Math.ceil(all <= most ? all : Math.max(innerHeight, ...ends.filter((end) => end <= most)));
  }, 1500);
  const clip = { x: 0, y: 0, width: 1440, height, scale: 1 };
  const { data } = await devtools.send('Page.captureScreenshot', { format: 'webp', quality: 60, clip, captureBeyondViewport: true });
  writeFileSync(`${pictures}/${name}.webp`, Buffer.from(data, 'base64'));
}

async function open(options = {}, at = base) {
  const page = await watched(browser, at, { viewport: { width: 1280, height: 900 }, colorScheme: 'light', ...options });
  page.setDefaultTimeout(patience);
  return page;
}

const editor = (page, letter = 'A') => page.getByRole('textbox', { name: `Query ${letter}` });

// eventually waits for a condition, because the response to a request may not have arrived yet. If it isn't fulfilled
// in time, the error contains the last state.
async function eventually(what, f) {
  const end = Date.now() + patience;
  for (;;) {
    const seen = await f();
    if (seen === true) return;
    assert.ok(Date.now() < end, `${what}${seen === false ? '' : `: ${seen}`}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

const says = (page, selector, pattern) =>
  eventually(`${selector} says ${pattern}`, async () => {
    const text = await page.locator(selector).first().innerText();
    return pattern.test(text) || text;
  });

// selects drags over a graph of an hour and checks the selected range, although a response arrives in the meantime.
async function selects(page, box) {
  await redrawn(page);
  await page.mouse.move(box.x + box.width * 0.6, box.y + 50);
  await page.mouse.down();
  await answered(page);
  await page.mouse.move(box.x + box.width * 0.8, box.y + 55, { steps: 4 });
  await answered(page);
  await page.mouse.move(box.x + box.width * 0.9, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await eventually('a part was looked at more closely', () => {
    const [, from, to] = /from=(20[^&]*)&to=(20[^&]*)/.exec(decodeURIComponent(page.url())) ?? [];
    return !!to && (Math.abs((Date.parse(to) - Date.parse(from)) / 60_000 - 18) < 1 || `from ${from} to ${to}`);
  });
}

// redrawn runs the queries again and waits until the graph has been recreated.
async function redrawn(page) {
  await page.evaluate(() => { window.before = document.querySelector('.u-over'); });
  await page.getByRole('button', { name: 'Run' }).evaluate((run) => run.click());
  await eventually('an answer is drawn', () => page.evaluate(() => {
    const now = document.querySelector('.u-over');
    return now !== null && now !== window.before;
  }));
}

// answered runs the queries again without using the mouse, and waits until the response has been processed. An earlier
// request may be canceled by that.
async function answered(page) {
  const asked = new Set();
  const note = (request) => /query_range/.test(request.url()) && asked.add(request);
  page.on('request', note);
  const finished = page.waitForEvent('requestfinished', (request) => asked.has(request));
  await page.getByRole('button', { name: 'Run' }).evaluate((run) => run.click());
  await finished;
  page.off('request', note);
  await page.locator('.results[aria-busy=false]').waitFor();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 100)))));
}

const counts = (what, locator, right) =>
  eventually(what, async () => {
    const n = await locator.count();
    return right(n) || `there are ${n}`;
  });

step('Explore: a query is typed, completed, run and drawn', async () => {
  const page = await open();
  await page.goto(base + '/');
  await page.getByText('Metrics from the last day').waitFor();
  await sound(page, 'the start');
  await editor(page).click();
  await page.keyboard.type('sum by (job) (rate(http_req');
  const choice = page.locator('.cm-tooltip-autocomplete li', { hasText: 'http_requests_total' });
  await choice.waitFor();
  await shot(page, 'explore-completion');
  await choice.click();
  await page.keyboard.type('[1h]');
  await page.keyboard.press('Control+Enter');
  await page.locator('.legend tbody tr').nth(1).waitFor();
  await counts('a line a job', page.locator('.legend tbody tr'), (n) => n === 2);
  await says(page, '.legend-name', /\{job="(api|web)"\}/);
  await eventually('the line is drawn', async () => (await drawn(page, first)) > 200);
  await says(page, '.badge', /^(raw|5m|1h).* 2 series/s);
  await sound(page, 'a graph');

  const plot = await page.locator('.u-over').boundingBox();
  await page.mouse.move(plot.x + plot.width / 2, plot.y + plot.height / 2);
  await says(page, '.plot-time', /^\d{4}-/); // the time at the cursor
  await page.mouse.move(0, 0);
  await page.locator('.plot').focus();
  await page.keyboard.press('End');
  const newest = await page.locator('.legend-value').first().innerText();
  await says(page, '.hover-value', new RegExp(`^${newest.replace(/[.+]/g, '\\$&')}$`));
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowLeft');
  await page.locator('.hover code').waitFor();
  await sound(page, 'a value at the cursor');
  await shot(page, 'explore-hover');
  await page.getByRole('button', { name: 'Mean' }).click();
  await page.locator('th[aria-sort=descending]', { hasText: 'Mean' }).waitFor();
  await page.getByRole('button', { name: 'Stacked' }).click();
  await eventually('each area of the stack has its own colour only', async () => {
    const found = await filled(page, [first, second]);
    return (found.every((n) => n > 5000) && found[0] > found[1] / 2) || `${found}`; // The axis starts at 0; the lines are at 15 to 17, and at 19 to 21.
  });
  await shot(page, 'explore-stack');
  await page.getByRole('button', { name: 'Log scale' }).click();
  await eventually('the address says both', () => /stack=1&log=1/.test(page.url()));
  await sound(page, 'a stack on a logarithmic axis');
  await page.getByRole('button', { name: 'Log scale' }).click();
  await page.getByRole('button', { name: 'Stacked' }).click();
  await page.getByRole('button', { name: 'Zoom out' }).click();
  await eventually('there is more to see', () => /from=20\d\d-/.test(decodeURIComponent(page.url())));
  await page.goBack();
  await page.locator('.legend tbody tr').nth(1).waitFor();

  const shared = page.url();
  assert.match(shared, /q=sum\+by/);
  await selects(page, plot);
  await page.goBack();
  await eventually('the address is the one before', () => page.url() === shared);
  await page.locator('.u-over').evaluate((graph) => { // A tap on a touch screen sends all events at once.
    for (const type of ['mousedown', 'mouseup']) graph.dispatchEvent(new MouseEvent(type, { bubbles: true, clientX: 400, clientY: 400 }));
  });
  await redrawn(page);

  const other = await open();
  await other.goto(shared);
  await other.locator('.legend tbody tr').nth(1).waitFor();
  await eventually('who is sent the address sees the same', async () => (await drawn(other, first)) > 200);
  await other.context().close();
  await page.context().close();
});

step('Explore: ranges, resolutions, several queries, tables, explanations, errors', async () => {
  const page = await open();
  await page.goto(base + '/#/explore?q=http_requests_total');
  await page.locator('.legend tbody tr').first().waitFor();
  await page.getByRole('button', { name: /Last 1 hour/ }).click();
  await sound(page, 'the choice of a range');
  await shot(page, 'explore-times');
  await page.getByRole('button', { name: 'Last 2 days' }).click();
  await page.getByLabel('Resolution').selectOption('1h');
  await says(page, '.badge', /^1h/); // the resolution of the response
  await page.getByRole('button', { name: 'Add query' }).click();
  await editor(page, 'B').click();
  await page.keyboard.type('avg(temperature_celsius)');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
  await page.locator('.legend tbody tr', { hasText: '{}' }).waitFor();
  await sound(page, 'two queries');
  await page.getByRole('tab', { name: 'Table' }).click();
  await page.locator('caption').nth(1).waitFor();
  await counts('eight series, and an average', page.locator('tbody tr'), (n) => n === 9);
  await sound(page, 'tables');
  await shot(page, 'explore-table');
  await page.getByLabel('Filter the series of A').fill('host-3');
  await counts('one of eight, and an average', page.locator('tbody tr'), (n) => n === 2);
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download CSV' }).first().click()]);
  const rows = readFileSync(await file.path(), 'utf8').trim().split('\r\n');
  assert.equal(rows[0], '__name__,instance,job,path,timestamp,value');
  assert.match(rows[1], /^http_requests_total,host-3\.example\.org:9100,web,\/v1\/things\/and\/more,[\d.]+,\d+$/);
  await page.getByLabel('Filter the series of A').fill('');
  await page.getByRole('button', { name: 'Value' }).first().click();
  await page.locator('th[aria-sort=descending]', { hasText: 'Value' }).waitFor();
  await page.getByRole('tab', { name: 'JSON' }).click();
  await page.locator('pre.json', { hasText: '"resultType": "matrix"' }).first().waitFor();
  await sound(page, 'JSON');
  await page.getByRole('button', { name: 'More actions for query B' }).click();
  await sound(page, 'the menu of a query');
  await page.getByRole('button', { name: 'Move up' }).click();
  await says(page, '.editor', /avg/);
  await page.getByRole('button', { name: 'More actions for query A' }).click();
  await page.getByRole('button', { name: 'Hide' }).click();
  await counts('one answer', page.locator('pre.json'), (n) => n === 1);
  await page.getByRole('button', { name: 'More actions for query A' }).click();
  await page.getByRole('button', { name: 'Show' , exact: true }).click();
  await page.getByRole('button', { name: 'More actions for query A' }).click();
  await page.getByRole('button', { name: 'Move down' }).click();
  await says(page, '.editor', /http_requests_total/);
  await page.getByRole('button', { name: 'Query history' }).click();
  await page.locator('.history code', { hasText: 'avg(temperature_celsius)' }).waitFor();
  await page.getByRole('button', { name: 'Save: avg(temperature_celsius)' }).click();
  await page.getByRole('button', { name: 'Remove from saved: avg(temperature_celsius)' }).waitFor();
  await sound(page, 'earlier queries');
  await shot(page, 'explore-history');
  await page.keyboard.press('Escape');
  await page.getByRole('tab', { name: 'Explain' }).click();
  await page.locator('.part').nth(1).waitFor();
  await says(page, '.segments .res-chip', /^1h$/);
  await sound(page, 'explanations');
  await shot(page, 'explore-explain');
  await page.getByRole('tab', { name: 'Graph' }).click();
  page.allowed.push(/status of 400/);
  await editor(page, 'B').click();
  await page.keyboard.press('Control+A');
  await page.keyboard.type('rate(temperature_celsius)');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+Enter');
  await page.getByText(/parse error: expected type range vector/).waitFor();
  await page.locator('.legend tbody tr').first().waitFor();
  await sound(page, 'an error beside an answer', 0.2); // The error is shown above the graph, which moves down.
  await shot(page, 'explore-error');
  await page.goto(base + '/graph?g0.expr=vector(42)&g0.tab=1');
  await page.locator('.num', { hasText: '42' }).waitFor();

  await page.goto(base + '/#/explore?q=memory_bytes[3m]');
  await page.getByText('A range vector can only be shown as a table.').waitFor();
  await sound(page, 'a range vector as a graph', 0.2);
  await page.getByRole('button', { name: 'Show table' }).click(); // one sample per minute
  await says(page, 'caption', /^3 samples of 1 series$/);
  await counts('a row a sample', page.locator('td.num', { hasText: /^3221225472$/ }), (n) => n === 3);
  await sound(page, 'samples');
  const [samples] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download CSV' }).click()]);
  assert.match(readFileSync(await samples.path(), 'utf8'), /^__name__,timestamp,value\r\n(memory_bytes,\d+,3221225472\r\n){3}$/);

  // Displayed values must be exact, and the help of a metric must be shown next to the completions.
  const special = ['1795394751.29', '5e-324', '1.7976931348623157e+308', '-0', '+Inf', 'NaN'];
  await page.goto(base + '/#/explore?tab=table&q=special_values or vector(0) * -1');
  for (const text of special) await page.locator('td.num', { hasText: text }).waitFor();
  await page.goto(base + '/#/explore?q=special_values or vector(0) * -1');
  for (const text of special) await page.locator('.legend-value').getByText(text, { exact: true }).waitFor();
  await editor(page).click();
  await page.keyboard.press('Control+A');
  await page.keyboard.type('http_request');
  await page.locator('.cm-tooltip-autocomplete li', { hasText: 'http_requests_total' }).waitFor();
  await page.locator('.cm-completionInfo', { hasText: 'All requests that were answered' }).waitFor();
  await eventually('the help is not clipped', () => page.evaluate(() => {
    const box = document.querySelector('.cm-completionInfo').getBoundingClientRect();
    const [w, h] = [box.width, box.height]; // The corners are round.
    return [[w / 2, 3], [w / 2, h - 3], [3, h / 2], [w - 3, h / 2]].every(([x, y]) => document.elementFromPoint(box.left + x, box.top + y)?.closest('.cm-completionInfo'));
  }));
  await shot(page, 'explore-help');
  page.quiet();

  page.allowed.push(/status of 404/);
  await page.goto(base + '/targets/of/nobody');
  await page.getByRole('link', { name: 'Explore' }).click();
  await editor(page).waitFor();
  await page.context().close();
});

step('Alerts and Metrics show what there is and what it means', async () => {
  const page = await open();
  await page.goto(base + '/alerts');
  const firing = page.locator('section.panel', { hasText: 'ManyRequests' });
  await firing.locator('td .state.s-firing').waitFor();
  await firing.getByText('8 series').waitFor();
  await firing.getByRole('link', { name: 'https://example.org/many' }).waitFor();
  await page.getByText(/many-to-many matching not allowed|found duplicate series/).first().waitFor();
  await page.getByRole('button', { name: 'Show the last 24 hours of ManyRequests' }).click();
  await firing.locator('.lane .block.s-firing').first().waitFor();
  await sound(page, 'alerts');
  await page.getByRole('tab', { name: 'All rules' }).click();
  await page.locator('section.panel', { hasText: 'job:requests:count' }).waitFor();
  await page.getByLabel('Search rules').fill('severity-nobody-has');
  await page.getByText('No matching rules').waitFor();
  await page.goto(base + '/rules?search=requests:count');
  await counts('the rule that is looked for', page.locator('pre.rule-query'), (n) => n === 1);

  await page.goto(base + '/#/metrics');
  await page.getByLabel('Search metrics').fill('answered whatever');
  await page.getByRole('button', { name: /^http_requests_total counter/ }).click();
  await counts('the newest values', page.locator('tbody tr'), (n) => n === 8);
  await sound(page, 'metrics');
  await page.getByRole('link', { name: /^Explore rate/ }).click();
  await page.locator('.legend tbody tr').nth(7).waitFor();
  assert.match(decodeURIComponent(page.url()), /q=rate\(http_requests_total\[5m\]\)/);
  await page.context().close();
});

step('Queries lists what runs, and stops it; times are local or UTC; queries are prettified', async () => {
  const page = await open({ timezoneId: 'Asia/Kolkata' });
  // The list of queries is mocked, because a real query would end at an unpredictable time. The API has its own tests.
  let runs = true;
  const one = { id: 'ABC/1', tenants: ['default'], query: 'sum(rate(slow[1d]))', since: '2026-11-25T10:00:00Z', start: '2026-11-20T00:00:00Z', end: '2026-11-25T00:00:00Z', stepSeconds: 3600, origin: { address: '192.0.2.7:5', userAgent: 'Grafana/12' } };
  await page.route('**/api/v1/status/active_queries', (r) => r.fulfill({ json: { status: 'success', data: runs ? [one] : [] } }));
  await page.route('**/api/v1/status/active_queries/ABC%2F1', (r) => {
    runs = r.request().method() !== 'DELETE';
    return r.fulfill({ status: 204 });
  });
  await page.goto(base + '/#/queries');
  await page.getByText('5d, step 1h').waitFor();
  await sound(page, 'running queries', 0.1, true);
  await shot(page, 'queries');
  await page.getByRole('button', { name: 'Stop sum(rate(slow[1d]))' }).click();
  await page.getByText('No running queries').waitFor();
  await page.unrouteAll();

  await page.goto(base + '/#/explore?q=vector(time())&tab=table&to=2026-11-22T07:15:00Z&from=2026-11-22T06:15:00Z');
  await says(page, 'caption', /At 2026-11-22 12:45:00/);
  await page.getByRole('button', { name: 'Local' }).click();
  await says(page, 'caption', /At 2026-11-22 07:15:00/);
  await page.reload();
  await says(page, 'caption', /At 2026-11-22 07:15:00/);
  await page.getByRole('button', { name: 'More actions for query A' }).click();
  await page.getByRole('button', { name: 'Duplicate' }).click();
  await editor(page, 'B').click();
  await page.keyboard.press('Control+A');
  await page.keyboard.type('sum  by(a)(  up  )');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'More actions for query B' }).click();
  await page.getByRole('button', { name: 'Prettify' }).click();
  await eventually('it is pretty', async () => {
    const text = await editor(page, 'B').innerText();
    return text.trim() === 'sum by (a) (up)' || text;
  });
  page.quiet();
  await page.context().close();
});

step('Queries tells which took most', async () => {
  const page = await open();
  await page.goto(base + '/#/explore?q=count(http_requests_total)');
  await page.locator('.legend tbody tr').first().waitFor();
  await page.goto(base + '/#/queries');
  await page.locator('.top-query', { hasText: 'count(http_requests_total)' }).first().waitFor();
  for (const by of ['Max time', 'Samples', 'Count']) {
    await page.getByRole('tab', { name: by }).click();
    await page.locator('.top-query').first().waitFor();
  }
  await sound(page, 'top queries', 0.1, true);
  await page.locator('.top-query a', { hasText: 'count(http_requests_total)' }).first().click();
  await page.locator('.legend tbody tr').first().waitFor();
  await page.context().close();
});

step('Heat maps of classic and native histograms, by mouse and by keyboard', async () => {
  const page = await open();
  await page.goto(base + '/#/explore?q=sum by (le) (rate(latency_seconds_bucket[5m]))');
  const map = page.locator('.plot.heat');
  await map.waitFor();
  await says(page, '.plot-time', /^5 buckets/);
  await eventually('cells are drawn', async () => (await painted(page)) > 5000);
  await map.focus();
  await page.keyboard.press('End');
  await says(page, '.hover', /up to 100 ms/);
  for (let i = 0; i < 4; i++) await page.keyboard.press('ArrowUp');
  await says(page, '.hover', /above 1 s/);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowLeft');
  await says(page, '.hover', /500 ms – 1 s/);
  const value = Number(await page.locator('.hover-value').innerText());
  assert.ok(Math.abs(value - 4 / 60) < 1e-9, `four a minute are in the bucket: ${value}`);
  await sound(page, 'a heat map', 0.1, true);
  await shot(page, 'explore-heat');
  const box = await page.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 3);
  await says(page, '.hover', /above 1 s/);
  await selects(page, box);
  await page.goBack();
  await says(page, '.plot-time', /^5 buckets/);
  await page.getByRole('button', { name: 'Heatmap' }).click();
  await counts('a line a bucket', page.locator('.legend tbody tr'), (n) => n === 5);
  await eventually('the address says it', () => /lines=1/.test(page.url()));
  await page.getByRole('button', { name: 'Heatmap' }).click();
  await map.waitFor();
  for (const width of [390, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    await eventually(`no space is left below the map at ${width}`, () => page.evaluate(() => {
      const space = document.querySelector('.results').getBoundingClientRect().bottom - document.querySelector('.plot-time').getBoundingClientRect().bottom;
      return space < 120 || `${space}`;
    }));
  }

  await page.goto(base + '/#/explore?q=sum by (le) (rate(latency_seconds_bucket[5m]))&q=count(http_requests_total)');
  await counts('buckets beside another query are lines', page.locator('.legend tbody tr'), (n) => n === 6);
  await page.goto(base + '/#/explore?q=rate(native_latency_seconds[5m])&q=count(http_requests_total)');
  await page.getByText('Native histograms are not shown.').waitFor();
  await counts('the other query is a line', page.locator('.legend tbody tr'), (n) => n === 1);
  await sound(page, 'a native histogram beside another query', 0.2);

  await page.goto(base + '/#/explore?q=rate(native_latency_seconds[5m])');
  await map.waitFor();
  await eventually('cells are drawn', async () => (await painted(page)) > 5000);
  await says(page, '.plot-time', /^[56] buckets/); // The zero bucket, four buckets with observations, and the empty ones between them.
  // The heat map of the previous query may still be shown. It loses the focus when it is replaced.
  await eventually('the newest column of the native histogram', async () => {
    await map.focus();
    await page.keyboard.press('End');
    const seen = await page.locator('.hover').allInnerTexts();
    return /-1 ns – 1 ns/.test(seen[0]) || `${seen}`;
  });
  await sound(page, 'a heat map of a native histogram');
  await page.keyboard.press('+');
  await eventually('half an hour is seen', () => {
    const [, from, to] = /from=(20[^&]*)&to=(20[^&]*)/.exec(decodeURIComponent(page.url())) ?? [];
    return !!to && Math.abs((Date.parse(to) - Date.parse(from)) / 60_000 - 30) < 1;
  });
  await page.context().close();
});

step('Axes have units, one may stand on the right, and exemplars are drawn', async () => {
  const page = await open();
  await page.goto(base + '/#/explore?q=memory_bytes&q=histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket[5m])))&from=now-2h');
  await page.locator('.legend tbody tr').nth(1).waitFor();
  await page.getByRole('button', { name: 'More actions for query B' }).click();
  await page.getByRole('button', { name: 'Use right axis' }).click();
  await eventually('the address says it', () => /right=B/.test(page.url()));
  await page.getByText('Left axis: bytes · Right axis: seconds').waitFor();
  await page.locator('.plot').focus();
  await page.keyboard.press('End');
  await says(page, '.hover', /3221225472\s+3\.0 GiB/);
  await sound(page, 'two axes');
  await shot(page, 'explore-axes');
  await page.goto(base + '/#/explore?q=histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket[5m])))&from=now-2h');
  await page.getByText('Unit: seconds').waitFor();
  await page.getByRole('button', { name: 'Exemplars' }).click();
  const list = page.locator('.exemplars');
  await list.locator('summary', { hasText: /^[4-7] exemplars$/ }).waitFor();
  await list.locator('summary').focus();
  await page.keyboard.press('Enter');
  await list.locator('td', { hasText: /trace_id="trace-\d+"/ }).first().waitFor();
  await sound(page, 'exemplars', 0.1, true);
  await shot(page, 'explore-exemplars');
  await page.context().close();
});

step('Relabel shows what rules drop, and tries others', async () => {
  const page = await open();
  await page.goto(base + '/#/relabel');
  await page.locator('td', { hasText: 'unwanted_.*' }).waitFor();
  await page.locator('td.num', { hasText: /^1$/ }).waitFor(); // samples received since the start
  const rules = page.getByLabel('Rules in the format of write_relabel_configs');
  await rules.fill('- {source_labels: [__name__], regex: http_.*, action: drop}\n- {source_labels: [job], target_label: path}');
  await page.getByLabel('Retention of raw').fill('forever');
  await page.getByText('Invalid duration “forever”').waitFor();
  await page.getByLabel('Retention of raw').fill('1d');
  await page.keyboard.press('Enter');
  await says(page, '.stat:has-text("Dropped") .stat-value', /^8 series$/);
  await page.locator('td', { hasText: '1. {source_labels: ["__name__"], regex: "http_.*", action: drop}' }).waitFor();
  await page.locator('tr', { hasText: /^raw/ }).getByText(/[1-3] windows?, /).waitFor();
  await sound(page, 'a trial of rules', 0.25, true); // The result is shown below.
  await shot(page, 'relabel-trial', true);
  page.allowed.push(/status of 400/);
  await rules.fill('- {regx: a}');
  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await page.getByText('line 1, rule 1: unknown key regx').waitFor();
  await rules.fill("- {action: labeldrop, regex: a}\n- action: drop\n  regex: '('");
  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await page.getByText(/line 3, rule 2: error parsing regexp: missing closing \)/).waitFor();
  await page.context().close();
});

step('Relabel tells windows that would expire from those that have expired', async () => {
  const page = await open();
  await page.route('**/api/v1/cassia/relabel', (r) => (r.request().method() === 'POST' ? r.fulfill({ json: { status: 'success', data: {
    rules: null,
    retention: [{ resolution: 'raw', now: 86400, then: 43200, day_bytes: 10, bytes_now: 30720, windows: 2, bytes: 20480, expired_windows: 3, expired_bytes: 10240, bytes_at_rest: 5 }],
  } } }) : r.continue()));
  await page.goto(base + '/#/relabel');
  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await page.locator('tr', { hasText: /^raw.*2 windows, 20\.0 KiB.*3 windows, 10\.0 KiB/ }).waitFor();
  await sound(page, 'windows that have expired', 0.25);
  await page.context().close();
});

step('A metric that does not exist is named, with similar ones; of others it is said when they were seen', async () => {
  const page = await open();
  await page.goto(base + '/#/explore?q=rate(http_request_total[5m])');
  await page.getByText('No metric is named “http_request_total”').waitFor();
  await sound(page, 'an unknown metric', 0.2);
  await shot(page, 'explore-unknown');
  await page.getByRole('button', { name: 'http_requests_total' }).click();
  await page.locator('.legend tbody tr').nth(7).waitFor();
  assert.match(decodeURIComponent(page.url()), /q=rate\(http_requests_total\[5m\]\)/);
  await page.goto(base + '/#/metrics?metric=http_request_total');
  await page.getByText('No metric is named “http_request_total”').waitFor();
  await page.getByRole('button', { name: 'http_requests_total', exact: true }).click();
  await page.locator('h2', { hasText: 'http_requests_total' }).waitFor();
  await page.goto(base + '/#/explore?q=nothing_is_like_this');
  await page.getByText('No metric is named “nothing_is_like_this”').waitFor();
  await counts('nothing is suggested', page.getByText('Did you mean'), (n) => n === 0);
  await page.goto(base + '/#/explore?q=http_requests_total&q=temperature_celsiu');
  await page.locator('.legend tbody tr').nth(7).waitFor();
  await page.getByText('B: No metric is named “temperature_celsiu”').waitFor();
  await sound(page, 'an unknown metric beside another', 0.2);
  await page.getByRole('tab', { name: 'Table' }).click();
  await page.getByText('B: No metric is named “temperature_celsiu”').waitFor();
  await page.goto(base + '/#/explore?q=http_requests_total{job="nobody"}');
  await page.getByText('No samples in this range').waitFor();
  await page.getByText('fewer label matchers').waitFor();
  await page.route('**/api/v1/cassia/metric?*', (r) => r.fulfill({ json: { status: 'success', data: { name: 'up', found: true, recent: false, first: '2026-11-01T00:00:00Z', last: '2026-11-03T00:00:00Z', similar: [] } } }));
  await page.goto(base + '/#/explore?q=up{job="nobody"}');
  await page.getByText('up has no samples after 2026-11-03').waitFor();
  await page.getByRole('link', { name: 'Show its last day' }).click();
  await eventually('the range is its last day', () => /from=2026-11-02T00:00:00Z&to=2026-11-03T00:00:00Z/.test(decodeURIComponent(page.url())));
  await page.context().close();
});

step('The editor offers what the server accepts', async () => {
  const page = await open();
  await page.goto(base + '/');
  const { data: features } = await (await page.request.get(base + '/api/v1/features')).json();
  assert.equal(features.promql_functions.mad_over_time, false);
  const offered = async (text, accepted) => { // While one types, the list of a shorter text may still be shown.
    await editor(page).click();
    await page.keyboard.press('Control+A');
    await page.keyboard.type(text);
    let labels = [];
    await eventually(`${text}: ${accepted} is offered`, async () => {
      labels = await page.locator('.cm-tooltip-autocomplete li .cm-completionLabel').allInnerTexts();
      return labels.includes(accepted) || labels.join();
    });
    await page.keyboard.press('Escape');
    return labels;
  };
  for (const [text, accepted, refused] of [
    ['ma', 'max_over_time', 'mad_over_time'], ['m', 'min_over_time', 'min_of'], ['sort', 'sort_desc', 'sort_by_label'], ['histogram_q', 'histogram_quantile', 'histogram_quantiles'],
    ['li', 'predict_linear', 'limitk'], ['vector(1) + i', 'ignoring', 'info'], ['vector(1) + o', 'on', 'fill_left'], ['d', 'deriv', 'double_exponential_smoothing'],
  ]) {
    const labels = await offered(text, accepted);
    assert.ok(!labels.includes(refused), `${text}: ${refused} isn't offered: ${labels}`);
  }
  const off = Object.values({ ...features.promql_functions, ...features.promql_operators }).filter((on) => !on).length;
  assert.ok(off > 5, 'the server refuses some');
  await page.context().close();
});

step('Explain names durations by what they measure', async () => {
  const page = await open();
  await page.route('**/api/v1/query_range', (r) => r.fulfill({ json: { status: 'success', data: { resultType: 'matrix', result: [], stats: {
    timings: { execTotalTime: 0.0512, execQueueTime: 0.001, queryPreparationTime: 0.05, innerEvalTime: 0.0002 }, samples: { totalQueryableSamples: 7, peakSamples: 3 },
    parts: [{ expr: 'sum(rate(a[1h]))', segments: [], series: 3, samples: 7, milliseconds: 48 }],
  } } } }));
  await page.goto(base + '/#/explore?tab=explain&q=sum(rate(a[1h]))');
  await page.locator('.part').waitFor();
  const facts = await page.locator('.facts div').allInnerTexts();
  const told = Object.fromEntries(facts.map((f) => f.split('\n').filter(Boolean)));
  assert.deepEqual({ ...told, Resolution: undefined }, {
    Resolution: undefined, 'Total time': '51.2 ms', 'Time in queue': '1.0 ms', 'Parts computed by storage': '48.0 ms', 'Finding series': '2.0 ms', 'Query engine': '0.2 ms',
    'Total samples': '7', 'Peak samples in memory': '3',
  });
  await page.context().close();
});

step('Without the server, nothing is shown as none', async () => {
  const page = await open();
  page.allowed.push(/ERR_FAILED|Failed to load/);
  await page.route((url) => /\/api\/v1\//.test(url.pathname) && !/cassia\/session$/.test(url.pathname), (r) => r.abort());
  for (const [name, [place]] of Object.entries(views)) {
    await page.goto('about:blank');
    await page.goto(`${base}/#/${place}`);
    await page.getByText('Cassia is unreachable').first().waitFor();
    // Each request of the view fails.
    await eventually(`${name}: nothing is still loading`, async () => {
      const text = await page.locator('main').innerText();
      return !text.includes('…') || text;
    });
    const text = await page.locator('main').innerText();
    const none = text.split('\n').filter((line) => /(^|\s)0(\s|$)|\bnone\b|^no |^No |\b0 (windows|groups|series)|\bNaN\b|undefined/i.test(line));
    assert.deepEqual(none, [], `${name}: ${text}`);
    page.quiet();
    await shot(page, `away-${name}`);
  }
  await page.context().close();
});

step('Cardinality leads from a window to a label, and to a query', async () => {
  const page = await open();
  await page.goto(base + '/#/cardinality');
  await page.locator('.churn tbody tr').nth(3).waitFor();
  await page.locator('.churn .link').nth(2).click();
  await page.getByRole('button', { name: 'Labels of http_requests_total' }).click();
  await page.getByRole('button', { name: 'Values of instance' }).click();
  await page.getByText('Series per value of instance').waitFor();
  await page.getByRole('link', { name: 'host-3.example.org:9100' }).waitFor();
  await sound(page, 'cardinality');
  await shot(page, 'cardinality-values');
  await page.getByRole('link', { name: 'http_requests_total' }).click();
  await page.locator('.legend tbody tr').nth(7).waitFor();
  await eventually('a line is drawn', async () => (await drawn(page, first)) > 200);
  await page.context().close();
});

step('Cardinality warns of series that its counts lack', async () => {
  const page = await open({}, damaged);
  await page.goto(damaged + '/#/cardinality');
  await page.locator('.notice.warning', { hasText: '"up"' }).first().waitFor();
  await page.getByRole('button', { name: 'Labels of load' }).waitFor();
  await sound(page, 'counts that lack series', 0.2); // The warnings are inserted above the counts when the counts arrive.
  await shot(page, 'cardinality-damaged');
  await page.getByRole('button', { name: 'Labels of load' }).click();
  await page.getByRole('button', { name: 'Values of job' }).waitFor();
  await page.context().close();
});

step('An import is no late data', async () => {
  const page = await open();
  await page.goto(base + '/#/downsampling?tenant=imported');
  await page.locator('.lane .block.r-raw').nth(1).waitFor();
  await counts('no day has trouble', page.locator('.lane .block.again'), (n) => n === 0);
  await page.getByText('No samples arrived after their slot was sealed').waitFor();
  await eventually('its windows say that they were imported', async () => /\d+ slots? imported/.test(await page.locator('.lane .block.r-raw').first().getAttribute('title')));
  await page.context().close();
});

step('Sizes add up, and tables without rows are left out', async () => {
  const page = await open();
  await page.goto(base + '/#/storage');
  await page.locator('.count-line', { hasText: '5-minute buckets' }).first().waitFor();
  const size = (text) => {
    const [, n, unit] = /^([\d.]+) (B|KiB|MiB)$/.exec(text) ?? [];
    return n * { B: 1, KiB: 1024, MiB: 1024 ** 2 }[unit];
  };
  await eventually('what is sealed fits the directory', async () => {
    const [sealed, directory] = await Promise.all(['Sealed', 'Data directory'].map(async (name) => size(await page.locator('.stat', { hasText: name }).first().locator('.stat-value').innerText())));
    return (sealed > 0 && sealed <= directory) || `${sealed} of ${directory}`;
  });
  const names = await page.locator('.count-line code').allInnerTexts();
  for (const name of ['held', 'chosen', 'delete']) assert.ok(!names.includes(name), `${name} has no rows: ${names}`);
  await page.context().close();
});

step('Downsampling, Storage and Tenants show what there is', async () => {
  const page = await open();
  await page.goto(base + '/#/downsampling');
  for (const res of ['raw', '5m', '1h']) await page.locator(`.lane .block.r-${res}`).first().waitFor();
  await page.locator('td', { hasText: /^[1-9]\d* times?$/ }).first().waitFor();
  await page.locator('summary', { hasText: 'Partitions' }).click();
  await counts('a row a partition', page.locator('details tbody tr'), (n) => n === 4);
  await sound(page, 'downsampling');

  await page.getByRole('link', { name: 'Storage' }).click();
  await page.getByText('Next to expire', { exact: true }).waitFor();
  await page.getByText(/slots of 2h/).waitFor();
  await page.locator('.count-line', { hasText: '5-minute buckets' }).first().waitFor();
  await says(page, '.stat:has-text("raw") .stat-value', /^[1-9][\d.]* [KM]iB$/);
  await counts('a bar a window', page.locator('.bars.r-raw i'), (n) => n >= 3);
  await sound(page, 'storage');

  await page.getByRole('link', { name: 'Tenants' }).click();
  await page.locator('.tenant', { hasText: 'team-a' }).getByText('8 of 1,000').waitFor();
  await sound(page, 'tenants');
  await page.getByRole('button', { name: /Tenant default/ }).click();
  await sound(page, 'the choice of a tenant');
  await page.getByLabel('Search tenants').fill('team');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: /Tenant team-a/ }).waitFor();
  await page.getByRole('link', { name: 'Explore', exact: true }).first().click();
  await page.getByRole('button', { name: 'queue_length' }).waitFor();
  await counts('another tenant’s metric', page.getByRole('button', { name: 'http_requests_total' }), (n) => n === 0);
  await page.goto(base + '/#/explore?tenant=nobody');
  await page.getByText('has no samples from the last day').waitFor();
  await sound(page, 'a tenant without anything');
  await page.getByRole('link', { name: 'Cassia’s own metrics' }).click();
  await page.getByRole('button', { name: /^cassia_/ }).first().waitFor();
  await page.context().close();
});

step('Storage shows backups: the last ones, errors in full, and how to have some', async () => {
  const page = await open();
  await page.goto(base + '/#/storage');
  const panel = page.locator('section.panel', { has: page.getByRole('heading', { name: 'Backups' }) });
  await panel.getByText('every 1h').waitFor();
  await panel.locator('.state.s-inactive', { hasText: /^completed$/ }).waitFor();
  await panel.getByText(/^Last complete backup: .* ago\. Next backup: .* in \d+m/).waitFor();
  await panel.getByText('1 backup stored').waitFor();
  const cells = await panel.locator('tbody tr td').allInnerTexts();
  assert.equal(cells.length, 6);
  const status = await (await page.request.get(base + '/api/v1/status/backups')).json();
  assert.equal(cells[1], status.data.runs[0].name);
  assert.match(cells[2], /^[\d.]+ [KM]iB$/);
  assert.equal(cells[2], cells[3], 'the first backup copies all');
  assert.match(cells[4], /^[\dms]+$/);
  await sound(page, 'backups', 0.1, true);
  await page.goto(bare + '/#/storage');
  await panel.getByText(/To turn them on, set --backup\.to/).waitFor();
  assert.equal(await panel.locator('p').count(), 1, 'one line says it');
  await page.context().close();
});

const views = {
  start: ['', '.chips li'],
  explore: ['explore?q=http_requests_total&from=now-6h', '.legend tbody tr'],
  metrics: ['metrics?metric=http_requests_total', 'tbody tr'],
  alerts: ['alerts', '.state.s-firing'],
  cardinality: ['cardinality', '.counts li'],
  downsampling: ['downsampling', '.lane .block'],
  storage: ['storage', '.notice.ok'],
  tenants: ['tenants', '.tenant'],
  queries: ['queries', '.top-query'],
  heat: ['explore?q=rate(native_latency_seconds[5m])', '.plot.heat'],
  relabel: ['relabel', 'td.mono'],
  table: ['explore?q=http_requests_total&tab=table', 'tbody tr'],
  explain: ['explore?q=sum(rate(http_requests_total[1h])) / count(temperature_celsius_max)&from=now-2d&tab=explain', '.part'],
};

// The manual has no images of these states: the start page, and a table, whose controls are those of the graph.
const unpictured = ['start', 'table'];

step('every view in light, dark and small', async () => {
  const wide = { light: 'light', dark: 'dark', viewport: { width: 1440, height: 900 } };
  const small = { light: 'small', dark: 'smallDark', viewport: { width: 390, height: 844 } };
  for (const { light, dark, viewport } of [wide, small]) {
    for (const [name, [place, sign]] of Object.entries(views)) {
      const page = await open({ viewport });
      await page.goto(`${base}/#/${place}`);
      await page.locator(sign).first().waitFor();
      if (name === 'explore') await eventually('the line is drawn', async () => (await drawn(page, first)) > 100);
      await page.waitForLoadState('networkidle');
      await shot(page, `${name}-${light}`, light === 'small');
      if (light === 'light' && !unpictured.includes(name)) await picture(page, name);
      await sound(page, `${name}, ${light}`, 0.1, light === 'light');
      await page.emulateMedia({ colorScheme: 'dark' });
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))); // Wait until the graph is drawn again.
      await shot(page, `${name}-${dark}`, light === 'small');
      await sound(page, `${name}, ${dark}`, 0.1, true);
      await page.context().close();
    }
  }
});

step('on a phone, nothing is cut without a sign, and what is chosen is seen', async () => {
  const page = await open({ viewport: { width: 390, height: 844 } });
  // The heading must be in the upper part of the window.
  const inSight = (locator) => eventually('it is in sight', async () => {
    const box = await locator.boundingBox();
    return (box !== null && box.y >= 0 && box.y < 700) || JSON.stringify(box);
  });
  const oneLine = (selector) => page.locator(selector).evaluateAll((all) => all.filter((e) => e.getClientRects().length > 1 || e.clientHeight > 2 * parseFloat(getComputedStyle(e).fontSize)).map((e) => e.textContent));
  await page.goto(base + '/#/alerts');
  await page.locator('td .state.s-firing').waitFor();
  for (const width of [320, 660, 900, 1100, 390]) {
    await page.setViewportSize({ width, height: 844 });
    const links = await page.locator('.top nav a').evaluateAll((all) => all.map((e) => e.getBoundingClientRect()).map((b) => [b.left, b.right]));
    assert.equal(links.length, 9);
    for (const [left, right] of links) assert.ok(left >= 0 && right <= width, `all views are in sight at ${width}: ${links}`);
  }
  assert.deepEqual(await oneLine('.state'), [], 'badges are in one line');
  await page.goto(base + '/#/storage');
  await page.locator('td .res-chip').first().waitFor();
  assert.deepEqual(await oneLine('.state, .res-chip'), [], 'badges are in one line');
  for (const [place, cell] of [['explore?q=http_requests_total&tab=table', 'td.mono'], ['explore?q=http_requests_total', '.legend td:first-child'], ['queries', 'td.top-query'], ['relabel', 'td.mono'], ['metrics?metric=http_requests_total', 'td.mono']]) {
    await page.goto(`${base}/#/${place}`);
    await page.locator(cell).first().waitFor();
    const narrow = await page.locator(cell).evaluateAll((all) => all.map((e) => e.clientWidth).filter((w) => w < 190));
    assert.deepEqual(narrow, [], `${place}: labels have room`);
  }
  await page.goto(base + '/#/metrics');
  await page.locator('.metric-list button', { hasText: 'http_requests_total' }).click();
  await inSight(page.locator('h2', { hasText: 'http_requests_total' }));
  await page.goto(base + '/#/cardinality');
  await page.getByRole('button', { name: 'Values of instance' }).click();
  await inSight(page.locator('h2', { hasText: 'Series per value of instance' }));
  await page.goto(base + '/#/relabel');
  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await inSight(page.locator('h2', { hasText: /Effect of these rules|Effect of the new retention/ }).or(page.getByText('No samples in this time range')).first());
  await page.context().close();
});

step('a query, a zoom, a tab and a table by keyboard alone', async () => {
  const page = await open();
  await page.goto(base + '/');
  await page.locator('.chips li').first().waitFor();
  const name = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') || document.activeElement.textContent);
  const tabTo = async (wanted, key = 'Tab') => {
    const seen = [];
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press(key);
      seen.push(await name());
      if (wanted.test(seen.at(-1))) return;
    }
    assert.fail(`${key} doesn't reach ${wanted}: ${seen.join(' | ')}`);
  };
  await tabTo(/^Query A$/);
  await page.keyboard.type('http_requests_total');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
  await page.locator('.legend tbody tr').nth(7).waitFor();
  await tabTo(/^Graph\. /);
  await page.keyboard.press('End');
  await page.locator('.hover').waitFor();
  for (let i = 0; i < 10; i++) await page.keyboard.press('ArrowLeft');
  const width = () => {
    const [, from, to] = /from=(20[^&]*)&to=(20[^&]*)/.exec(decodeURIComponent(page.url())) ?? [];
    return to ? (Date.parse(to) - Date.parse(from)) / 60_000 : 60;
  };
  await page.keyboard.press('+');
  await eventually('half an hour is seen', () => Math.abs(width() - 30) < 1 || `${width()} minutes`);
  await page.locator('.results[aria-busy=false]').waitFor();
  await eventually('the graph has the focus still', async () => /^Graph\. /.test(await name()) || (await name()));
  await page.keyboard.press('-');
  await eventually('an hour is seen again', () => width() > 44 || `${width()} minutes`); // The range ends now at the latest.
  await page.locator('.results[aria-busy=false]').waitFor();
  await tabTo(/^Graph$/, 'Shift+Tab');
  await page.keyboard.press('ArrowRight');
  await page.locator('tbody tr').nth(7).waitFor();
  await tabTo(/^Filter the series/);
  await page.keyboard.type('host-3');
  await counts('one of eight', page.locator('tbody tr'), (n) => n === 1);
  await page.keyboard.press('Control+A');
  await page.keyboard.press('Delete');
  await tabTo(/^Value/);
  await page.keyboard.press('Enter');
  await page.locator('th[aria-sort=descending]', { hasText: 'Value' }).waitFor();
  assert.match(await page.locator('tbody tr').first().innerText(), /host-7/, 'the largest comes first');
  page.quiet();
  await page.context().close();
});

step('the theme is switched and stays, the keyboard is enough', async () => {
  const page = await open();
  await page.goto(base + '/');
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.getByRole('button', { name: /^Theme: auto/ }).click();
  await page.getByRole('button', { name: /^Theme: light/ }).click();
  await page.getByRole('button', { name: /^Theme: dark/ }).waitFor();
  await eventually('it is dark', async () => (await ground()) !== light);
  const dark = await ground();
  await page.reload();
  await eventually('it stays dark', async () => (await ground()) === dark);

  await page.locator('.chips li').first().waitFor();
  await page.waitForLoadState('networkidle');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  const seen = new Set();
  for (let i = 0; i < 24; i++) {
    await page.keyboard.press('Tab');
    const focus = await page.evaluate(() => {
      const e = document.activeElement;
      if (e === document.body) return { name: '', framed: '' };
      const framed = e.closest('.query') ? getComputedStyle(e.closest('.query')).boxShadow : getComputedStyle(e).outlineStyle;
      return { name: e.getAttribute('aria-label') || e.textContent.slice(0, 30), framed };
    });
    assert.notEqual(focus.framed, 'none', `the focus is seen on ${focus.name}`);
    seen.add(focus.name);
  }
  for (const name of ['Cardinality', 'Tenants', 'Query A', 'Run']) assert.ok(seen.has(name), `Tab reaches ${name}: ${[...seen]}`);
  await page.context().close();
});

step('where auth is on, the page asks who it is', async () => {
  const page = await open({}, locked);
  page.allowed.push(/status of 401/);
  await page.goto(locked + '/');
  await page.getByRole('button', { name: 'Log in' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.name), 'user', 'typing starts in the first field');
  await sound(page, 'logging in');
  await shot(page, 'login');
  await page.getByLabel('User').fill('ann');
  await page.getByLabel('Password', { exact: true }).fill('wrong');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('Wrong user or password.').waitFor();
  await page.getByLabel('Password', { exact: true }).fill(process.env.PASSWORD);
  await page.keyboard.press('Enter');
  await page.getByText('Tenant “team-a” has no samples from the last day').waitFor();
  await sound(page, 'what a reader sees', 0.3); // The login form was replaced by the view.
  await shot(page, 'nothing-stored');
  await page.getByRole('link', { name: 'Storage' }).click();
  await page.getByText('No sealed data yet').waitFor();
  assert.equal(await page.getByText('Health checks').count(), 0, 'that is for admins');
  assert.equal(await page.getByRole('heading', { name: 'Backups' }).count(), 0, 'they are for who may see metrics');
  await shot(page, 'nothing-sealed');
  const down = await page.locator('.empty-text').evaluate((e) => {
    const link = e.querySelector('a');
    const after = document.createRange();
    after.selectNodeContents(link.nextSibling);
    return after.getClientRects()[0].top - link.getClientRects()[0].top;
  });
  assert.ok(Math.abs(down) < 3, 'a link stands in its sentence');
  await eventually('a short page needs no scroll bar', () => page.evaluate(() => document.documentElement.scrollHeight <= innerHeight));
  await page.reload();
  await page.getByText('No sealed data yet').waitFor();
  await page.getByRole('button', { name: 'ann' }).click();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('tab', { name: 'Token' }).click();
  await page.getByLabel('Token', { exact: true }).fill(process.env.TOKEN);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('Health checks').waitFor();
  const failed = page.locator('.notice.error', { hasText: 'The last backup failed' });
  await failed.getByText(`backup folder: open ${process.env.NOFOLDER}/backups: not a directory`, { exact: true }).waitFor();
  await page.locator('.state.s-firing', { hasText: /^failed$/ }).first().waitFor();
  await sound(page, 'what an admin sees', 0.3); // The login form was replaced by the view.
  await page.context().close();
});

let failed = 0;
for (const [name, f] of steps) {
  if (process.env.ONLY && !new RegExp(process.env.ONLY).test(name)) continue;
  const begun = Date.now();
  try {
    await f();
    console.log(`ok    ${name} (${Date.now() - begun} ms)`);
  } catch (err) {
    failed++;
    console.log(`FAIL  ${name}: ${err.stack}`);
    for (const context of browser.contexts()) for (const page of context.pages()) await shot(page, `failed-${failed}`).catch(() => {});
  }
  for (const context of browser.contexts()) await context.close();
}
await browser.close();
process.exit(failed ? 1 : 0);
