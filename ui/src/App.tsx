import { useEffect } from "react";

import { FlowPage } from "./FlowPage";
import { FlowsPage } from "./FlowsPage";
import { Loading, Trouble } from "./parts";
import { hashOf, useAsk, usePlace } from "./use";

type Lakes = { lakes: { id: string; uri: string | null; error: string | null }[] };

export function App() {
  const place = usePlace();
  const { data, error } = useAsk<Lakes>("lakes", {});
  const lakes = data?.lakes ?? [];
  const first = lakes[0]?.id;
  useEffect(() => {
    if (!place.lake && first) {
      window.location.replace(hashOf(first));
    }
  }, [place.lake, first]);
  const lake = lakes.find((each) => each.id === place.lake);
  return (
    <>
      <header className="top">
        <h1>
          <a href={hashOf(place.lake || first || "")}>CDC tables</a>
        </h1>
        {lakes.length ? (
          <label className="lake">
            Lake
            <select value={place.lake} onChange={(event) => window.location.assign(hashOf(event.target.value))}>
              {lake || !place.lake ? null : <option value={place.lake}>{place.lake}</option>}
              {lakes.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.id}
                </option>
              ))}
            </select>
          </label>
        ) : null}
        {lake?.uri ? <code className="root">{lake.uri}</code> : null}
      </header>
      <main>
        <Trouble error={error ?? (lake?.error ? new Error(lake.error) : null)} />
        {data && !lakes.length ? (
          <div className="empty">
            <h2>There is no lake yet</h2>
            <p>
              Create a connection of type <code>CDC lake</code> under Admin → Connections, or set <code>AIRFLOW_CONN_CDC_LAKE_DEFAULT</code>.
            </p>
          </div>
        ) : null}
        {!data && !error ? <Loading what="the lakes" /> : null}
        {/* A lake whose connection is in a secrets backend is in no list, and can be asked for. */}
        {data && place.lake && !lake?.error ? place.flow ? <FlowPage key={place.flow} place={place} /> : <FlowsPage key={place.lake} lake={place.lake} /> : null}
      </main>
    </>
  );
}
