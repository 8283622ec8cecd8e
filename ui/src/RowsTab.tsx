import { useState } from "react";

import type { Rows, RowOfTable } from "./api";
import { shown } from "./format";
import { Loading, Pages, Trouble } from "./parts";
import { hashOf, useAsk, useWritten } from "./use";

const SIZE = 50;
/** Characters of a value in a cell; all of it is its title. */
const MOST_TEXT = 120;

/** The table's rows: the first, those that changed last, or those in which a text is found. Each leads to its story. */
export function RowsTab({ lake, flow }: { lake: string; flow: string }) {
  const [newest, setNewest] = useState(false);
  const [column, setColumn] = useState("");
  const [text, setText] = useState("");
  const [page, setPage] = useState(1);
  const wanted = useWritten(text);
  const { data, error, loading } = useAsk<Rows>("rows", { lake, flow, column, text: wanted, newest, page, size: SIZE });
  const pick = <T,>(set: (value: T) => void) => (value: T) => {
    set(value);
    setPage(1);
  };
  return (
    <>
      <div className="filters">
        <label>
          Order
          <select value={newest ? "newest" : ""} onChange={(event) => pick(setNewest)(event.target.value === "newest")}>
            <option value="">as they lie in the table</option>
            <option value="newest">changed last first</option>
          </select>
        </label>
        <label>
          Column
          <select value={column} onChange={(event) => pick(setColumn)(event.target.value)}>
            <option value="">any</option>
            {data?.columns
              .filter((name) => !name.startsWith("__cdc_"))
              .map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
          </select>
        </label>
        <label className="wide">
          Text
          <input type="search" value={text} placeholder="part of a value" onChange={(event) => pick(setText)(event.target.value)} />
        </label>
      </div>
      <Trouble error={error} />
      {!data && loading ? <Loading what="the table's rows" /> : null}
      {data && !error ? <Found data={data} lake={lake} flow={flow} /> : null}
      {data ? <Pages page={page} hasNext={data.has_more} go={setPage} /> : null}
    </>
  );
}

function Found({ data, lake, flow }: { data: Rows; lake: string; flow: string }) {
  if (!data.rows.length) {
    return <p className="empty">No row is found.</p>;
  }
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Rows">
      <table>
        <thead>
          <tr>
            {data.keys.length ? <th scope="col">Story</th> : null}
            {data.columns.map((name) => (
              <th key={name} scope="col">
                {name === "__cdc_microbatch" ? "Microbatch" : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {data.rows.map((row, place) => (
            <tr key={data.keys.length ? keyOf(row, data.keys) : place}>
              {data.keys.length ? (
                <td>
                  <a href={hashOf(lake, flow, "key", { key: keyOf(row, data.keys) })}>why</a>
                </td>
              ) : null}
              {data.columns.map((name) => (
                <Cell key={name} value={row[name]} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ value }: { value: unknown }) {
  const all = shown(value);
  return all.length > MOST_TEXT ? <td title={all}>{all.slice(0, MOST_TEXT)}…</td> : <td className={value === null ? "soft" : undefined}>{all}</td>;
}

const keyOf = (row: RowOfTable, keys: string[]): string => JSON.stringify(Object.fromEntries(keys.map((name) => [name, row[name]])));
