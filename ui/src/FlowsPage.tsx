import { useDeferredValue, useEffect, useState } from "react";

import type { Archive, FlowRow, Flows, Standing } from "./api";
import { ago, bytes, duration, moment, plural, short, whole } from "./format";
import { Badge, Findings, Loading, Pager, Sparkline, STANDINGS, Trouble } from "./parts";
import { hashOf, useAsk } from "./use";

const COLUMNS: [string, string, boolean][] = [
  ["flow", "Flow", false],
  ["standing", "State", false],
  ["lag", "Lag", true],
  ["waiting", "Waiting", true],
  ["", "Rows", true],
  ["events", "Events", true],
  ["rejected", "Rejected", true],
  ["last", "Last microbatch", false],
  ["", "Events and lag", false],
];
const SIZE = 50;

export function FlowsPage({ lake }: { lake: string }) {
  const [search, setSearch] = useState("");
  const [standing, setStanding] = useState<Standing | "">("");
  const [connector, setConnector] = useState("");
  const [sort, setSort] = useState({ by: "standing", descending: false });
  const [page, setPage] = useState(1);
  const wanted = useDeferredValue(search);
  const question = { lake, search: wanted, standing, connector, sort: sort.by, descending: sort.descending, page, size: SIZE };
  const [every, setEvery] = useState(15);
  const { data, error, again } = useAsk<Flows>("flows", question, every);
  // What the server did not have in time it has a moment later.
  const isWhole = !data || (data.known >= data.total && data.flows.every((flow) => flow.is_whole));
  useEffect(() => setEvery(isWhole ? 15 : 1), [isWhole]);
  const total = data?.total ?? 0;
  const turn = (by: string) => {
    setSort((before) => ({ by, descending: before.by === by ? !before.descending : !["flow", "standing", "connector"].includes(by) }));
    setPage(1);
  };
  const pick = <T,>(set: (value: T) => void) => (value: T) => {
    set(value);
    setPage(1);
  };
  return (
    <>
      <section className="chips" aria-label="Flows by state">
        {STANDINGS.map((each) => (
          <button
            key={each}
            type="button"
            className={`chip ${each.replaceAll(" ", "-")}`}
            aria-pressed={standing === each}
            onClick={() => pick(setStanding)(standing === each ? "" : each)}
          >
            <span className="count">{whole(data?.standings[each] ?? 0)}</span> {each}
          </button>
        ))}
        <p className="sum">
          {data ? (
            <>
              {plural(total, "flow")}
              {data.waiting.files
                ? `, ${plural(data.waiting.files, "file")} (${bytes(data.waiting.bytes)}, ${short(data.waiting.events)} known events) wait`
                : ", nothing waits"}
            </>
          ) : null}
        </p>
      </section>
      <section className="filters" aria-label="Find flows">
        <label>
          Search
          <input type="search" value={search} placeholder="part of a flow's name" onChange={(event) => pick(setSearch)(event.target.value)} />
        </label>
        <label>
          Connector
          <select value={connector} onChange={(event) => pick(setConnector)(event.target.value)}>
            <option value="">all</option>
            {Object.entries(data?.connectors ?? {}).map(([name, count]) => (
              <option key={name} value={name || "unknown"}>
                {name || "not known"} ({count})
              </option>
            ))}
          </select>
        </label>
        <label className="narrow-only">
          Sort by
          <select value={sort.by} onChange={(event) => turn(event.target.value)}>
            {COLUMNS.filter(([by]) => by).map(([by, label]) => (
              <option key={by} value={by}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <button type="button" onClick={again}>
          Look again
        </button>
      </section>
      <Trouble error={error} />
      {data && data.known < total ? (
        <p className="note" role="status">
          The first look at this lake is under way: {whole(data.known)} of {whole(total)} flows.
        </p>
      ) : null}
      {data?.archives.map((archive) => <ArchiveNote key={archive.archive} lake={lake} archive={archive} />)}
      {data && Object.keys(data.unreadable).length ? <Unreadable flows={data.unreadable} /> : null}
      {data ? <Table data={data} lake={lake} sort={sort} turn={turn} /> : error ? null : <Loading what="the flows" />}
      {data ? <Pager page={page} size={SIZE} total={data.matching} go={setPage} /> : null}
    </>
  );
}

/** Of an archive: why it cannot be listed, files that count for no flow, and topics that are none. */
function ArchiveNote({ lake, archive: { archive, failure, files, bytes: size, since, held } }: { lake: string; archive: Archive }) {
  return (
    <>
      {failure ? (
        <p className="trouble" role="alert">
          Archive <code>{archive}</code> cannot be listed from here: {failure}. Files that no run has looked at are not seen.
        </p>
      ) : null}
      {files ? (
        <p className="note" role="status">
          {plural(files, "file")} ({bytes(size)}) of archive <code>{archive}</code> {files === 1 ? "waits" : "wait"} for a run to look at{" "}
          {files === 1 ? "it" : "them"}
          {since ? `, the first since ${moment(since * 1000)}` : ""}: their names show no flow of this lake.
        </p>
      ) : null}
      {held.length ? (
        <details className="note">
          <summary>
            {plural(held.length, "topic")} of archive <code>{archive}</code> {held.length === 1 ? "is no flow" : "are no flows"}; the records are in the
            archive&apos;s quarantine
          </summary>
          <dl>
            {held.map(({ topic, reason, detail, records }) => (
              <div key={topic}>
                <dt>
                  {topic ? <a href={hashOf(lake, topic, "quarantine")}>{topic}</a> : "lines that name no topic"} ({plural(records, "record")})
                </dt>
                <dd>{detail || reason}</dd>
              </div>
            ))}
          </dl>
        </details>
      ) : null}
    </>
  );
}

function Unreadable({ flows }: { flows: Record<string, string> }) {
  return (
    <details className="trouble">
      <summary>{plural(Object.keys(flows).length, "flow")} cannot be read</summary>
      <dl>
        {Object.entries(flows).map(([flow, why]) => (
          <div key={flow}>
            <dt>{flow}</dt>
            <dd>{why}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

type TableProps = { data: Flows; lake: string; sort: { by: string; descending: boolean }; turn: (by: string) => void };

function Table({ data, lake, sort, turn }: TableProps) {
  if (!data.flows.length) {
    return <p className="empty">{data.total ? "No flow matches." : "This lake holds no flow yet. The first merge makes them."}</p>;
  }
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Flows">
      <table className="flows cards">
        <thead>
          <tr>
            {COLUMNS.map(([by, label, right]) => (
              <th
                key={label}
                scope="col"
                className={right ? "right" : undefined}
                aria-sort={by && by === sort.by ? (sort.descending ? "descending" : "ascending") : undefined}
              >
                {by ? (
                  <button type="button" onClick={() => turn(by)}>
                    {label}
                    <span aria-hidden="true">{by === sort.by ? (sort.descending ? " ▾" : " ▴") : ""}</span>
                  </button>
                ) : (
                  label
                )}
              </th>
            ))}
          </tr>
        </thead>
        {groups(data.flows, sort.by).map(([connector, flows]) => (
          <tbody key={connector}>
            {connector ? (
              <tr className="group">
                <th scope="rowgroup" colSpan={COLUMNS.length}>
                  {connector}
                </th>
              </tr>
            ) : null}
            {flows.map((flow) => (
              <Row key={flow.flow} flow={flow} lake={lake} />
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

/** Group by connector where the order is by name or by state; where it is by a number, groups would tear it. */
function groups(flows: FlowRow[], sort: string): [string, FlowRow[]][] {
  if (!["flow", "standing"].includes(sort)) {
    return [["", flows]];
  }
  const found = new Map<string, FlowRow[]>();
  for (const flow of flows) {
    const name = flow.connector ?? "connector not known";
    found.set(name, [...(found.get(name) ?? []), flow]);
  }
  return [...found];
}

function Row({ flow, lake }: { flow: FlowRow; lake: string }) {
  const { last } = flow;
  return (
    <tr>
      <th scope="row" data-label="Flow">
        <a href={hashOf(lake, flow.flow)}>{flow.flow}</a>
      </th>
      <td data-label="State">
        <Badge standing={flow.standing} />
        {flow.reason ? <span className="reason">{flow.reason}</span> : null}
        <Findings findings={flow.findings} />
      </td>
      <td data-label="Lag" className="right">
        {flow.waiting.files ? duration(flow.lag_seconds) : "none"}
      </td>
      <td data-label="Waiting" className="right">
        {flow.waiting.files ? (
          <>
            {plural(flow.waiting.files, "file")}
            <span className="hint">
              {bytes(flow.waiting.bytes)}
              {flow.waiting.events ? `, ${short(flow.waiting.events)} known events` : ""}
            </span>
          </>
        ) : (
          "–"
        )}
      </td>
      <td data-label="Rows" className="right">
        {flow.is_whole ? (flow.rows === null || flow.rows === undefined ? "–" : short(flow.rows)) : "…"}
      </td>
      <td data-label="Events" className="right">
        {short(flow.events.read)}
      </td>
      <td data-label="Rejected" className="right">
        {flow.events.rejected ? <a href={hashOf(lake, flow.flow, "quarantine")}>{short(flow.events.rejected)}</a> : "0"}
      </td>
      <td data-label="Last microbatch" className="last">
        {last ? (
          <>
            <span title={moment(last.at)}>
              {last.number}, {ago(last.at)}
            </span>
            <span className="hint">
              {last.rows ? `+${short(last.rows.inserted)} ~${short(last.rows.updated)} −${short(last.rows.deleted)}` : "no marker"}
              {last.seconds === undefined ? "" : `, ${duration(last.seconds)}, ${last.engine}`}
            </span>
          </>
        ) : (
          "none yet"
        )}
      </td>
      <td data-label="Events and lag">{flow.spark.length ? <Sparkline points={flow.spark} flow={flow.flow} /> : "–"}</td>
    </tr>
  );
}
