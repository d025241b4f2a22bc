// Checks every page of the manual in a real browser, with the light and the dark theme, in wide and narrow windows, and
// searches with the keyboard. Environment variables: BASE is the server's URL, TOPICS are the pages, CHROMIUM is the
// browser, and SHOTS is a folder for screenshots.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';
import { sound, watched } from './look.mjs';

const { BASE: base, TOPICS: topics, CHROMIUM: executablePath, SHOTS: shots } = process.env;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });

for (const [width, height, colorScheme] of [[1440, 900, 'light'], [390, 844, 'dark']]) {
  const page = await watched(browser, base, { viewport: { width, height }, colorScheme });
  for (const topic of ['', ...topics.split(' ')]) {
    const name = `manual/${topic}`.replace(/\/$/, '');
    await page.goto(`${base}/${name}`);
    await page.locator('h1').waitFor();
    // axe takes seconds, and the pages have the same kinds of elements, so it checks only some.
    await sound(page, `${name}, ${width} wide, ${colorScheme}`, 0.1, ['', 'quick-start', 'rollups', 'flags'].includes(topic));
    if (['', 'quick-start', 'rollups', 'troubleshooting'].includes(topic)) await page.screenshot({ path: `${shots}/${name.replace('/', '-')}-${width}.png` });
  }

  await page.goto(`${base}/manual/rollups`);
  await page.getByRole('searchbox', { name: 'Search the manual' }).focus();
  await page.keyboard.type('late samples');
  await page.keyboard.press('Enter');
  await page.locator('h1', { hasText: 'for “late samples”' }).waitFor();
  await sound(page, `what was found, ${width} wide`, 0.1, true);
  await page.screenshot({ path: `${shots}/manual-search-${width}.png` });
  await page.locator('.found a').first().focus();
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/manual\/[a-z-]+/);
  await page.locator('h1').waitFor();
  assert.equal(await page.getByRole('navigation', { name: 'Pages of the manual' }).locator('[aria-current]').count(), 1);
  await page.context().close();
}
await browser.close();
