// Calls of Cassia's API: authentication, tenants and errors.

/** ApiError is a response that isn't successful. status is 0 if there was no response. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
  ) {
    super(message);
  }
}

/** Answer is the result of a call: the data, and what the server reports about them. */
export interface Answer<T> {
  data: T;
  warnings: string[];
  infos: string[];
  /** resolution is the header X-Cassia-Resolution, or empty. */
  resolution: string;
  milliseconds: number;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** tenant is sent as X-Scope-OrgID. If it is empty, the server selects the tenant. */
  tenant?: string;
  /** post sends the parameters in the body, because they may be long. remove sends a DELETE request. */
  post?: boolean;
  remove?: boolean;
  /** json is sent as the body instead of parameters. */
  json?: unknown;
}

export type Params = Record<string, string | string[] | number | undefined>;

const credentialsKey = 'cassia.authorization';
let onLogin: () => void = () => {};

/** whenLoginIsNeeded sets the function that is called when the server requires a login. */
export function whenLoginIsNeeded(f: () => void): void {
  onLogin = f;
}

/** logIn stores the Authorization header for as long as the tab is open. An empty header logs out. */
export function logIn(authorization: string): void {
  if (authorization) sessionStorage.setItem(credentialsKey, authorization);
  else sessionStorage.removeItem(credentialsKey);
}

export function loggedIn(): boolean {
  return sessionStorage.getItem(credentialsKey) !== null;
}

/** basic returns the Authorization header for a user with a password, in UTF-8. */
export function basic(user: string, password: string): string {
  const bytes = new TextEncoder().encode(user + ':' + password);
  return 'Basic ' + btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(''));
}

function encode(params: Params): URLSearchParams {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) out.append(name, String(one));
  }
  return out;
}

function headersFor(options: CallOptions): Headers {
  // With this header, a 401 response has no challenge, which would make the browser open its own login dialog.
  const headers = new Headers({ 'X-Requested-With': 'cassia' });
  const authorization = sessionStorage.getItem(credentialsKey);
  if (authorization) headers.set('Authorization', authorization);
  if (options.tenant) headers.set('X-Scope-OrgID', options.tenant);
  return headers;
}

/** send requests a path relative to the page. It throws an ApiError if the response isn't successful. */
async function send(path: string, params: Params, options: CallOptions = {}): Promise<Response> {
  const form = encode(params);
  const init: RequestInit = { headers: headersFor(options), signal: options.signal ?? null, cache: 'no-store' };
  let url = path;
  if (options.post) {
    init.method = 'POST';
    init.body = form;
  } else if (form.size > 0) {
    url += '?' + form;
  }
  if (options.json !== undefined) {
    init.method = 'POST';
    init.body = JSON.stringify(options.json);
    (init.headers as Headers).set('Content-Type', 'application/json');
  }
  if (options.remove) init.method = 'DELETE';
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (err) {
    if (options.signal?.aborted) throw err;
    throw new ApiError(0, 'unreachable', 'Cassia is unreachable. Check that it is running and that your network connection works.');
  }
  if (response.ok) return response;
  if (response.status === 401) onLogin();
  throw await errorOf(response);
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  try {
    const body = JSON.parse(text) as { errorType?: string; error?: string };
    if (body.error) return new ApiError(response.status, body.errorType ?? '', body.error);
  } catch {
    // The body isn't JSON, but a proxy's page or plain text.
  }
  const plain = text.length < 500 && !text.startsWith('<') ? text.trim() : '';
  return new ApiError(response.status, '', plain || `${response.status} ${response.statusText}`);
}

/** call requests a path below api/v1. */
export async function call<T>(path: string, params: Params = {}, options: CallOptions = {}): Promise<Answer<T>> {
  const begun = performance.now();
  const response = await send('api/v1/' + path, params, options);
  const body = (await response.json()) as { data: T; warnings?: string[]; infos?: string[] };
  return {
    data: body.data,
    warnings: body.warnings ?? [],
    infos: body.infos ?? [],
    resolution: response.headers.get('X-Cassia-Resolution') ?? '',
    milliseconds: performance.now() - begun,
  };
}

/** remove sends a DELETE request to a path below api/v1. */
export async function remove(path: string, options: CallOptions = {}): Promise<void> {
  await send('api/v1/' + path, {}, { ...options, remove: true });
}

/** Session is the response of api/v1/cassia/session: the user, and facts about the server. */
export interface Session {
  version: string;
  revision: string;
  target: string;
  engine: string;
  /** user is empty if there is no authentication. */
  user: string;
  auth: boolean;
  /** metrics is set if the user may see the state of the process. */
  metrics: boolean;
  admin: boolean;
  tenants: string[];
  /** any_tenant is set if the user may also use tenants that aren't in the list. */
  any_tenant: boolean;
  default_tenant: string;
  self_tenant: string;
  /** not_ready is the reason why queries can't be served yet, or empty. */
  not_ready: string;
  resolutions: string[];
}
