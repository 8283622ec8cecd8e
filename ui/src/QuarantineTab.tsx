import { useState } from "react";

import type { Quarantine, Reject } from "./api";
import { plural, whole } from "./format";
import { Loading, Pager, Trouble } from "./parts";
import { hashOf, useAsk, useWritten } from "./use";

const SIZE = 25;

export function QuarantineTab({ lake, flow }: { lake: string; flow: string }) {
  const [reason, setReason] = useState("");
  const [text, setText] = useState("");
  const [page, setPage] = useState(1);
  const wanted = useWritten(text);
  const { data, error } = useAsk<Quarantine>("quarantine", { lake, flow, reason, text: wanted, page, size: SIZE });
  const reasons = Object.entries(data?.reasons ?? {});
  return (
    <>
      <div className="filters">
        <label>
          Reason
          <select
            value={reason}
            onChange={(event) => {
              setReason(event.target.value);
              setPage(1);
            }}
          >
            <option value="">any</option>
            {reasons.map(([name, count]) => (
              <option key={name} value={name}>
                {name} ({whole(count)})
              </option>
            ))}
          </select>
        </label>
        <label className="wide">
          Text
          <input
            type="search"
            value={text}
            placeholder="part of the record, the detail or the file's name"
            onChange={(event) => {
              setText(event.target.value);
              setPage(1);
            }}
          />
        </label>
        <a className="button" href={hashOf(lake, flow, "runs", { do: "replay" })}>
          Replay …
        </a>
      </div>
      <Trouble error={error} />
      {!data && !error ? <Loading what="the quarantine" /> : null}
      {data && !data.records.length ? <p className="empty">{reasons.length ? "No record matches." : "Nothing is in this flow's quarantine."}</p> : null}
      {data?.records.length ? (
        <>
          <p className="hint">
            {plural(data.matching, "record")}, in archive order
            {data.shows_values ? "" : ". What they hold is hidden from you: it takes the right to read the lake's connection."}
          </p>
          <ul className="rejects">
            {data.records.map((record, place) => (
              <Record_ key={`${record.file}:${record.line}:${place}`} record={record} shown={data.shows_values} />
            ))}
          </ul>
          <Pager page={page} size={SIZE} total={data.matching} go={setPage} />
        </>
      ) : null}
    </>
  );
}

function Record_({ record, shown }: { record: Reject; shown: boolean }) {
  const detail = record.detail as string | null;
  return (
    <li>
      <details>
        <summary>
          <b className="outcome rejected">{record.reason}</b>
          <span className="detail">{shown ? (detail ?? "the record as it is archived") : ""}</span>
          <span className="hint">
            microbatch {record.microbatch}, {record.file}
            {record.line === null ? "" : `, line ${record.line}`}
          </span>
        </summary>
        {record.raw_key ? (
          <>
            <h4>Key</h4>
            <pre tabIndex={0}>{pretty(String(record.raw_key))}</pre>
          </>
        ) : null}
        {shown ? (
          <>
            <h4>Record</h4>
            <pre tabIndex={0}>{pretty(record.raw ?? "")}</pre>
          </>
        ) : null}
      </details>
    </li>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
