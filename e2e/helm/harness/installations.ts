import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { CHARTS, type Chart, type Installation, type Values } from "./helm.ts";
import { ODD_AGENTS } from "./odd-agents.ts";
import { ODD_SERVERS } from "./odd-servers.ts";

const EXAMPLES = join(CHARTS, "examples");
/** helm takes 53 characters. */
const LONGEST = "a-release-with-a-name-that-is-as-long-as-one-can-be-x";
/** The installations with the most objects. */
const WITH_LONG_NAMES = [
  "culvert-server: a StatefulSet on ports of the nodes, and monitors",
  "culvert-server: a router in front, for this server",
  "culvert-server: cert-manager makes a CA, and a TLSRoute leads agents",
  "culvert-agent: a DaemonSet with a token, monitored",
];
const OF_AGENT = /-agent\.yaml$/;

/** Examples that need more than the defaults of the charts, and where they are installed. */
const OF_PLATFORMS: Readonly<Record<string, Pick<Installation, "exceptions" | "namespace">>> = {
  // The control plane of a hosted cluster is a namespace of OpenShift.
  hypershift: { exceptions: ["no ids"] },
  "hypershift-control-plane-agent": { exceptions: ["no ids"] },
  // HyperShift's agents come before the network of the pods. kube-system has no Pod Security level.
  "hypershift-agent": { exceptions: ["node network"], namespace: "kube-system" },
};

/** The files of helm/examples: `NAME.yaml` has values of culvert-server, and `NAME-agent.yaml` of culvert-agent. */
export function examples(): Installation[] {
  const names = existsSync(EXAMPLES) ? readdirSync(EXAMPLES).filter((name) => name.endsWith(".yaml")) : [];
  return names.sort().map((file) => {
    const name = file.replace(/\.yaml$/, "");
    const chart = OF_AGENT.test(file) ? "culvert-agent" : "culvert-server";
    return { name, chart, values: parse(readFileSync(join(EXAMPLES, file), "utf8")) ?? {}, ...OF_PLATFORMS[name] };
  });
}

/** Switches set together that no example sets; and releases with the longest name that helm takes. */
export function oddInstallations(): Installation[] {
  const odd = [...named("culvert-server", ODD_SERVERS), ...named("culvert-agent", ODD_AGENTS)];
  const long = odd.filter(({ name }) => WITH_LONG_NAMES.includes(name));
  return [...odd, ...long.map((one) => ({ ...one, name: `${one.name}; a long name`, release: LONGEST }))];
}

function named(chart: Chart, sets: Readonly<Record<string, Values>>): Installation[] {
  return Object.entries(sets).map(([name, values]) => ({ name: `${chart}: ${name}`, chart, values }));
}

/** One of all these, by its name. */
export function installationCalled(name: string): Installation {
  const found = [...examples(), ...oddInstallations()].find((installation) => installation.name === name);
  if (found === undefined) throw new Error(`there is no example and no odd set of values with the name "${name}"`);
  return found;
}
