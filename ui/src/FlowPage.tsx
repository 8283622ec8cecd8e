import { useMemo, useState } from "react";

import { type Detail, type Events, type Microbatches, type Point, Refused, type TableAnswer } from "./api";
import { ago, bytes, duration, moment, plural, short, whole } from "./format";
import { KeyTab } from "./KeyTab";
import { Badge, Findings, Loading, Tabs, Tile, Trouble } from "./parts";
import { Plot, type Series } from "./Plot";
import { QuarantineTab } from "./QuarantineTab";
import { RowsTab } from "./RowsTab";
import { RunsTab } from "./RunsTab";
import { hashOf, type Place, useAsk } from "./use";

const TABS: [string, string][] = [
  ["microbatches", "Microbatches"],
  ["key", "One key"],
  ["quarantine", "Quarantine"],
  ["rows", "Rows"],
  ["table", "Table"],
  ["log", "Archive and log"],
  ["runs", "Runs and actions"],
];
const OUTCOMES: [keyof Events, string, string][] = [
  ["merged", "merged", "--c1"],
  ["superseded", "superseded", "--c2"],
  ["redelivered", "redelivered", "--c3"],
  ["stale", "stale", "--c4"],
  ["tombstones", "tombstones", "--c5"],
  ["control", "control", "--c6"],
  ["rejected", "rejected", "--c7"],
];
/** The parts of a microbatch's seconds, by the effects that end them; none in reports of older versions. */
const STAGES: [string, string[], string][] = [
  ["decode and fold", ["stage"], "--c2"],
  ["merge", ["merge", "append"], "--c1"],
  ["quarantine, markers, columns", ["quarantine", "target", "fill", "log", "delete_markers"], "--c4"],
];

export function FlowPage({ place }: { place: Place }) {
  const { lake, flow } = place;
  const tab = TABS.some(([each]) => each === place.tab) ? place.tab : "microbatches";
  const { data, error } = useAsk<Detail>("flow", { lake, flow }, 15);
  const isHeld = tab === "quarantine" && error instanceof Refused && error.status === 404;
  return (
    <>
      <nav aria-label="Breadcrumb" className="crumbs">
        <a href={hashOf(lake)}>All flows</a> <span aria-hidden="true">›</span> <span>{flow}</span>
      </nav>
      <div className="title">
        <h2>{flow}</h2>
        {data ? <Badge standing={data.standing} /> : null}
      </div>
      {isHeld ? <p className="note">This topic is no flow: its records are in the archive&apos;s quarantine.</p> : <Trouble error={error} />}
      {data ? <Head data={data} /> : error ? null : <Loading what="the flow" />}
      <Tabs tabs={TABS} at={tab} go={(next) => window.location.assign(hashOf(lake, flow, next))} />
      <section id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {tab === "microbatches" ? <MicrobatchesTab lake={lake} flow={flow} last={data?.microbatches ?? 0} /> : null}
        {tab === "key" ? <KeyTab place={place} /> : null}
        {tab === "quarantine" ? <QuarantineTab lake={lake} flow={flow} /> : null}
        {tab === "rows" ? <RowsTab lake={lake} flow={flow} /> : null}
        {tab === "table" ? <TableTab lake={lake} flow={flow} /> : null}
        {tab === "log" && data ? <LogTab data={data} /> : null}
        {tab === "runs" ? <RunsTab lake={lake} flow={flow} /> : null}
      </section>
    </>
  );
}

function Head({ data }: { data: Detail }) {
  const { last } = data;
  return (
    <>
      {data.reason ? <p className="why">{data.reason}</p> : null}
      <Findings findings={data.findings} />
      <dl className="tiles">
        <Tile
          label="Lag"
          value={data.waiting.files ? duration(data.lag_seconds) : "none"}
          hint={data.committed_through ? `applied to ${moment(data.committed_through)}` : "commit time not known"}
        />
        <Tile
          label="Waiting"
          value={data.waiting.files ? plural(data.waiting.files, "file") : "nothing"}
          hint={data.waiting.files ? `${bytes(data.waiting.bytes)}, ${short(data.waiting.events)} known events` : undefined}
        />
        <Tile label="Events applied" value={short(data.events.read)} hint={`in ${plural(data.microbatches, "microbatch", "microbatches")}`} />
        <Tile label="Rejected" value={short(data.events.rejected)} hint={data.events.rejected ? "in the quarantine since it began" : "none"} />
        <Tile
          label="Last microbatch"
          value={last ? ago(last.at) : "none yet"}
          hint={last?.seconds === undefined ? undefined : `${duration(last.seconds)}, engine ${last.engine}`}
        />
        <Tile label="Connector" value={data.connector ?? "not known"} />
        {data.compared ? <Compared found={data.compared} /> : null}
      </dl>
    </>
  );
}

function Compared({ found }: { found: NonNullable<Detail["compared"]> }) {
  const left = found.left_out.length ? `; ${plural(found.left_out.length, "column")} not compared` : "";
  const now = found.skipped
    ? `not compared: ${found.skipped}`
    : found.different
      ? `${plural(found.different, "row")} ${found.different === 1 ? "differs" : "differ"}`
      : found.undecided || found.is_cut
        ? `${plural(found.undecided, "row")} undecided`
        : `in all that was compared${left}`;
  return <Tile label="Equal to its source" value={found.verified_through ? ago(found.verified_through) : "not seen yet"} hint={now} />;
}

function MicrobatchesTab({ lake, flow, last }: { lake: string; flow: string; last: number }) {
  const [limit, setLimit] = useState(100);
  // Asked again when another microbatch is there.
  const { data, error } = useAsk<Microbatches>("microbatches", { lake, flow, limit, before: last ? last + 1 : null });
  const points = useMemo(() => data?.microbatches.filter((each) => each.events) ?? [], [data]);
  const numbers = useMemo(() => points.map((each) => each.number), [points]);
  const outcomes = useMemo(() => seriesOf(points), [points]);
  const seconds = useMemo(() => secondsOf(points), [points]);
  const lag = useMemo<Series[]>(() => [{ label: "lag", colour: "--c4", values: points.map((each) => each.lag ?? null) }], [points]);
  if (!data) {
    return error ? <Trouble error={error} /> : <Loading what="the microbatches" />;
  }
  if (!data.microbatches.length) {
    return <p className="empty">No microbatch is committed yet.</p>;
  }
  const changes = points.flatMap((each) => (each.schema ?? []).map((text) => ({ number: each.number, at: each.at, text }))).reverse();
  return (
    <>
      <div className="bar">
        <label>
          Show the last
          <select value={limit} onChange={(event) => setLimit(Number(event.target.value))}>
            {[25, 100, 300, 1000].map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
        <span>
          {data.total > limit ? "of" : "at most:"} {plural(data.total, "microbatch", "microbatches")}
          {data.total > limit ? "" : ", all shown"}
        </span>
      </div>
      <div className="plots">
        <Plot title="Events by what became of them" numbers={numbers} series={outcomes} kind="stack" unit="count" />
        <Plot title="Lag when committed" numbers={numbers} series={lag} kind="line" unit="seconds" />
        <Plot title="Seconds by stage" numbers={numbers} series={seconds} kind="stack" unit="seconds" />
        <Breakdown title="Rejects by reason" counts={data.rejects} />
      </div>
      {changes.length ? (
        <>
          <h3>Changes of the schema</h3>
          <ul className="changes">
            {changes.slice(0, 30).map((change) => (
              <li key={`${change.number} ${change.text}`}>
                {change.text} <span className="hint">microbatch {change.number}, {moment(change.at)}</span>
              </li>
            ))}
          </ul>
        </>
      ) : null}
      <MicrobatchTable points={[...data.microbatches].reverse()} />
    </>
  );
}

function seriesOf(points: Point[]): Series[] {
  return OUTCOMES.map(([name, label, colour]) => ({ label, colour, values: points.map((each) => each.events?.[name] ?? 0) })).filter(
    ({ label, values }) => label === "merged" || values.some(Boolean),
  );
}

function secondsOf(points: Point[]): Series[] {
  const parts = STAGES.map(([label, stages, colour]) => {
    const of = (each: Point) => stages.reduce((sum, stage) => sum + (each.stage_seconds?.[stage] ?? 0), 0);
    return { label, colour, values: points.map(of) };
  });
  const others = points.map((each, place) => Math.max(0, (each.seconds ?? 0) - parts.reduce((sum, part) => sum + part.values[place], 0)));
  return [...parts, { label: "others", colour: "--c5", values: others }].filter(({ values }) => values.some(Boolean));
}

function Breakdown({ title, counts }: { title: string; counts: Record<string, number> }) {
  const most = Math.max(1, ...Object.values(counts));
  return (
    <figure className="plot">
      <figcaption>{title}</figcaption>
      {Object.keys(counts).length ? (
        <ul className="breakdown">
          {Object.entries(counts).map(([name, count]) => (
            <li key={name}>
              <span>{name}</span>
              <span className="track">
                <i style={{ width: `${(count / most) * 100}%` }} />
              </span>
              <b>{whole(count)}</b>
            </li>
          ))}
        </ul>
      ) : (
        <p className="empty small">None in these microbatches.</p>
      )}
    </figure>
  );
}

function MicrobatchTable({ points }: { points: Point[] }) {
  const [most, setMost] = useState(25);
  return (
    <>
      <div className="scroll" tabIndex={0} role="region" aria-label="Microbatches">
        <table className="cards">
          <thead>
            <tr>
              {["No.", "Committed", "Read", "Merged", "Superseded", "Stale", "Rejected", "Rows", "Seconds", "Engine", "Plan"].map((label, place) => (
                <th key={label} scope="col" className={place > 1 && place < 9 ? "right" : undefined}>
                  {label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {points.slice(0, most).map((each) => (
              <tr key={each.number}>
                <th scope="row" data-label="No.">{each.number}</th>
                <td data-label="Committed">{moment(each.at)}</td>
                {(["read", "merged", "superseded", "stale", "rejected"] as const).map((name) => (
                  <td key={name} data-label={name} className={`right${name === "rejected" && each.events?.rejected ? " bad" : ""}`}>
                    {each.events ? whole(each.events[name]) : "–"}
                  </td>
                ))}
                <td data-label="Rows" className="right nowrap">
                  {each.rows ? `+${short(each.rows.inserted)} ~${short(each.rows.updated)} −${short(each.rows.deleted)}` : "–"}
                </td>
                <td data-label="Seconds" className="right">{each.seconds === undefined ? "–" : each.seconds.toFixed(1)}</td>
                <td data-label="Engine">
                  {each.engine ?? "–"}
                  {each.engine_reason ? <span className="hint">{each.engine_reason}</span> : null}
                </td>
                <td data-label="Plan" className="plan">{each.plan || "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {points.length > most ? (
        <button type="button" className="more" onClick={() => setMost(most + 100)}>
          Show more
        </button>
      ) : null}
    </>
  );
}

const MODES: Record<string, string> = {
  scd1: "current rows",
  "scd1-multiset": "current rows, without a key",
  "scd1-flagged": "current rows, deletes flagged",
  scd2: "every version",
  append: "every event",
};

function TableTab({ lake, flow }: { lake: string; flow: string }) {
  const { data, error } = useAsk<TableAnswer>("table", { lake, flow });
  if (!data) {
    return error ? <Trouble error={error} /> : <Loading what="the table's log" />;
  }
  const { table } = data;
  return (
    <>
      <p>
        <code className="uri">{data.uri}</code>
      </p>
      {data.note ? <p className="note">{data.note}</p> : null}
      {table ? (
        <>
          <dl className="tiles">
            <Tile label="Rows" value={table.rows === null ? "not counted" : whole(table.rows)} hint={MODES[table.mode] ?? table.mode} />
            <Tile label="Size" value={bytes(table.bytes)} hint={plural(table.files, "file")} />
            <Tile
              label="Hidden by deletion vectors"
              value={
                table.hidden_rows === null || !table.stored_rows ? "0%" : `${((table.hidden_rows / table.stored_rows) * 100).toFixed(1)}%`
              }
              hint={table.hidden_rows === null ? "not counted" : plural(table.hidden_rows, "row")}
            />
            <Tile label="Version" value={whole(table.version)} />
          </dl>
          <h3>Columns</h3>
          <div className="scroll" tabIndex={0} role="region" aria-label="Columns">
            <table>
              <thead>
                <tr>
                  <th scope="col">Column</th>
                  <th scope="col">Type</th>
                  <th scope="col">Role</th>
                </tr>
              </thead>
              <tbody>
                {table.columns.map((column) => (
                  <tr key={column.name} className={column.is_ours ? "ours" : undefined}>
                    <th scope="row">{column.name}</th>
                    <td>
                      <code>{column.type}</code>
                    </td>
                    <td>{column.is_key ? "key" : column.is_ours ? "ours" : ""}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      ) : null}
      {data.changes.length ? (
        <>
          <h3>Newest commits of the table</h3>
          <div className="scroll" tabIndex={0} role="region" aria-label="Commits">
            <table className="cards">
              <thead>
                <tr>
                  {["Version", "When", "Operation", "By", "Microbatch", "Files"].map((label) => (
                    <th key={label} scope="col">
                      {label}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {data.changes.map((change) => (
                  <tr key={change.version} className={change.by === "others" ? "foreign" : undefined}>
                    <th scope="row" data-label="Version">{change.version}</th>
                    <td data-label="When">{moment(change.at)}</td>
                    <td data-label="Operation">{change.operation}</td>
                    <td data-label="By">{change.by}</td>
                    <td data-label="Microbatch">{change.microbatch ?? "–"}</td>
                    <td data-label="Files">{filesOf(change.metrics)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      ) : null}
    </>
  );
}

function filesOf(metrics: Record<string, string>): string {
  const added = metrics.numTargetFilesAdded ?? metrics.numAddedFiles ?? metrics.numFiles;
  const removed = metrics.numTargetFilesRemoved ?? metrics.numRemovedFiles ?? metrics.numDeletedFiles;
  return added === undefined && removed === undefined ? "–" : `+${added ?? 0} −${removed ?? 0}`;
}

function LogTab({ data }: { data: Detail }) {
  return (
    <>
      <dl className="tiles">
        <Tile label="Missing offsets" value={whole(data.missing_offsets)} hint={plural(data.gaps_total, "gap")} />
        <Tile label="Repeated offsets" value={whole(data.repeated_offsets)} hint="in the last microbatch" />
        <Tile label="Lives of the topic" value={whole(Math.max(1, data.lives.length))} />
        <Tile label="Epochs of the log" value={whole(data.epochs)} />
        <Tile
          label="Snapshot"
          value={data.snapshot ? (data.snapshot.is_complete ? "complete" : "its last read is not marked") : "none"}
          hint={data.snapshot ? `${plural(data.snapshot.reads, "read")}, at ${data.snapshot.position}` : undefined}
        />
      </dl>
      {data.snapshot?.undecided ? (
        <p className="note">A later snapshot awaits a decision about the rows that it did not find: see airflow-cdc confirm-snapshot.</p>
      ) : null}
      <h3>Applied through</h3>
      <ul className="changes">
        {data.applied_through.map((each) => (
          <li key={each.lane}>
            <code>{each.position}</code> <span className="hint">{each.lane}</span>
          </li>
        ))}
      </ul>
      {data.epoch_begins.length ? (
        <>
          <h3>Where the source's log went back</h3>
          <ul className="changes">
            {data.epoch_begins.map((each) => (
              <li key={`${each.lane} ${each.offset}`}>
                Epoch {each.epoch} begins at offset {each.offset} <span className="hint">{each.lane}</span>
              </li>
            ))}
          </ul>
        </>
      ) : null}
      <h3>Gaps</h3>
      {data.gaps.length ? (
        <ul className="changes">
          {data.gaps.map((gap) => (
            <li key={gap.text}>{gap.text}</li>
          ))}
        </ul>
      ) : (
        <p className="empty small">No offset is missing in what is applied.</p>
      )}
      <h3>Archives</h3>
      <ul className="changes">
        {data.archives.map((each) => (
          <li key={each}>
            <code className="uri">{each}</code>
          </li>
        ))}
      </ul>
    </>
  );
}
