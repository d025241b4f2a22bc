// The login form, with a password or a token, for servers with --auth.file.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError, basic, call, logIn, type Session } from './api';
import { Logo } from './icons';
import { Failure, Tabs } from './parts';

export function Login(props: { failed: boolean; onDone: () => void }) {
  const [kind, setKind] = useState<'password' | 'token'>('password');
  const [user, setUser] = useState('');
  const [secret, setSecret] = useState('');
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const first = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => first.current?.focus(), []);
  const enter = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    logIn(kind === 'token' ? 'Bearer ' + secret.trim() : basic(user, secret));
    try {
      await call<Session>('cassia/session');
      props.onDone();
    } catch (err) {
      logIn('');
      const wrong = kind === 'token' ? 'Unknown token.' : 'Wrong user or password.';
      setError(err instanceof ApiError && err.status === 401 ? new ApiError(401, '', wrong) : err);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form class="panel" onSubmit={enter}>
        <h1><Logo /> Cassia</h1>
        <Tabs label="Login method" tabs={[['password', 'Password'], ['token', 'Token']]} at={kind} onChange={(k) => { setKind(k); setSecret(''); setError(undefined); }} />
        {kind === 'password' && (
          <label>User <input ref={first} name="user" autocomplete="username" required value={user} onInput={(e) => setUser(e.currentTarget.value)} /></label>
        )}
        <label>
          {kind === 'password' ? 'Password' : 'Token'}
          <input name="secret" type="password" autocomplete="current-password" required value={secret} onInput={(e) => setSecret(e.currentTarget.value)} />
        </label>
        {error ? <Failure error={error} /> : null}
        <button class="primary" disabled={busy}>Log in</button>
        <p class="small">Users are defined in the file set by <code>--auth.file</code>. You stay logged in until you close this tab.</p>
      </form>
    </main>
  );
}
