import { useEffect, useRef } from "react";
import uPlot from "uplot";

import { duration, short, STEPS, tick } from "./format";

export type Series = { label: string; colour: string; values: (number | null)[] };
type Props = { title: string; numbers: number[]; series: Series[]; kind: "stack" | "line"; unit: "count" | "seconds" };

const HEIGHT = 170;

function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Each series on top of the ones before it; drawn from the highest down, so that each shows its own part. */
function stacked(series: Series[]): (number | null)[][] {
  const sums: number[] = [];
  return series.map(({ values }) => values.map((value, place) => (sums[place] = (sums[place] ?? 0) + (value ?? 0))));
}

export function Plot({ title, numbers, series, kind, unit }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const isTime = unit === "seconds";
    const format = isTime ? duration : short;
    const element = box.current;
    if (!element) {
      return undefined;
    }
    let plot: uPlot | null = null;
    const draw = () => {
      plot?.destroy();
      const rows = kind === "stack" ? stacked(series).reverse() : series.map((each) => each.values);
      const order = kind === "stack" ? [...series].reverse() : series;
      const axis = { stroke: variable("--soft"), grid: { stroke: variable("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
      const bars = uPlot.paths.bars?.({ size: [0.8, 26], align: 0 });
      plot = new uPlot(
        {
          width: Math.max(200, element.clientWidth),
          height: HEIGHT,
          legend: { show: false },
          cursor: { y: false, points: { show: kind === "line" }, drag: { x: false, y: false } },
          scales: { x: { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] }, y: { range: (_, __, high) => [0, high > 0 ? high * 1.08 : 1] } },
          axes: [
            { ...axis, size: 26, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
            { ...axis, size: 58, space: 36, values: (_, ticks) => ticks.map(isTime ? tick : short), ...(isTime ? { incrs: STEPS } : {}) },
          ],
          series: [
            {},
            ...order.map(({ label, colour }) => ({
              label,
              stroke: variable(colour),
              fill: kind === "line" ? `${variable(colour)}22` : variable(colour),
              width: kind === "line" ? 1.6 : 0,
              points: { show: kind === "line" && numbers.length < 40, size: 4 },
              spanGaps: true,
              ...(kind === "line" || !bars ? {} : { paths: bars }),
            })),
          ],
          hooks: {
            setCursor: [
              (at) => {
                const place = at.cursor.idx;
                if (!tip.current) {
                  return;
                }
                if (place === null || place === undefined || (at.cursor.left ?? -1) < 0) {
                  tip.current.textContent = "";
                  return;
                }
                const parts = series.filter(({ values }) => values[place]).map(({ label, values }) => `${label} ${format(values[place] ?? 0)}`);
                tip.current.textContent = `${numbers[place]}: ${parts.join(", ") || "–"}`;
              },
            ],
          },
        },
        [numbers, ...rows] as uPlot.AlignedData,
        element,
      );
    };
    draw();
    const resized = new ResizeObserver(() => plot?.setSize({ width: Math.max(200, element.clientWidth), height: HEIGHT }));
    resized.observe(element);
    window.addEventListener("cdc-theme", draw);
    return () => {
      window.removeEventListener("cdc-theme", draw);
      resized.disconnect();
      plot?.destroy();
    };
  }, [numbers, series, kind, unit]);
  return (
    <figure className="plot">
      <figcaption>
        <span>{title}</span>
        <span className="tip" ref={tip} aria-hidden="true" />
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}, by microbatch ${numbers[0]} to ${numbers.at(-1)}; the table below has the numbers`} />
      {series.length > 1 ? (
        <ul className="legend">
          {series.map(({ label, colour }) => (
            <li key={label}>
              <i style={{ background: `var(${colour})` }} /> {label}
            </li>
          ))}
        </ul>
      ) : null}
    </figure>
  );
}
