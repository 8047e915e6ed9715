import assert from "node:assert/strict";
import { render } from "./helm.ts";
import type { Series } from "./promtool.ts";

export interface Rules {
  readonly groups: readonly { readonly rules: readonly Rule[] }[];
}
interface Rule {
  readonly alert: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export const SERVER = 'namespace="culvert",job="culvert-server-pods",pod="server-0"';
export const OTHER_SERVER = 'namespace="culvert",job="culvert-server-pods",pod="server-1"';
export const AGENT = 'namespace="culvert",job="culvert/culvert-agent",pod="agent-0"';
const IN_90_DAYS = `${90 * 86_400}x180`;
const IN_10_DAYS = `${10 * 86_400}x180`;
export const ALWAYS_0 = "0x180";
export const EACH_MINUTE = "0+60x180";

/** Of lives of 90 days: a sixth of them are 15. */
const BEGUN_80_DAYS_AGO = `${-80 * 86_400}x180`;

export const AGENTS = `culvert_server_agents{${SERVER},cluster="blue"}`;
export const AGENTS_OF_OTHER = `culvert_server_agents{${OTHER_SERVER},cluster="blue"}`;
export const REFUSED = `culvert_server_dial_duration_seconds_count{${SERVER},outcome="no_agent"}`;
export const FAST = `culvert_server_dial_duration_seconds_bucket{${SERVER},outcome="ok",le="0.1"}`;
export const ALL = `culvert_server_dial_duration_seconds_bucket{${SERVER},outcome="ok",le="+Inf"}`;
export const SERVER_CERTIFICATE = `culvert_certificate_expiry_timestamp_seconds{${SERVER},role="agents_cert"}`;
export const AGENT_CERTIFICATE = `culvert_certificate_expiry_timestamp_seconds{${AGENT},role="agent_cert"}`;
const began = (certificate: string) => certificate.replace("_expiry_", "_start_");
export const AGENT_CA = `culvert_certificate_expiry_timestamp_seconds{${AGENT},role="server_ca"}`;
export const CUTS = `culvert_server_link_suspensions_total{${SERVER},cause="reset"}`;
export const LESSONS = `culvert_agent_path_lessons_total{${AGENT},lesson="age_limit"}`;
export const FAULTS = `culvert_server_cluster_faults{${SERVER}}`;
export const AUDIT_LOST = `culvert_server_audit_lines_lost_total{${SERVER}}`;
export const REVIEWS = `culvert_server_token_review_failing{${SERVER}}`;

export const UP = `up{${SERVER}}`;
export const UP_OF_OTHER = `up{${OTHER_SERVER}}`;
export const BUILD = `culvert_build_info{${SERVER}}`;
export const BUILD_OF_OTHER = `culvert_build_info{${OTHER_SERVER}}`;
export const LOST = "1x30 0x600";
export const NEVER = "0x600";

/** Two servers with an agent each, one dial a second, certificates that are good for long. */
export const WELL: Series = {
  ...{ [UP]: "1x600", [UP_OF_OTHER]: "1x600", [BUILD]: "1x600", [BUILD_OF_OTHER]: "1x600" },
  ...{ [AGENTS]: "1x600", [AGENTS_OF_OTHER]: "1x600" },
  [REFUSED]: ALWAYS_0,
  [FAST]: EACH_MINUTE,
  [ALL]: EACH_MINUTE,
  [SERVER_CERTIFICATE]: IN_90_DAYS,
  [AGENT_CERTIFICATE]: IN_90_DAYS,
  [AGENT_CA]: IN_90_DAYS,
  [began(SERVER_CERTIFICATE)]: ALWAYS_0,
  [began(AGENT_CERTIFICATE)]: ALWAYS_0,
  [began(AGENT_CA)]: ALWAYS_0,
  // A token lives for an hour: its end is no reason to call anybody.
  [`culvert_certificate_expiry_timestamp_seconds{${AGENT},role="token"}`]: "3600+60x180",
  [CUTS]: ALWAYS_0,
  [LESSONS]: ALWAYS_0,
  [FAULTS]: ALWAYS_0,
  [REVIEWS]: ALWAYS_0,
};

export function endsIn10Days(certificate: string): Series {
  return { [certificate]: IN_10_DAYS, [began(certificate)]: BEGUN_80_DAYS_AGO };
}

/** Hours from the first minute; the cases are asked two hours after it. */
export function lifeOf(certificate: string, from: number, to: number): Series {
  return { [certificate]: `${to * 3_600}x180`, [began(certificate)]: `${from * 3_600}x180` };
}

export async function rulesWith(
  ofRule: Readonly<Record<string, unknown>>,
  values: Readonly<Record<string, unknown>> = {},
  place: { readonly release?: string; readonly namespace?: string } = {},
): Promise<Rules> {
  const { objects } = await render({
    name: "with alerts",
    chart: "culvert-server",
    ...place,
    values: { serviceMonitor: { enabled: true }, prometheusRule: { enabled: true, ...ofRule }, ...values },
  });
  const rule = objects.find(({ kind }) => kind === "PrometheusRule") as { readonly spec?: Rules } | undefined;
  assert.ok(rule?.spec, "the chart renders a PrometheusRule");
  return rule.spec;
}

export function alertsOf({ groups }: Rules): readonly Rule[] {
  return groups.flatMap(({ rules }) => rules);
}
