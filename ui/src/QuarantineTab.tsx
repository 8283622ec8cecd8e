import { useState } from "react";

import { ask, type Quarantine, type Reject } from "./api";
import { plural, whole } from "./format";
import { Loading, Pager, Trouble } from "./parts";
import { hashOf, useAsk, useWritten } from "./use";

const SIZE = 25;
const COPIED_AT_ONCE = 200;
const MOST_COPIED = 1000;

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
        <a className="button" href={hashOf(lake, flow, "runs", { do: "replay", reason })}>
          {reason ? `Replay ${reason} …` : "Replay …"}
        </a>
        {data?.records.length ? <CopyLines ask={{ lake, flow, reason, text: wanted }} /> : null}
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

/** Copies what matches, not the page alone: a file cannot be saved from within Airflow's frame. */
function CopyLines({ ask: question }: { ask: Record<string, string> }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid("Copying …");
    try {
      const found: Reject[] = [];
      for (let page = 1; found.length < MOST_COPIED; page += 1) {
        const answer = await ask<Quarantine>("quarantine", { ...question, page, size: COPIED_AT_ONCE });
        found.push(...answer.records);
        if (found.length >= answer.matching || !answer.records.length) {
          break;
        }
      }
      await navigator.clipboard.writeText(found.map((record) => `${JSON.stringify(record)}\n`).join(""));
      setSaid(`Copied ${plural(found.length, "record")}${found.length >= MOST_COPIED ? ", the first of them" : ""}.`);
    } catch (failure) {
      setSaid(`Not copied: ${failure instanceof Error ? failure.message : "the browser refuses"}.`);
    }
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        Copy as JSON lines
      </button>
      <span role="status">{said}</span>
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
