import type { KeyboardEvent, ReactNode } from "react";

import { Refused, type Standing } from "./api";
import { short } from "./format";
import { airflowPath, goTo } from "./host";

const SIGNS: Record<Standing, string> = { "up to date": "✓", "needs a look": "△", "catching up": "↻", behind: "…", waiting: "‖", unknown: "?", stopped: "!" };
export const STANDINGS: Standing[] = ["stopped", "unknown", "waiting", "behind", "catching up", "needs a look", "up to date"];

export function Badge({ standing }: { standing: Standing }) {
  return (
    <span className={`badge ${standing.replaceAll(" ", "-")}`}>
      <span aria-hidden="true">{SIGNS[standing]}</span> {standing}
    </span>
  );
}

/** What of a flow needs a person's look, though nothing stops. */
export function Findings({ findings }: { findings: string[] }) {
  return findings.length ? (
    <ul className="findings">
      {findings.map((finding) => (
        <li key={finding}>{finding}</li>
      ))}
    </ul>
  ) : null;
}

export function Trouble({ error }: { error: Error | null }) {
  if (!error) {
    return null;
  }
  return (
    <div className="trouble" role="alert">
      <strong>{error.message}</strong>
      {error instanceof Refused && error.nextStep ? <p>Next step: {error.nextStep}</p> : null}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p className="loading" role="status">
      Reading {what} …
    </p>
  );
}

export function Tile({ label, value, hint }: { label: string; value: ReactNode; hint?: ReactNode }) {
  return (
    <div className="tile">
      <dt>{label}</dt>
      <dd>
        <span className="value">{value}</span>
        {hint ? <span className="hint">{hint}</span> : null}
      </dd>
    </div>
  );
}

/** A link to a page of Airflow itself. */
export function AirflowLink({ path, children }: { path: string; children: ReactNode }) {
  return (
    <a
      href={airflowPath(path)}
      onClick={(event) => {
        if (!event.metaKey && !event.ctrlKey) {
          event.preventDefault();
          goTo(path);
        }
      }}
    >
      {children}
    </a>
  );
}

/** Events of the last microbatches as bars, and their lag as a line above. */
export function Sparkline({ points, flow }: { points: [number, number | null][]; flow: string }) {
  const most = Math.max(1, ...points.map(([events]) => events));
  const longest = Math.max(1, ...points.map(([, lag]) => lag ?? 0));
  const step = 96 / Math.max(points.length, 12);
  const line = points
    .map(([, lag], place) => (lag === null ? "" : `${(place * step + step / 2).toFixed(1)},${(26 - (lag / longest) * 24).toFixed(1)}`))
    .filter(Boolean)
    .join(" ");
  const total = points.reduce((sum, [events]) => sum + events, 0);
  return (
    <svg
      className="sparkline"
      viewBox="0 0 96 28"
      role="img"
      aria-label={`${flow}: ${short(total)} events in the last ${points.length} microbatches`}
    >
      {points.map(([events], place) => {
        const height = events ? Math.max(1.5, (events / most) * 26) : 0.5;
        return <rect key={place} x={place * step + 0.4} y={28 - height} width={Math.max(1, step - 0.8)} height={height} rx="0.6" />;
      })}
      {line ? <polyline points={line} /> : null}
    </svg>
  );
}

export function Tabs({ tabs, at, go }: { tabs: [string, string][]; at: string; go: (tab: string) => void }) {
  const move = (event: KeyboardEvent, place: number) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const next = tabs[(place + by + tabs.length) % tabs.length];
    if (by && next) {
      event.preventDefault();
      go(next[0]);
      document.getElementById(`tab-${next[0]}`)?.focus();
    }
  };
  return (
    <div className="tabs" role="tablist" aria-label="About this flow">
      {tabs.map(([tab, label], place) => (
        <button
          key={tab}
          id={`tab-${tab}`}
          type="button"
          role="tab"
          aria-selected={tab === at}
          aria-controls="panel"
          tabIndex={tab === at ? 0 : -1}
          onClick={() => go(tab)}
          onKeyDown={(event) => move(event, place)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

type Paged = { page: number; go: (page: number) => void };

export function Pager({ page, size, total, go }: Paged & { size: number; total: number }) {
  const last = Math.max(1, Math.ceil(total / size));
  return last === 1 ? null : <Pages page={page} last={last} hasNext={page < last} go={go} />;
}

/** The way to the other pages, where there are any; `last`: where their number is known. */
export function Pages({ page, last, hasNext, go }: Paged & { last?: number; hasNext: boolean }) {
  if (page === 1 && !hasNext) {
    return null;
  }
  return (
    <nav className="pager" aria-label="Pages">
      <button type="button" disabled={page <= 1} onClick={() => go(page - 1)}>
        ‹ Previous
      </button>
      <span>
        Page {page}
        {last ? ` of ${last}` : ""}
      </span>
      <button type="button" disabled={!hasNext} onClick={() => go(page + 1)}>
        Next ›
      </button>
    </nav>
  );
}
