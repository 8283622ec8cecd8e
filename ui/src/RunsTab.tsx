import { useEffect, useState } from "react";

import { airflow, type Dag, type Run, type Runs } from "./api";
import { ago, duration, moment } from "./format";
import { AirflowLink, Loading, Trouble } from "./parts";
import { useAsk, usePlace } from "./use";

type Parameter = { schema?: { enum?: string[] }; value?: unknown };
type Details = { params?: Record<string, Parameter> | null };
type Action = { name: string; label: string; what: string; conf: (flow: string, form: Form) => Record<string, unknown> };
/** Milliseconds after which Airflow's API is asked again where it did not answer. */
const AGAIN = 10_000;

type Form = { from: string; to: string; plan: boolean; reason: string };

/** What a Dag can do for one flow is read from its operators and parameters: any Dag with these takes part, whatever its name is. */
function actionsOf(params: Record<string, Parameter>, operators: string[]): Action[] {
  if (!("tables" in params)) {
    return [];
  }
  const modes = params.mode?.schema?.enum ?? [];
  if (!modes.length && operators.includes("CdcMergeOperator")) {
    return [{ name: "merge", label: "Merge now", what: "Applies what waits for this flow.", conf: (flow) => ({ tables: [flow] }) }];
  }
  const known: Action[] = [
    {
      name: "replay",
      label: "Replay the quarantine",
      what: "Reads the files of quarantined records again, and merges what can be merged by now.",
      conf: (flow, form) => ({ mode: "replay", tables: [flow], only_plan: form.plan, ...(form.reason && "reasons" in params ? { reasons: [form.reason] } : {}) }),
    },
    {
      name: "reprocess",
      label: "Reprocess a range",
      what: "Reads applied files again and merges what the table lacks.",
      conf: (flow, form) => ({
        mode: "reprocess",
        tables: [flow],
        only_plan: form.plan,
        ...(form.from ? { from_position: form.from } : {}),
        ...(form.to ? { to_position: form.to } : {}),
      }),
    },
    {
      name: "retype",
      label: "Retype",
      what: "Makes the table anew with the types that are known now.",
      conf: (flow, form) => ({ mode: "retype", tables: [flow], only_plan: form.plan }),
    },
    {
      name: "rebuild",
      label: "Rebuild beside it",
      what: "Asks for approval, then makes the table anew from the archive in a lake of its own; the live table is not touched.",
      conf: (flow, form) => ({ mode: "rebuild", tables: [flow], ...(form.to ? { as_of: form.to } : {}) }),
    },
  ];
  return known.filter(({ name }) => modes.includes(name));
}

export function RunsTab({ lake, flow }: { lake: string; flow: string }) {
  const { data, error, again } = useAsk<Runs>("runs", { lake, flow }, 10);
  if (!data) {
    return error ? <Trouble error={error} /> : <Loading what="Airflow's runs" />;
  }
  if (data.alone) {
    return (
      <p className="empty">
        This page was opened without Airflow, which runs and actions belong to. On the command line, <code>airflow-cdc apply</code>,{" "}
        <code>quarantine replay</code>, <code>reprocess</code>, <code>retype</code> and <code>rebuild</code> do the same.
      </p>
    );
  }
  return (
    <>
      <h3>Start a run</h3>
      <Actions dags={usualFirst(data)} lake={lake} flow={flow} started={again} />
      <h3>Runs that had this flow</h3>
      {data.runs.length ? (
        <div className="scroll" tabIndex={0} role="region" aria-label="Runs">
          <table className="cards">
            <thead>
              <tr>
                {["Begun", "Dag run", "State", "Triggered by", "Took", "What became of the flow"].map((label) => (
                  <th key={label} scope="col">
                    {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {data.runs.map((run) => (
                <RunRow key={`${run.dag_id} ${run.run_id} ${run.task_id} ${run.map_index}`} run={run} />
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <p className="empty small">Airflow has no run of this flow among the newest ones of Dags with the tag <code>cdc</code>, or none that you may see.</p>
      )}
    </>
  );
}

/** The Dags that had this flow before, the last one first; then the others. */
function usualFirst({ dags, runs }: Runs): Dag[] {
  const last = runs.map((run) => run.dag_id);
  const rank = ({ dag_id }: Dag) => (last.includes(dag_id) ? last.indexOf(dag_id) : last.length);
  return [...dags].sort((one, other) => rank(one) - rank(other));
}

function RunRow({ run }: { run: Run }) {
  const took = run.started && run.ended ? (new Date(run.ended).getTime() - new Date(run.started).getTime()) / 1000 : null;
  const dagRun = `/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id)}`;
  const mapped = run.map_index < 0 ? "" : `/mapped/${run.map_index}`;
  return (
    <tr>
      <th scope="row" data-label="Begun" title={moment(run.started ?? run.queued)}>
        {ago(run.started ?? run.queued)}
      </th>
      <td data-label="Dag run">
        <AirflowLink path={dagRun}>{run.dag_id}</AirflowLink>
        <span className="hint">{run.run_id}</span>
      </td>
      <td data-label="State">
        {run.state ?? "–"}
        <span className="hint">
          <AirflowLink path={`${dagRun}/tasks/${encodeURIComponent(run.task_id)}${mapped}`}>log</AirflowLink>
          {run.tries > 1 ? `, try ${run.tries}` : ""}
        </span>
      </td>
      <td data-label="Triggered by">
        {run.user ?? run.triggered_by ?? run.run_type}
        <span className="hint">{run.run_type}</span>
      </td>
      <td data-label="Took">{took === null ? "–" : duration(took)}</td>
      <td data-label="What became of the flow">{run.error ?? run.outcome?.status ?? "–"}</td>
    </tr>
  );
}

function Actions({ dags, lake, flow, started }: { dags: Dag[]; lake: string; flow: string; started: () => void }) {
  const { parameters } = usePlace();
  const asked = parameters.get("do") ?? "";
  const [params, setParams] = useState<Record<string, Record<string, Parameter>>>({});
  const [chosen, setChosen] = useState("");
  const [form, setForm] = useState<Form>({ from: "", to: "", plan: true, reason: parameters.get("reason") ?? "" });
  const [said, setSaid] = useState("");
  const [isAsked, setAsked] = useState(false);
  const [unanswered, setUnanswered] = useState<Error | null>(null);
  const [turn, setTurn] = useState(0);
  const [failure, setFailure] = useState<Error | null>(null);
  const ids = dags.map((dag) => dag.dag_id).join(" ");
  useEffect(() => {
    for (const id of ids.split(" ").filter(Boolean)) {
      airflow<Details>("GET", `dags/${encodeURIComponent(id)}/details`)
        .then((found) => setParams((before) => ({ ...before, [id]: found.params ?? {} })))
        .catch(setUnanswered);
    }
  }, [ids, turn]);
  useEffect(() => {
    if (!unanswered) {
      return undefined;
    }
    const timer = window.setTimeout(() => {
      setUnanswered(null);
      setTurn((before) => before + 1);
    }, AGAIN);
    return () => window.clearTimeout(timer);
  }, [unanswered]);
  const offers = dags.flatMap((dag) => actionsOf(params[dag.dag_id] ?? {}, dag.operators).map((action) => ({ dag, action, id: `${dag.dag_id} ${action.name}` })));
  const offer = offers.find(({ id }) => id === chosen) ?? offers.find(({ action }) => action.name === asked) ?? offers[0];
  if (!offer && unanswered) {
    return <Trouble error={unanswered} />;
  }
  if (!offer) {
    return (
      <p className="empty small">
        No Dag with the tag <code>cdc</code> works on this lake alone and takes tables as a parameter, or you may see none. The shipped <code>cdc_merge.py</code> and{" "}
        <code>cdc_repair.py</code> do.
      </p>
    );
  }
  const { dag, action } = offer;
  const plans = !["merge", "rebuild"].includes(action.name);
  const changes = !(plans && form.plan);
  const conf = { ...dag.conf, ...action.conf(flow, form) };
  const start = () => {
    setFailure(null);
    setSaid("");
    setAsked(false);
    airflow<{ dag_run_id: string }>("POST", `dags/${encodeURIComponent(dag.dag_id)}/dagRuns`, { logical_date: null, conf })
      .then((run) => {
        setSaid(`Started ${run.dag_run_id}.`);
        started();
      })
      .catch(setFailure);
  };
  return (
    <div className="action">
      <div className="filters">
        <label>
          Action
          <select value={offer.id} onChange={(event) => setChosen(event.target.value)}>
            {offers.map((each) => (
              <option key={each.id} value={each.id}>
                {each.action.label} ({each.dag.dag_id})
              </option>
            ))}
          </select>
        </label>
        {action.name === "reprocess" ? (
          <>
            <label>
              From
              <input value={form.from} placeholder="the beginning" onChange={(event) => setForm({ ...form, from: event.target.value })} />
            </label>
            <label>
              To
              <input value={form.to} placeholder="the end" onChange={(event) => setForm({ ...form, to: event.target.value })} />
            </label>
          </>
        ) : null}
        {action.name === "replay" && "reasons" in (params[dag.dag_id] ?? {}) ? (
          <label>
            Reason
            <input value={form.reason} placeholder="any" onChange={(event) => setForm({ ...form, reason: event.target.value })} />
          </label>
        ) : null}
        {action.name === "rebuild" ? (
          <label>
            As of
            <input value={form.to} placeholder="everything" onChange={(event) => setForm({ ...form, to: event.target.value })} />
          </label>
        ) : null}
        {plans ? (
          <label className="check">
            <input type="checkbox" checked={form.plan} onChange={(event) => setForm({ ...form, plan: event.target.checked })} />
            Only plan: change nothing
          </label>
        ) : null}
        <button type="button" className="main" onClick={() => (changes ? setAsked(true) : start())} disabled={!dag.may_trigger || isAsked}>
          {changes ? action.label : "Plan it"}
        </button>
      </div>
      {isAsked ? (
        <div className="confirm" role="alertdialog" aria-label={action.label}>
          <p>
            {action.label}: <code>{flow}</code> in lake <code>{lake}</code>, by Dag <code>{dag.dag_id}</code> with
          </p>
          <pre>{JSON.stringify(conf, null, 1)}</pre>
          <button type="button" className="main" onClick={start}>
            Start
          </button>{" "}
          <button type="button" onClick={() => setAsked(false)}>
            Cancel
          </button>
        </div>
      ) : null}
      <p className="hint">
        {action.what} It starts Dag <AirflowLink path={`/dags/${encodeURIComponent(dag.dag_id)}`}>{dag.dag_id}</AirflowLink>, which does the work.
        {dag.is_paused ? " That Dag is paused: the run waits until it is unpaused." : ""}
        {dag.may_trigger ? "" : " You may not trigger it."}
      </p>
      <p role="status">{said}</p>
      <Trouble error={failure} />
    </div>
  );
}
