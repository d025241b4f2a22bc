// The selection of a time range: a predefined range or any other.
import { useEffect, useState } from 'preact/hooks';
import { Caret, ClockIcon } from './icons';
import { useOutside } from './parts';
import { bounds, instant, quickRanges, rangeText, zone, type Range } from './time';

export function TimePicker({ range, onChange }: { range: Range; onChange: (r: Range) => void }) {
  const [open, setOpen] = useState(false);
  const [from, setFrom] = useState(range.from);
  const [to, setTo] = useState(range.to);
  const at = useOutside<HTMLDivElement>(open, () => setOpen(false));
  useEffect(() => {
    setFrom(range.from);
    setTo(range.to);
  }, [range.from, range.to]);
  const choose = (r: Range) => {
    setOpen(false);
    onChange(r);
  };
  const own: Range = { from: from.trim(), to: to.trim() };
  const checked = bounds(own, 100, '');
  const move = (by: number) => {
    const now = Date.now() / 1000;
    const begin = instant(range.from, now);
    const end = instant(range.to, now);
    if (isNaN(begin) || isNaN(end)) return;
    const width = end - begin;
    const iso = (t: number) => new Date(Math.round(t) * 1000).toISOString().slice(0, 19) + 'Z';
    onChange({ from: iso(begin + by * width), to: iso(end + by * width) });
  };
  return (
    <div class="menu picker" ref={at}>
      <button class="joined" onClick={() => move(-0.5)} aria-label="Earlier" title="Earlier">‹</button>
      <button class="menu-button joined" aria-haspopup="dialog" aria-expanded={open} onClick={() => setOpen(!open)}>
        <ClockIcon /> {rangeText(range)} <Caret />
      </button>
      <button class="joined" onClick={() => move(0.5)} aria-label="Later" title="Later">›</button>
      {open && (
        <div class="popover times" role="dialog" aria-label="Time range">
          <ul class="choices">
            {quickRanges.map(([t, words]) => (
              <li key={t}><button aria-pressed={range.from === t && range.to === 'now'} onClick={() => choose({ from: t, to: 'now' })}>Last {words}</button></li>
            ))}
          </ul>
          <form onSubmit={(e) => { e.preventDefault(); if (typeof checked !== 'string') choose(own); }}>
            <label>From <input value={from} onInput={(e) => setFrom(e.currentTarget.value)} spellcheck={false} /></label>
            <label>To <input value={to} onInput={(e) => setTo(e.currentTarget.value)} spellcheck={false} /></label>
            <p class="small">{typeof checked === 'string' ? checked : `Examples: now-6h, 2026-11-22 07:15, or a Unix timestamp in seconds. Time zone: ${zone()}`}</p>
            <button class="primary" disabled={typeof checked === 'string'}>Apply</button>
          </form>
        </div>
      )}
    </div>
  );
}
