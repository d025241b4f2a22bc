// The frame of the page: the user, the selected tenant and the selected view.
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Alerts } from './alerts';
import { call, loggedIn, logIn, whenLoginIsNeeded, type Session } from './api';
import { Cardinality } from './cardinality';
import { Downsampling } from './downsampling';
import { Explore } from './explore';
import { Caret, Logo } from './icons';
import { go, href, usePlace, type Place } from './location';
import { Login } from './login';
import { Metrics } from './metrics';
import { Failure, Notice, useLoad, useOutside } from './parts';
import { Queries } from './queries';
import { Relabel } from './relabel';
import { Storage } from './storage';
import { Tenants } from './tenants';
import { inUtc, setUtc, zone } from './time';

/** ViewProps are the properties of every view. */
export interface ViewProps {
  session: Session;
  tenant: string;
  place: Place;
}

const views: [string, string, (p: ViewProps) => preact.JSX.Element][] = [
  ['explore', 'Explore', Explore],
  ['metrics', 'Metrics', Metrics],
  ['alerts', 'Alerts', Alerts],
  ['queries', 'Queries', Queries],
  ['cardinality', 'Cardinality', Cardinality],
  ['downsampling', 'Downsampling', Downsampling],
  ['storage', 'Storage', Storage],
  ['relabel', 'Relabel', Relabel],
  ['tenants', 'Tenants', Tenants],
];

function App() {
  const [login, setLogin] = useState(false);
  useEffect(() => whenLoginIsNeeded(() => setLogin(true)), []);
  const session = useLoad((signal) => call<Session>('cassia/session', {}, { signal }).then((a) => a.data), [login]);
  const place = usePlace();
  if (login) return <Login failed={loggedIn()} onDone={() => setLogin(false)} />;
  if (!session.data) {
    return (
      <Frame place={place} right={<ThemeSwitch />}>
        {session.error ? <Failure error={session.error} again={session.again} /> : null}
      </Frame>
    );
  }
  return <Page session={session.data} place={place} />;
}

function Page({ session, place }: { session: Session; place: Place }) {
  const tenant = place.params.get('tenant') ?? session.default_tenant;
  const choose = (name: string) => {
    const params = new URLSearchParams(place.params);
    params.set('tenant', name);
    go(place.view, params);
  };
  const view = views.find(([name]) => name === place.view);
  useEffect(() => {
    document.title = view ? `${view[1]} – Cassia` : 'Cassia';
  }, [view]);
  const right = (
    <>
      <TenantChooser session={session} tenant={tenant} choose={choose} />
      <ZoneSwitch change={() => setZone(inUtc())} />
      <ThemeSwitch />
      {session.user && <UserMenu session={session} />}
    </>
  );
  const View = view?.[2];
  const [utc, setZone] = useState(inUtc);
  return (
    <Frame place={place} right={right} tenant={place.params.get('tenant') ?? ''}>
      <Readiness session={session} />
      {View ? (
        <View key={`${place.view}/${tenant}/${utc}`} session={session} tenant={tenant} place={place} />
      ) : (
        <Notice tone="info" title={`Unknown view “${place.view}”.`}>Go to <a href={href('explore')}>Explore</a>.</Notice>
      )}
      <footer class="foot">
        Cassia {session.version} on {session.engine}
        {session.target !== 'all' && `, --target=${session.target}`} · <a href="manual">Manual</a>
      </footer>
    </Frame>
  );
}

function Frame(props: { place: Place; right: preact.ComponentChildren; tenant?: string; children: preact.ComponentChildren }) {
  const keep: Record<string, string> = props.tenant ? { tenant: props.tenant } : {};
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to content</a>
      <header class="top">
        <a class="brand" href={href('explore', keep)} aria-label="Cassia"><Logo /> <span>Cassia</span></a>
        <nav aria-label="Views">
          {views.map(([name, title]) => (
            <a key={name} href={href(name, keep)} aria-current={name === props.place.view ? 'page' : undefined}>{title}</a>
          ))}
        </nav>
        <div class="top-right">{props.right}</div>
      </header>
      <main id="main" tabIndex={-1}>{props.children}</main>
    </>
  );
}

/** Readiness shows a notice while queries can't be served. It disappears once they can. */
function Readiness({ session }: { session: Session }) {
  const [why, set] = useState(session.not_ready);
  useEffect(() => {
    if (!why) return;
    const timer = setInterval(() => {
      call<Session>('cassia/session').then((a) => set(a.data.not_ready), () => {});
    }, 2000);
    return () => clearInterval(timer);
  }, [why]);
  if (!why) return null;
  return <Notice tone="info" title="Queries aren’t available yet.">{why}. Samples are already accepted.</Notice>;
}

function TenantChooser(props: { session: Session; tenant: string; choose: (name: string) => void }) {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState('');
  const at = useOutside<HTMLDivElement>(open, () => setOpen(false));
  const { tenants, any_tenant: any } = props.session;
  const names = tenants.includes(props.tenant) || !props.tenant ? tenants : [props.tenant, ...tenants];
  if (names.length <= 1 && !any) return props.tenant ? <span class="tenant-only">{props.tenant}</span> : null;
  const choose = (name: string) => {
    setOpen(false);
    setText('');
    if (name && name !== props.tenant) props.choose(name);
  };
  const found = names.filter((n) => n.toLowerCase().includes(text.toLowerCase())).slice(0, 50);
  return (
    <div class="menu" ref={at}>
      <button class="menu-button" aria-haspopup="true" aria-expanded={open} onClick={() => setOpen(!open)} title="Tenant whose data is shown">
        <span class="menu-label">Tenant</span> <strong>{props.tenant || 'none selected'}</strong> <Caret />
      </button>
      {open && (
        <div class="popover right">
          <form onSubmit={(e) => { e.preventDefault(); choose(found[0] ?? (any ? text : '')); }}>
            <input
              autoFocus ref={(e) => { e?.focus(); }} value={text} onInput={(e) => setText(e.currentTarget.value)}
              placeholder={any ? 'Search or enter a tenant' : 'Search tenants'} aria-label="Search tenants"
            />
          </form>
          <ul class="choices">
            {found.map((n) => (
              <li key={n}><button aria-pressed={n === props.tenant} onClick={() => choose(n)}>{n}</button></li>
            ))}
            {any && text && !names.includes(text) && found.length > 0 && <li><button type="button" onClick={() => choose(text)}>Use tenant “{text}”</button></li>}
            {!found.length && <li class="none">{any && text ? `Press Enter to use tenant “${text}”` : 'No matching tenant'}</li>}
          </ul>
        </div>
      )}
    </div>
  );
}

setUtc(localStorage.getItem('cassia.zone') === 'utc');

/** ZoneSwitch selects the browser's time zone or UTC. */
function ZoneSwitch({ change }: { change: () => void }) {
  const other = inUtc() ? 'local time' : 'UTC';
  const toggle = () => {
    setUtc(!inUtc());
    localStorage.setItem('cassia.zone', inUtc() ? 'utc' : 'local');
    change();
  };
  return <button class="zone" onClick={toggle} title={`Times are shown in ${zone()}. Switch to ${other}`}>{inUtc() ? 'UTC' : 'Local'}</button>;
}

const themes = ['auto', 'light', 'dark'] as const;

function ThemeSwitch() {
  const [theme, set] = useState(() => document.documentElement.dataset.theme ?? 'auto');
  const next = themes[(themes.indexOf(theme as 'auto') + 1) % themes.length]!;
  const change = () => {
    set(next);
    if (next === 'auto') {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem('cassia.theme');
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem('cassia.theme', next);
    }
    window.dispatchEvent(new Event('themechange'));
  };
  return (
    <button class="icon-button" onClick={change} aria-label={`Theme: ${theme}. Switch to ${next}`} title={`Theme: ${theme}`}>
      <svg viewBox="0 0 20 20" aria-hidden="true">
        {theme === 'light' && <g><circle cx="10" cy="10" r="3.5" /><path d="M10 2v2M10 16v2M2 10h2M16 10h2M4.3 4.3l1.5 1.5M14.2 14.2l1.5 1.5M4.3 15.7l1.5-1.5M14.2 5.8l1.5-1.5" /></g>}
        {theme === 'dark' && <path d="M16.5 12A7 7 0 0 1 8 3.5a7 7 0 1 0 8.5 8.500z" />}
        {theme === 'auto' && <g><circle cx="10" cy="10" r="7" /><path class="half" d="M10 3a7 7 0 0 1 0 14z" /></g>}
      </svg>
    </button>
  );
}

function UserMenu({ session }: { session: Session }) {
  const [open, setOpen] = useState(false);
  const at = useOutside<HTMLDivElement>(open, () => setOpen(false));
  return (
    <div class="menu" ref={at}>
      <button class="menu-button" aria-haspopup="true" aria-expanded={open} onClick={() => setOpen(!open)}>
        <strong>{session.user}</strong> <Caret />
      </button>
      {open && (
        <div class="popover right">
          <p class="small">{session.admin ? 'Full access (role admin)' : 'Read access to your tenants'}</p>
          {loggedIn() && <button onClick={() => { logIn(''); location.reload(); }}>Log out</button>}
        </div>
      )}
    </div>
  );
}

render(<App />, document.getElementById('app')!);
