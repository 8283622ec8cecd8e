/** Airflow's page around this one: its theme, its address, its links. The frame is of the same origin; alone, the page works too. */

function parentWindow(): Window | null {
  try {
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null;
  }
}

const host = parentWindow();

/** Airflow's own colours and font, where it has them under these names. */
const TAKEN: Record<string, string[]> = {
  "--bg": ["--chakra-colors-bg"],
  "--panel": ["--chakra-colors-bg-subtle"],
  "--fg": ["--chakra-colors-fg"],
  "--line": ["--chakra-colors-border-emphasized", "--chakra-colors-border"],
  "--font": ["--chakra-fonts-body"],
};

function follow(): void {
  const theirs = host?.document.documentElement;
  const dark = theirs
    ? theirs.classList.contains("dark") || theirs.dataset.theme === "dark"
    : window.matchMedia("(prefers-color-scheme: dark)").matches;
  const ours = document.documentElement;
  ours.classList.toggle("dark", dark);
  if (!theirs || !host) {
    return;
  }
  const styles = host.getComputedStyle(theirs);
  for (const [name, sources] of Object.entries(TAKEN)) {
    const value = sources.map((source) => styles.getPropertyValue(source).trim()).find(Boolean);
    if (value && !value.includes("var(")) {
      ours.style.setProperty(name, value);
    }
  }
  window.dispatchEvent(new Event("cdc-theme"));
}

/** Take Airflow's theme, now and whenever it changes. */
export function followTheme(): void {
  follow();
  if (host) {
    new MutationObserver(follow).observe(host.document.documentElement, {
      attributes: true,
      attributeFilter: ["class", "data-theme", "style"],
    });
  } else {
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
  }
}

/** Begin where the address of Airflow's page points: a link to a flow is `…/plugin/cdc#/…`. */
export function takeAddress(): void {
  const asked = host?.location.hash ?? "";
  if (asked.startsWith("#/") && !window.location.hash) {
    window.location.replace(asked);
  }
}

/** Show the place in this page in the address of Airflow's page, so that it can be copied, and reloaded. */
export function showAddress(): void {
  if (host && host.location.hash !== window.location.hash) {
    host.history.replaceState(host.history.state, "", host.location.pathname + host.location.search + window.location.hash);
  }
}

/** Return the path of a page of Airflow, wherever it is mounted. */
export function airflowPath(path: string): string {
  return new URL(`..${path}`, window.location.href.replace(/#.*/, "")).pathname;
}

/** Go to a page of Airflow. The frame itself may not navigate its top window; Airflow's own document may. */
export function goTo(path: string): void {
  const within = (host ?? window).document;
  const link = within.createElement("a");
  link.href = airflowPath(path);
  within.body.append(link);
  link.click();
  link.remove();
}
