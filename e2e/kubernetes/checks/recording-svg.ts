/** Lines of a terminal, each with the time at which it came. */
export interface Recording {
  readonly command: string;
  readonly events: readonly Event[];
  readonly caption: string;
}

interface Event {
  /** Since the command was started. */
  readonly ms: number;
  readonly kind: "output" | "cut" | "back";
  /** Empty: the prompt is back. */
  readonly text: string;
}

interface Theme {
  readonly name: "light" | "dark";
  readonly colours: Readonly<Record<"page" | "edge" | "text" | "dim" | Event["kind"], string>>;
}

const LIGHT = { page: "#f6f8fa", edge: "#d1d9e0", text: "#1f2328", dim: "#59636e" };
const DARK = { page: "#151b23", edge: "#3d444d", text: "#f0f6fc", dim: "#9198a1" };

/** As GitHub has them; no two of a theme are alike, so that a picture shows the same in both. */
export const THEMES: readonly Theme[] = [
  { name: "light", colours: { ...LIGHT, output: LIGHT.text, cut: "#cf222e", back: "#1a7f37" } },
  { name: "dark", colours: { ...DARK, output: DARK.text, cut: "#f85149", back: "#3fb950" } },
];

const LINE = 20;
const TOP = 32;
const LEFT = 16;
/** Of the time in front of each line. */
const TIME_COLUMN = 76;
/** How long everything stands before it begins again. */
const REST_MS = 5_000;

/** An animated SVG that plays in real time, over and over; who prefers no motion sees the last picture. */
export function recordingSvg({ command, events, caption }: Recording, { colours }: Theme): string {
  const wholeMs = (events.at(-1)?.ms ?? 0) + REST_MS;
  const height = TOP + (events.length + 2) * LINE;
  const frames = events.map(({ ms }, i) => {
    const percent = ((100 * ms) / wholeMs).toFixed(2);
    return `@keyframes l${i}{0%{opacity:0}${percent}%{opacity:1}}.l${i}{animation:l${i} ${wholeMs / 1000}s step-end infinite}`;
  });
  const lines = events.map(({ ms, kind, text }, i) => {
    const y = TOP + (i + 1) * LINE;
    const time = `<tspan fill="${colours.dim}">${`${(ms / 1000).toFixed(2)} s`.padStart(7)}</tspan>`;
    const mark = { output: "", cut: "✂ ", back: "✓ " }[kind];
    const shown = text === "" ? "$" : `${mark}${text}`;
    return `<text class="l${i}" x="${LEFT}" y="${y}" fill="${colours[kind]}">${time}<tspan x="${LEFT + TIME_COLUMN}">${escaped(shown)}</tspan></text>`;
  });
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 ${height}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" xml:space="preserve">`,
    `<title>${escaped(`A recording of a terminal: ${command}`)}</title>`,
    `<style>${frames.join("")}@media (prefers-reduced-motion:reduce){text{animation:none!important}}</style>`,
    `<rect x="0.5" y="0.5" width="879" height="${height - 1}" rx="8" fill="${colours.page}" stroke="${colours.edge}"/>`,
    `<text x="${LEFT}" y="${TOP}" fill="${colours.text}" font-weight="600">$ ${escaped(command)}</text>`,
    ...lines,
    `<text x="864" y="${height - 12}" fill="${colours.dim}" font-size="11" text-anchor="end">${escaped(caption)}</text>`,
    "</svg>",
  ].join("\n")}\n`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
