const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en");

export const whole = (value: number): string => WHOLE.format(value);
export const short = (value: number): string => (Math.abs(value) < 10_000 ? WHOLE.format(value) : COMPACT.format(value));

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) {
    return "not known";
  }
  if (seconds < 1) {
    return seconds === 0 ? "0 s" : `${Math.round(seconds * 1000)} ms`;
  }
  if (seconds < 100) {
    return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  }
  const minutes = seconds / 60;
  if (minutes < 100) {
    return `${Math.round(minutes)} min`;
  }
  const hours = minutes / 60;
  return hours < 48 ? `${Math.round(hours)} h` : `${Math.round(hours / 24)} days`;
}

/** Steps of an axis in seconds, so that equal steps have equal words: 1, 2, 5 of one unit, and its usual parts. */
export const STEPS = [
  ...[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60),
  ...[1, 3, 6, 12].map((hours) => hours * 3600),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((days) => days * 86_400),
];

/** A place on an axis in seconds; unlike `duration`, never rounded to a whole unit. */
export function tick(seconds: number): string {
  const [size, unit] = seconds < 1 && seconds ? [0.001, "ms"] : seconds < 100 ? [1, "s"] : seconds < 6000 ? [60, "min"] : seconds < 172_800 ? [3600, "h"] : [86_400, "days"];
  return `${WHOLE.format(Math.round((seconds / size) * 10) / 10)} ${unit}`;
}

export function ago(iso: string | number | null | undefined): string {
  if (iso === null || iso === undefined) {
    return "–";
  }
  const seconds = (Date.now() - new Date(iso).getTime()) / 1000;
  return seconds < 5 ? "just now" : `${duration(Math.max(0, seconds))} ago`;
}

export function moment(iso: string | number | null | undefined): string {
  if (iso === null || iso === undefined) {
    return "–";
  }
  return `${new Date(iso).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${whole(count)} ${count === 1 ? one : many}`;

export function shown(value: unknown): string {
  if (value === null || value === undefined) {
    return "NULL";
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}
