// Calls of Cassia's API: who asks, for which tenant, and errors as they are told.

/** ApiError is an answer other than success. status is 0 where there was no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
  ) {
    super(message);
  }
}

/** Answer is what a call returns: the data, and what the server says about them. */
export interface Answer<T> {
  data: T;
  warnings: string[];
  infos: string[];
  /** resolution is what X-Cassia-Resolution says; empty: nothing. */
  resolution: string;
  milliseconds: number;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** tenant is sent in X-Scope-OrgID; empty: the server chooses. */
  tenant?: string;
  /** post sends the parameters in the body, where they may be long; remove asks with DELETE. */
  post?: boolean;
  remove?: boolean;
  /** json is sent as the body, in place of parameters. */
  json?: unknown;
}

export type Params = Record<string, string | string[] | number | undefined>;

const credentialsKey = 'cassia.authorization';
let onLogin: () => void = () => {};

/** whenLoginIsNeeded is called as soon as the server doesn't know who asks. */
export function whenLoginIsNeeded(f: () => void): void {
  onLogin = f;
}

/** logIn keeps what is shown to the server as long as the tab is open; empty: nothing any more. */
export function logIn(authorization: string): void {
  if (authorization) sessionStorage.setItem(credentialsKey, authorization);
  else sessionStorage.removeItem(credentialsKey);
}

export function loggedIn(): boolean {
  return sessionStorage.getItem(credentialsKey) !== null;
}

/** basic is the Authorization header of a user with a password, in UTF-8. */
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
  // Who sends this header is answered 401 without the challenge that makes browsers ask for a password themselves.
  const headers = new Headers({ 'X-Requested-With': 'cassia' });
  const authorization = sessionStorage.getItem(credentialsKey);
  if (authorization) headers.set('Authorization', authorization);
  if (options.tenant) headers.set('X-Scope-OrgID', options.tenant);
  return headers;
}

/** send asks for a path relative to the page, and throws an ApiError where the answer isn't one of success. */
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
    // It isn't JSON: a proxy's page, or plain text.
  }
  const plain = text.length < 500 && !text.startsWith('<') ? text.trim() : '';
  return new ApiError(response.status, '', plain || `${response.status} ${response.statusText}`);
}

/** call asks a path of api/v1. */
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

/** remove ends what a path of api/v1 stands for. */
export async function remove(path: string, options: CallOptions = {}): Promise<void> {
  await send('api/v1/' + path, {}, { ...options, remove: true });
}

/** Session is who asks, and what this server is: api/v1/cassia/session. */
export interface Session {
  version: string;
  revision: string;
  target: string;
  engine: string;
  /** user is empty where nobody is asked who it is. */
  user: string;
  auth: boolean;
  /** metrics says that the user has that role: how the process is doing is theirs to see. */
  metrics: boolean;
  admin: boolean;
  tenants: string[];
  /** any says that tenants may be used that aren't in the list. */
  any_tenant: boolean;
  default_tenant: string;
  self_tenant: string;
  /** not_ready is why queries can't be answered yet; empty: they can. */
  not_ready: string;
  resolutions: string[];
}
