import { useState } from "preact/hooks";
import type { CheckLine } from "../server/operators/facts.ts";
import { milliseconds, visible } from "./text.ts";

type Answer = Partial<CheckLine> & { readonly fault?: string };

const STEP_WORDS = {
  server: "The server picks an agent",
  link: "The agent takes the stream",
  dns: "The agent resolves the name",
  dial: "The agent dials the target",
} as const;

/** Opens one connection as a caller of the cluster would, and shows how far it comes. */
export function Check({ cluster }: { readonly cluster: string }) {
  const [target, setTarget] = useState("kubernetes.default.svc:443");
  const [answer, setAnswer] = useState<Answer>();
  const [isRunning, setRunning] = useState(false);
  const check = async (event: Event): Promise<void> => {
    event.preventDefault();
    setRunning(true);
    setAnswer({});
    try {
      await ask({ cluster, target }, setAnswer);
    } catch (error) {
      setAnswer({ fault: `The server did not answer: ${(error as Error).message}` });
    }
    setRunning(false);
  };
  return (
    <section aria-labelledby="check">
      <h2 id="check">Check this cluster</h2>
      <form class="filter" onSubmit={check}>
        <label>
          Target{" "}
          <input
            required
            value={target}
            spellcheck={false}
            onInput={({ currentTarget }) => setTarget(currentTarget.value)}
          />
        </label>
        <button type="submit" disabled={isRunning}>
          Check this cluster
        </button>
      </form>
      <div role="status">{answer === undefined ? null : <Steps answer={answer} />}</div>
    </section>
  );
}

function Steps({ answer: { steps = [], sentence, outcome, fault } }: { readonly answer: Answer }) {
  return (
    <>
      <ol class="steps">
        {steps.map(({ step, state, ms, detail }) => (
          <li key={step} class={state.replace(" ", "-")}>
            <strong>{STEP_WORDS[step]}</strong>: {state}
            {ms === undefined ? "" : ` ${state === "passed" ? "in" : "after"} ${milliseconds(ms)}`}
            {detail === "" ? "" : `: ${detail}`}
          </li>
        ))}
      </ol>
      {sentence === undefined ? null : <p class={outcome === "ok" ? "good" : "bad"}>{sentence}</p>}
      {fault === undefined ? null : <p class="bad">{fault}</p>}
    </>
  );
}

/** Each line of the answer has the steps so far; the last one has the result as well. */
async function ask(question: object, onLine: (line: CheckLine) => void): Promise<void> {
  const response = await fetch("check", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question),
  });
  if (!response.ok || response.body === null) throw new Error(await response.text());
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const lines = (rest + read.value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      onLine(JSON.parse(line, (_key, value) => (typeof value === "string" ? visible(value) : value)));
    }
  }
}
