import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

interface GraphProps {
  readonly title: string;
  /** The oldest first, a step apart. */
  readonly values: readonly number[];
  /** At this moment; absent: the last step. */
  readonly now?: number;
  readonly stepS: number;
  readonly format: (value: number) => string;
}

const HEIGHT = 110;
/** Steps of the axis: there is no half connection. */
const WHOLE = Array.from({ length: 40 }, (_, power) => 2 ** power);

/** One series over the last 15 minutes. */
export function Graph({ title, values, now = values.at(-1) ?? 0, stepS, format }: GraphProps) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const data: uPlot.AlignedData = [values.map((_, at) => ((at - values.length + 1) * stepS) / 60), [...values]];
  const most = format(Math.max(now, ...values));

  useEffect(() => {
    const element = holder.current;
    if (element === null) return;
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(element, format), data, element);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      scheme.removeEventListener("change", draw);
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [values]);

  return (
    <figure class="graph">
      <figcaption>
        <span>{title}</span> <strong>{format(now)}</strong> <span class="quiet">at most {most} in 15 min</span>
      </figcaption>
      <div ref={holder} aria-hidden="true" />
    </figure>
  );
}

function optionsOf(element: HTMLElement, format: (value: number) => string): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { show: false } },
    scales: { x: { time: false }, y: { range: (_plot, _min, max) => [0, Math.max(4, max * 1.1)] } },
    axes: [
      { ...axis, size: 24, splits: () => [-15, -10, -5, 0], values: (_plot, ats) => ats.map((at) => `${at} min`) },
      { ...axis, size: 62, space: 28, incrs: WHOLE, values: (_plot, ats) => ats.map(format) },
    ],
    series: [{}, { stroke: colour("--accent"), fill: colour("--accent-faint"), width: 1.5, points: { show: false } }],
  };
}
