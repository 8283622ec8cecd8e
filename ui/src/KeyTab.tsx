import { useState } from "react";

import type { KeyEvent, KeyRow, Story } from "./api";
import { moment, plural, shown } from "./format";
import { Loading, Trouble } from "./parts";
import { hashOf, type Place, useAsk } from "./use";

const OPERATIONS: Record<string, string> = { c: "create", u: "update", d: "delete", r: "snapshot read", t: "truncate" };
const UNAVAILABLE = "__debezium_unavailable_value";
/** Events that are shown; a key may have more than a browser draws quickly. */
const MOST_EVENTS = 500;
const MOST_PATHS = 20;

export function KeyTab({ place }: { place: Place }) {
  const { lake, flow } = place;
  const asked = place.parameters.get("key") ?? "";
  const [written, setWritten] = useState(asked);
  const [through, setThrough] = useState<number | null>(null);
  const go = () => {
    setThrough(null);
    window.location.assign(hashOf(lake, flow, "key", { key: written.trim() }));
  };
  const { data, error, loading } = useAsk<Story>(asked ? "key" : "", { lake, flow, key: asked, through });
  return (
    <>
      <div className="filters">
        <label className="wide">
          Key
          <input
            type="text"
            value={written}
            placeholder="42, or id=42,line=1"
            onChange={(event) => setWritten(event.target.value)}
            onKeyDown={(event) => event.key === "Enter" && go()}
          />
        </label>
        <button type="button" className="main" onClick={go} disabled={!written.trim()}>
          Show its story
        </button>
      </div>
      {asked ? null : (
        <p className="empty">
          Why is a row as it is? Type its key: its archived events in order, what became of each and why, and the row today.
        </p>
      )}
      <Trouble error={error} />
      {asked && loading ? <Loading what="the archive's files for this key" /> : null}
      {asked && !loading && !error && data ? <StoryView story={data} further={setThrough} /> : null}
    </>
  );
}

function StoryView({ story, further }: { story: Story; further: (through: number) => void }) {
  const first = Math.max(0, story.events.length - MOST_EVENTS);
  return (
    <>
      <Today story={story} />
      <h3>
        {plural(story.events.length, "event")} <span className="hint">in the order of the source&apos;s log</span>
      </h3>
      {first ? <p className="note">The first {plural(first, "event")} are not shown here: <code>airflow-cdc key</code> lists all.</p> : null}
      {story.events.length ? (
        <ol className="events">
          {story.events.slice(first).map((event, place) => (
            <Event key={`${event.archive}:${event.file}:${event.line}`} event={event} number={first + place + 1} />
          ))}
        </ol>
      ) : (
        <p className="empty small">No event of this key was found in the files that were read.</p>
      )}
      {story.removals.length ? (
        <ul className="changes">
          {story.removals.map((each) => (
            <li key={`${each.microbatch}:${each.position}`}>
              Microbatch {each.microbatch} removed the rows before the {each.what} at <code>{each.spelled}</code>.
            </li>
          ))}
        </ul>
      ) : null}
      <Unread story={story} further={further} />
    </>
  );
}

function Unread({ story, further }: { story: Story; further: (through: number) => void }) {
  const byReason = new Map<string, string[]>();
  for (const [path, reason] of Object.entries(story.unread)) {
    byReason.set(reason, [...(byReason.get(reason) ?? []), path]);
  }
  return (
    <div className="note">
      <p>
        An outcome with a question mark is not recorded by event: it follows from the order of the events and the counts of the report.
        {story.notes.map((note) => ` ${note.charAt(0).toUpperCase()}${note.slice(1)}.`)}
        {story.older ? (
          <>
            {" "}
            <button type="button" onClick={() => further(story.older)}>
              Read on from microbatch {story.older}
            </button>
          </>
        ) : null}
      </p>
      {[...byReason].map(([reason, paths]) => (
        <details key={reason}>
          <summary>
            {plural(paths.length, "file")} not searched: {reason}
          </summary>
          <ul>
            {paths.slice(0, MOST_PATHS).map((path) => (
              <li key={path}>
                <code>{path}</code>
              </li>
            ))}
            {paths.length > MOST_PATHS ? <li>and {plural(paths.length - MOST_PATHS, "other")}</li> : null}
          </ul>
        </details>
      ))}
    </div>
  );
}

function Today({ story }: { story: Story }) {
  const name = Object.entries(story.key)
    .map(([column, value]) => `${column} = ${value}`)
    .join(", ");
  return (
    <div className="today">
      <h3>{name} today</h3>
      {story.rows.some((row) => row.is_live) ? null : (
        <p>
          No such row was found in the table.{story.notes.length ? " What was not searched is named below." : ""}
          {story.deleted.length ? ` A delete marker of microbatch ${shown(story.deleted.at(-1)?.microbatch)} keeps older events away.` : ""}
        </p>
      )}
      {story.rows.map((row, place) => (
        <Row key={place} row={row} />
      ))}
    </div>
  );
}

function Row({ row }: { row: KeyRow }) {
  return (
    <dl className="row">
      {Object.entries(row.values).map(([column, value]) => (
        <div key={column}>
          <dt>{column}</dt>
          <dd className={value === null ? "null" : undefined}>{shown(value)}</dd>
        </div>
      ))}
      <div className="ours">
        <dt>{row.is_live ? "written by" : "no longer valid; written by"}</dt>
        <dd>
          microbatch {shown(row.microbatch)}, operation {OPERATIONS[row.op ?? ""] ?? shown(row.op)}
          {row.committed_at ? `, committed ${row.committed_at.slice(0, 19).replace("T", " ")} UTC` : ""}
        </dd>
      </div>
    </dl>
  );
}

type Line = { column: string; before: string; after: string; changed: boolean };

/** Each column of the event: what it changed, and what it carries unchanged. */
function linesOf(event: KeyEvent): Line[] {
  const changed = new Map(event.changes.map((change) => [change.column, change]));
  const columns = new Set([...Object.keys(event.before ?? {}), ...Object.keys(event.after ?? {}), ...changed.keys()]);
  const isNew = event.op === "c" || event.op === "r";
  return [...columns].map((column) => {
    const change = changed.get(column);
    if (change) {
      const before = isNew && change.before === null ? "–" : shown(change.before);
      return { column, before, after: event.op === "d" ? "–" : shown(change.after), changed: true };
    }
    const value = (event.after ?? event.before ?? {})[column];
    const text = value === UNAVAILABLE ? "(not in the event)" : shown(value);
    return { column, before: event.op === "c" ? "–" : text, after: event.op === "d" ? "–" : text, changed: false };
  });
}

function Event({ event, number }: { event: KeyEvent; number: number }) {
  const [all, setAll] = useState(false);
  const lines = linesOf(event);
  const listed = all ? lines : lines.filter((line) => line.changed);
  const stale = event.outcome === "stale";
  const owners = event.microbatches;
  return (
    <li className={`event ${event.outcome}`}>
      <div className="what">
        <span className="hint">{number}</span>
        <span className={`outcome ${event.outcome}`}>
          {event.outcome}
          {event.is_proven ? "" : " ?"}
        </span>
        <b>{event.op ? (OPERATIONS[event.op] ?? event.op) : "no operation"}</b>
        {event.spelled || event.position ? <code title="position in the source's log">{event.spelled ?? event.position}</code> : null}
        <span>{moment(event.committed_at)}</span>
        <span className="hint">
          {owners.length ? `microbatch${owners.length > 1 ? "es" : ""} ${owners.join(", ")}` : "not applied yet"}
          {event.transaction ? `, transaction ${event.transaction}` : ""}
        </span>
      </div>
      <p className="reason">
        {event.why.charAt(0).toUpperCase()}
        {event.why.slice(1)}
        {event.by === null ? "." : ` (event ${event.by + 1}).`}
      </p>
      {listed.length ? (
        <table className="diff">
          <thead>
            <tr>
              <th scope="col">Column</th>
              <th scope="col">Before</th>
              <th scope="col">{stale ? "The event, not applied" : "After"}</th>
            </tr>
          </thead>
          <tbody>
            {listed.map((line) => (
              <tr key={line.column} className={line.changed ? "changed" : undefined}>
                <th scope="row">{line.column}</th>
                <td>{line.before}</td>
                <td>{line.after}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p className="hint">It changes no value.</p>
      )}
      <p className="hint place">
        {event.file}, line {event.line}
        {event.offset === null ? "" : `, offset ${event.offset}`}
        {lines.length > listed.length || all ? (
          <button type="button" onClick={() => setAll(!all)}>
            {all ? "Only what changed" : `All ${lines.length} columns`}
          </button>
        ) : null}
      </p>
    </li>
  );
}
