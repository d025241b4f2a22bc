// Scheduled backups: the stored backups, the successful and failed runs of this process, and when the next one is due.
import { call, type Session } from './api';
import { bytes, plural } from './format';
import { Failure, Notice, Panel, Scroll, useLoad } from './parts';
import { duration, local, since } from './time';

interface Run {
  name: string;
  begun: string;
  seconds: number;
  bytes: number;
  copiedBytes: number;
  /** error is the reason why no backup was made or, if made is set, another problem. */
  error?: string;
  made: boolean;
  damaged?: string[];
  future?: string;
}

interface Status {
  enabled: boolean;
  to?: string;
  encrypted?: boolean;
  everySeconds?: number;
  running?: string;
  next?: string;
  lastSuccess?: string;
  runs: Run[];
  /** stored contains the stored backups. bytes is missing if the size is unknown. */
  stored: { name: string; taken: string; damaged?: boolean; bytes?: number }[];
  storedError?: string;
}

// Number of intervals without a complete backup after which the alert CassiaBackupsFail fires.
const lateAfter = 3;

const shown = 20;

export function Backups({ session }: { session: Session }) {
  const status = useLoad((signal) => call<Status>('status/backups', {}, { signal }).then((a) => a.data), [], 15_000);
  const s = status.data;
  if (s && !s.enabled) return <NoSchedule engine={session.engine} />;
  return (
    <Panel title="Backups" aside={s && <span>to <code>{s.to}</code>, every {duration(s.everySeconds ?? 0)}{s.encrypted && ', encrypted'}</span>}>
      {status.error ? <Failure error={status.error} again={status.again} /> : null}
      {s ? <Scheduled status={s} /> : <div class="reserve-some" />}
    </Panel>
  );
}

function NoSchedule({ engine }: { engine: string }) {
  return (
    <Panel title="Backups">
      {engine === 'pebble' ? (
        <p class="small">Scheduled backups are off. To turn them on, set <code>--backup.to</code> to a folder or a bucket: see <a href="manual/backup-object-storage#on-a-schedule">Backups on a schedule</a>.</p>
      ) : (
        <p class="small">With Cassandra, back up the nodes with <code>docker/cassandra/snapshot</code>: see <a href="manual/cassandra">Cassandra</a>.</p>
      )}
    </Panel>
  );
}

const moment = (at: string) => local(Date.parse(at) / 1000);

function Scheduled({ status: s }: { status: Status }) {
  const every = s.everySeconds ?? 0;
  const late = s.lastSuccess !== undefined && Date.now() - Date.parse(s.lastSuccess) > lateAfter * every * 1000;
  const at = s.runs.findIndex((r) => r.error);
  const failed = s.runs[at];
  const future = s.runs[0]?.future;
  return (
    <>
      <p class="small">
        {s.lastSuccess ? <>Last complete backup: {moment(s.lastSuccess)}, <b>{since(s.lastSuccess)}</b>. </> : 'No complete backup yet. '}
        {s.running ? <>A backup has been running since {moment(s.running)}.</> : s.next && <>Next backup: {moment(s.next)}{Date.parse(s.next) > Date.now() && <>, <b>{since(s.next)}</b></>}.</>}
      </p>
      {late && <Notice tone="warning" title={`No backup has succeeded for more than ${duration(lateAfter * every)} (${lateAfter} intervals).`} />}
      {failed && (
        <Notice tone={at === 0 ? 'error' : 'info'} title={at === 0 ? `The last backup ${failed.made ? 'completed with an error' : 'failed'}` : `A backup ${failed.made ? 'completed with an error' : 'failed'} ${since(failed.begun)}; a later one succeeded`}>
          <p class="mono">{failed.error}</p>
          {!!failed.damaged?.length && <p class="mono">{failed.damaged.join(', ')}</p>}
        </Notice>
      )}
      {future && <Notice tone="warning" title="The system clock is or was wrong">The backup <code>{future}</code> is dated in the future. Until this is resolved, no old backups are deleted.</Notice>}
      {s.storedError && <Notice tone="warning" title="The stored backups can’t be listed"><p class="mono">{s.storedError}</p></Notice>}
      <List status={s} />
    </>
  );
}

/** result returns the outcome of a run and its colour. */
function result(r: Run): [string, string] {
  if (!r.made) return ['failed', 's-firing'];
  if (r.damaged?.length) return ['store is damaged', 's-firing'];
  return r.error ? ['completed with an error', 's-pending'] : ['completed', 's-inactive'];
}

function List({ status: s }: { status: Status }) {
  const kept = new Map(s.stored.map((b) => [b.name, b]));
  const ran = new Set(s.runs.map((r) => r.name));
  const rows = [
    ...s.runs.map((r) => ({ name: r.name, at: r.begun, run: r, damaged: false, size: r.made ? r.bytes : undefined })),
    ...s.stored.filter((b) => !ran.has(b.name)).map((b) => ({ name: b.name, at: b.taken, run: undefined, damaged: !!b.damaged, size: b.bytes })),
  ].sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  if (!rows.length) return null;
  return (
    <>
      <Scroll label="Recent backups">
        <table>
          <thead><tr><th>Started</th><th>Backup</th><th class="num">Size</th><th class="num">Copied</th><th class="num">Duration</th><th>Result</th></tr></thead>
          <tbody>
            {rows.slice(0, shown).map(({ name, at, run, damaged, size }) => {
              const [text, tone] = run ? result(run) : damaged ? ['damaged or incomplete', 's-firing'] : ['completed', 's-inactive'];
              return (
                <tr key={name}>
                  <td class="nowrap" title={since(at)}>{moment(at)}</td>
                  <td class="mono">{name}</td>
                  <td class="num">{size === undefined ? '–' : bytes(size)}</td>
                  <td class="num">{run ? bytes(run.copiedBytes) : '–'}</td>
                  <td class="num">{run ? duration(run.seconds) : '–'}</td>
                  <td class="nowrap"><span class={`state ${tone}`} title={run?.error}>{text}</span>{run?.made && !s.storedError && !kept.has(name) && <span class="small"> since deleted</span>}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      <p class="small">
        {s.storedError ? '' : `${plural(s.stored.length, 'backup')} stored. `}{rows.length > shown && `Only the latest ${shown} are listed. `}“Copied” and “Duration” are known only for backups made since this process started.
      </p>
    </>
  );
}
