import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";

import { ask, Refused } from "./api";
import { showAddress } from "./host";

/** A place in the page: `#/<lake>`, `#/<lake>/<flow>/<tab>`, with parameters behind `?`. */
export type Place = { lake: string; flow: string; tab: string; parameters: URLSearchParams };

function subscribe(changed: () => void): () => void {
  window.addEventListener("hashchange", changed);
  return () => window.removeEventListener("hashchange", changed);
}

/** An address that somebody typed may hold a lone percent sign. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function usePlace(): Place {
  const hash = useSyncExternalStore(subscribe, () => window.location.hash);
  useEffect(showAddress, [hash]);
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [lake = "", flow = "", tab = ""] = path.split("/").map(decoded);
  return { lake, flow, tab, parameters: new URLSearchParams(query) };
}

export function hashOf(lake: string, flow = "", tab = "", parameters: Record<string, string> = {}): string {
  const parts = [lake, flow, tab].filter(Boolean).map(encodeURIComponent).join("/");
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#/${parts}${query ? `?${query}` : ""}`;
}

/** Where others search already, the same is asked again after so many milliseconds. */
const BUSY = 503;
const AGAIN = 1_500;

/** Return a text that is being written once it has not changed for half a second: each search costs the server. */
export function useWritten(text: string): string {
  const [written, setWritten] = useState(text);
  useEffect(() => {
    const timer = window.setTimeout(() => setWritten(text), 500);
    return () => window.clearTimeout(timer);
  }, [text]);
  return written;
}

export type Asked<T> = { data: T | null; error: Refused | Error | null; loading: boolean; again: () => void };

/** Ask the server, again every `every` seconds while the page is seen. What was answered last stays until the next answer. */
export function useAsk<T>(path: string, parameters: Record<string, string | number | boolean | null>, every = 0): Asked<T> {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [loading, setLoading] = useState(true);
  const [turn, setTurn] = useState(0);
  const question = JSON.stringify([path, parameters]);
  const asked = useRef("");
  const again = useCallback(() => setTurn((before) => before + 1), []);
  useEffect(() => {
    const [where, what] = JSON.parse(question) as [string, Record<string, string>];
    if (!where) {
      return undefined;
    }
    const abort = new AbortController();
    let later = 0;
    if (asked.current.split("?")[0] !== question) {
      setLoading(true);
    }
    asked.current = question;
    ask<T>(where, what, abort.signal)
      .then((answer) => {
        setData(answer);
        setError(null);
        setLoading(false);
      })
      .catch((failure: Error) => {
        if (abort.signal.aborted) {
          return;
        }
        if (failure instanceof Refused && failure.status === BUSY) {
          later = window.setTimeout(again, AGAIN);
          return;
        }
        setError(failure);
        setLoading(false);
      });
    return () => {
      abort.abort();
      window.clearTimeout(later);
    };
  }, [question, turn, again]);
  useEffect(() => {
    if (!every) {
      return undefined;
    }
    const timer = window.setInterval(() => document.visibilityState === "visible" && again(), every * 1000);
    return () => window.clearInterval(timer);
  }, [every, again]);
  return { data, error, loading, again };
}
