/** The page's own answers, and Airflow's public API, both of the same origin and with the user's own cookie. */

export type Events = {
  read: number;
  merged: number;
  superseded: number;
  redelivered: number;
  stale: number;
  tombstones: number;
  control: number;
  rejected: number;
};
export type Point = {
  number: number;
  at: string | null;
  events: Events | null;
  rows?: { inserted: number; updated: number; deleted: number };
  files?: number;
  bytes?: number;
  seconds?: number;
  stage_seconds?: Record<string, number>;
  engine?: string;
  engine_reason?: string;
  plan?: string;
  lag?: number | null;
  version?: number | null;
  rejects?: Record<string, number>;
  order_conflicts?: number;
  schema?: string[];
};
export type Standing = "up to date" | "needs a look" | "catching up" | "behind" | "waiting" | "unknown" | "stopped";
export type Summary = {
  flow: string;
  connector: string | null;
  table: string;
  standing: Standing;
  reason: string;
  findings: string[];
  lag_seconds: number | null;
  waiting: { files: number; bytes: number; events: number; for_transactions: number; for_offsets: number; unsurveyed: number };
  microbatches: number;
  events: Events;
  table_version: number | null;
  committed_through: number | null;
};
export type FlowRow = Summary & {
  rows: number | null | undefined;
  is_whole: boolean;
  last: Point | null;
  spark: [number, number | null][];
};
export type Flows = {
  flows: FlowRow[];
  matching: number;
  total: number;
  known: number;
  standings: Partial<Record<Standing, number>>;
  connectors: Record<string, number>;
  unreadable: Record<string, string>;
  waiting: { files: number; bytes: number; events: number };
  at: number | null;
  archives: Archive[];
};
/** What an archive's last listing found beside the listed flows' files. */
export type Archive = {
  archive: string;
  at: number | null;
  failure: string;
  files: number;
  bytes: number;
  since: number | null;
  held: { topic: string; reason: string; detail: string; records: number }[];
};
export type Gap = { partition: number; first: number; last: number; after: string; before: string; text: string };
export type Detail = Summary & {
  last: Point | null;
  applied_through: { lane: string; position: string }[];
  gaps: Gap[];
  gaps_total: number;
  missing_offsets: number;
  repeated_offsets: number;
  lives: number[];
  epochs: number;
  epoch_begins: { lane: string; offset: number; epoch: number }[];
  snapshot: { position: string; is_complete: boolean; is_initial: boolean; reads: number; undecided: number } | null;
  archives: string[];
  compared: null | {
    at: number | null;
    verified_through: number | null;
    different: number;
    undecided: number;
    is_cut: boolean;
    left_out: string[];
    skipped: string;
  };
};
export type Microbatches = { microbatches: Point[]; total: number; rejects: Record<string, number> };
export type TableAnswer = {
  uri: string;
  note: string;
  table: null | {
    version: number;
    mode: string;
    rows: number | null;
    stored_rows: number | null;
    hidden_rows: number | null;
    files: number;
    bytes: number;
    columns: { name: string; type: string; is_key: boolean; is_ours: boolean }[];
  };
  changes: { version: number; at: string | null; operation: string; by: string; microbatch: number | null; metrics: Record<string, string> }[];
};
export type RowOfTable = Record<string, unknown>;
export type Rows = { columns: string[]; keys: string[]; rows: RowOfTable[]; has_more: boolean };
export type Run = {
  dag_id: string;
  run_id: string;
  task_id: string;
  map_index: number;
  tries: number;
  queued: string | null;
  operator: string;
  state: string | null;
  started: string | null;
  ended: string | null;
  run_type: string;
  triggered_by: string | null;
  user: string | null;
  outcome: null | { status?: string; events?: Events; error?: { type?: string; message?: string; next_step?: string } };
  error: string | null;
};
/** `conf`: what a run needs to work on this lake. */
export type Dag = {
  dag_id: string;
  is_paused: boolean;
  description: string | null;
  operators: string[];
  may_trigger: boolean;
  conf: Record<string, string>;
};
/** `alone`: the page was opened without Airflow. */
export type Runs = { runs: Run[]; dags: Dag[]; alone?: boolean };
export type Reject = Record<string, unknown> & { reason: string; file: string; line: number | null; microbatch: number; raw: string | null };
export type Quarantine = { records: Reject[]; matching: number; reasons: Record<string, number>; shows_values: boolean };
export type Image = Record<string, unknown>;
export type KeyEvent = {
  archive: string;
  file: string;
  line: number;
  partition: number | null;
  offset: number | null;
  op: string | null;
  position: string | null;
  spelled: string | null;
  transaction: string | null;
  committed_at: string | null;
  before: Image | null;
  after: Image | null;
  changes: { column: string; before: unknown; after: unknown }[];
  microbatches: number[];
  outcome: string;
  why: string;
  by: number | null;
  is_proven: boolean;
};
export type KeyRow = {
  values: Image;
  is_live: boolean;
  position: string | null;
  op: string | null;
  committed_at: string | null;
  microbatch: number | null;
};
export type Story = {
  flow: string;
  key: Record<string, string>;
  connector: string | null;
  events: KeyEvent[];
  rows: KeyRow[];
  deleted: { microbatch: number | null; position: string }[];
  removals: { microbatch: number; what: string; position: string; spelled: string }[];
  unread: Record<string, string>;
  notes: string[];
  older: number;
};

export class Refused extends Error {
  constructor(
    message: string,
    readonly nextStep: string,
    readonly status: number,
  ) {
    super(message);
  }
}

type Parameters_ = Record<string, string | number | boolean | null | undefined>;

async function answered<T>(response: Response): Promise<T> {
  const text = await response.text();
  let body: unknown = null;
  try {
    body = JSON.parse(text);
  } catch {
    /* a proxy's page */
  }
  if (response.ok) {
    return body as T;
  }
  const { detail, next_step } = (body ?? {}) as { detail?: unknown; next_step?: string };
  const what = typeof detail === "string" ? detail : detail ? JSON.stringify(detail) : `The server answered ${response.status}.`;
  throw new Refused(what, next_step ?? (response.status === 401 ? "Log in to Airflow again." : ""), response.status);
}

/** Ask the page's own server. */
export async function ask<T>(path: string, parameters: Parameters_, signal?: AbortSignal): Promise<T> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) {
      query.set(name, String(value));
    }
  }
  return answered<T>(await fetch(`api/${path}?${query}`, { signal, headers: { Accept: "application/json" } }));
}

/** Ask Airflow's public API: what it refuses the user, it refuses here too. */
export async function airflow<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, "Content-Type": "application/json" };
  }
  return answered<T>(await fetch(`../api/v2/${path}`, init));
}
