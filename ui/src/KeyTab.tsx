import { useState } from "react";

import type { KeyEvent, Story } from "./api";
import { bytes, moment, plural, shown } from "./format";
import { Loading, Trouble } from "./parts";
import { hashOf, type Place, useAsk } from "./use";

const OPERATIONS: Record<string, string> = { c: "create", u: "update", d: "delete", r: "snapshot read", t: "truncate" };
const UNAVAILABLE = "__debezium_unavailable_value";

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
            placeholder='42, or {"id": 42, "line": 1}'
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
  const left = Object.entries(story.left_out);
  return (
    <>
      <Today story={story} />
      <h3>
        {plural(story.events.length, "event")} <span className="hint">oldest first</span>
      </h3>
      {story.events.length ? (
        <ol className="events">
          {story.events.map((event, place) => (
            <Event key={`${event.file}:${event.line}`} event={event} known={knownBefore(story.events.slice(0, place))} />
          ))}
        </ol>
      ) : (
        <p className="empty small">No event of this key was found in the files that were read.</p>
      )}
      {story.rejected.length ? (
        <>
          <h3>Quarantined records with this text</h3>
          <ul className="changes">
            {story.rejected.map((record) => (
              <li key={`${record.file}:${record.line}`}>
                <b>{record.reason}</b> <span className="hint">{record.file}, line {record.line ?? "?"}</span>
                <pre>{record.raw}</pre>
              </li>
            ))}
          </ul>
        </>
      ) : null}
      <p className="note">
        Read: {plural(story.read_files, "file")}, {bytes(story.read_bytes)}. What became of an event is worked out by the rules of the merge; it is
        not recorded by event.
        {left.map(([why, count]) => ` ${plural(count, "file")} not read: they ${why}.`)}
        {story.unread_through ? (
          <>
            {" "}
            Microbatches 1 to {story.unread_through} were not read.{" "}
            <button type="button" onClick={() => further(story.unread_through)}>
              Read on from there
            </button>
          </>
        ) : null}
      </p>
    </>
  );
}

function Today({ story }: { story: Story }) {
  const name = Object.entries(story.key)
    .map(([column, value]) => `${column} = ${value}`)
    .join(", ");
  return (
    <div className="today">
      <h3>{name} today</h3>
      {story.row_note ? <p>{story.row_note}</p> : null}
      {!story.rows.length && !story.row_note ? (
        <p>
          The table holds no such row.
          {story.markers.length ? ` A delete marker of microbatch ${shown(story.markers.at(-1)?.__cdc_microbatch)} keeps older events away.` : ""}
        </p>
      ) : null}
      {story.rows.map((row, place) => (
        <dl key={place} className="row">
          {Object.entries(row)
            .filter(([column]) => !column.startsWith("__cdc_"))
            .map(([column, value]) => (
              <div key={column}>
                <dt>{column}</dt>
                <dd className={value === null ? "null" : undefined}>{shown(value)}</dd>
              </div>
            ))}
          <div className="ours">
            <dt>written by</dt>
            <dd>
              microbatch {shown(row.__cdc_microbatch)}, operation {OPERATIONS[shown(row.__cdc_op)] ?? shown(row.__cdc_op)}
              {row.__cdc_committed_at ? `, committed ${shown(row.__cdc_committed_at).slice(0, 19).replace("T", " ")} UTC` : ""}
            </dd>
          </div>
        </dl>
      ))}
    </div>
  );
}

type Image = Record<string, unknown>;

/** The row as the events so far made it: many events carry no image of before. */
function knownBefore(events: KeyEvent[]): Image {
  const applied = events.filter(({ outcome }) => outcome !== "stale");
  return applied.reduce<Image>((row, event) => (event.op === "d" ? {} : { ...row, ...carried(event.after) }), {});
}

function carried(image: unknown): Image {
  return Object.fromEntries(Object.entries((image ?? {}) as Image).filter(([, value]) => value !== UNAVAILABLE));
}

function Event({ event, known }: { event: KeyEvent; known: Image }) {
  const stale = event.outcome === "stale";
  const before = event.before && typeof event.before === "object" && !stale ? (event.before as Image) : known;
  const after = event.after && typeof event.after === "object" ? (event.after as Image) : null;
  const [all, setAll] = useState(false);
  const columns = [...new Set([...Object.keys(before), ...Object.keys(after ?? {})])];
  const changed = columns.filter((column) => shown(before[column]) !== shown(after?.[column]) && after?.[column] !== UNAVAILABLE);
  const listed = all || !after || !Object.keys(before).length ? columns : changed;
  return (
    <li className={`event ${event.outcome}`}>
      <div className="what">
        <span className={`outcome ${event.outcome}`}>
          {event.outcome}
          {event.is_sure ? "" : " ?"}
        </span>
        <b>{event.op ? (OPERATIONS[event.op] ?? event.op) : "tombstone"}</b>
        {event.spelled || event.position ? <code title="position in the source's log">{event.spelled ?? event.position}</code> : null}
        <span>{moment((event.source.ts_ms as number | undefined) ?? event.sent_ms)}</span>
        <span className="hint">
          {event.microbatch === null ? "not applied yet" : `microbatch ${event.microbatch}`}
          {event.transaction ? `, transaction ${event.transaction}` : ""}
        </span>
      </div>
      <p className="reason">
        {event.reason}
        {event.moved_from ? ` The row came from key ${shown(event.moved_from)}.` : ""}
        {event.moved_to ? ` The row went on under key ${shown(event.moved_to)}.` : ""}
      </p>
      {listed.length ? (
        <table className="diff">
          <thead>
            <tr>
              <th scope="col">Column</th>
              <th scope="col">{stale ? "The row, which stayed" : "Before"}</th>
              <th scope="col">{stale ? "The event, not applied" : "After"}</th>
            </tr>
          </thead>
          <tbody>
            {listed.map((column) => (
              <tr key={column} className={changed.includes(column) ? "changed" : undefined}>
                <th scope="row">{column}</th>
                <td>{column in before ? shown(before[column]) : "–"}</td>
                <td>{!after ? "–" : after[column] === UNAVAILABLE ? "(not in the event)" : column in after ? shown(after[column]) : "–"}</td>
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
        {columns.length > listed.length || all ? (
          <button type="button" onClick={() => setAll(!all)}>
            {all ? "Only what changed" : `All ${columns.length} columns`}
          </button>
        ) : null}
      </p>
    </li>
  );
}
