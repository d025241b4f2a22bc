// Actions on a query other than running it, and the queries saved in the browser.
import { useState } from 'preact/hooks';
import { Caret } from './icons';
import { useOutside } from './parts';
import { forget, remembered, save, type Remembered } from './remembered';

/** QueryMenu is the menu of a query. Selecting an entry closes it. */
export function QueryMenu({ letter, choices }: { letter: string; choices: [string, (() => void) | undefined][] }) {
  const [open, setOpen] = useState(false);
  const at = useOutside<HTMLDivElement>(open, () => setOpen(false));
  return (
    <div class="menu" ref={at}>
      <button class="icon-button" aria-haspopup="true" aria-expanded={open} aria-label={`More actions for query ${letter}`} title="More actions" onClick={() => setOpen(!open)}>⋯</button>
      {open && (
        <div class="popover right">
          <ul class="choices">
            {choices.map(([name, act]) => act && <li key={name}><button onClick={() => { setOpen(false); act(); }}>{name}</button></li>)}
          </ul>
        </div>
      )}
    </div>
  );
}

/** History lists recent and saved queries. A click selects one. */
export function History({ user, choose }: { user: string; choose: (query: string) => void }) {
  const [list, setList] = useState<Remembered | null>(null);
  const at = useOutside<HTMLDivElement>(list !== null, () => setList(null));
  const rows = (queries: string[], saved: boolean) => queries.map((q) => (
    <li key={q} class="history-line">
      <button onClick={() => { setList(null); choose(q); }}><code>{q}</code></button>
      <button class="icon-button" aria-label={`${saved ? 'Remove from saved' : 'Save'}: ${q}`} title={saved ? 'Remove from saved' : 'Save'} onClick={() => setList(save(user, q, !saved))}>{saved ? '★' : '☆'}</button>
    </li>
  ));
  return (
    <div class="menu" ref={at}>
      <button class="link" aria-haspopup="true" aria-expanded={list !== null} onClick={() => setList(list ? null : remembered(user))}>Query history <Caret /></button>
      {list && (
        <div class="popover history">
          {list.saved.length > 0 && <><b class="small">Saved</b><ul class="choices">{rows(list.saved, true)}</ul></>}
          <b class="small">Recent</b>
          <ul class="choices">
            {rows(list.recent.filter((q) => !list.saved.includes(q)), false)}
            {!list.recent.length && <li class="none">No queries yet</li>}
          </ul>
          {list.recent.length > 0 && <button class="link" onClick={() => setList(forget(user))}>Clear recent queries</button>}
          <p class="small">The history is stored only in this browser. To share a query, use “Copy link”.</p>
        </div>
      )}
    </div>
  );
}
