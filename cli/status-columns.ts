/** A CONNECT goes from WAITING to OPEN to an end. */
export const CLUSTER_HEADING =
  "CLUSTER STATE AGENTS WAITING OPEN ENDED-OK ENDED-BADLY ENDED/S BYTES BYTES/S LIMITS-HIT".split(" ");

/** For `--help`, which loads nothing else: what the columns count. */
export const STATUS_COLUMNS = `
Columns of a cluster:
  AGENTS       Agents that take connections; suspended: lost theirs and may come back; draining: take no more.
  WAITING      CONNECTs that have no answer yet.
  OPEN         Connections that are open, or being opened by an agent.
  ENDED-OK     Connections that were made and are over, since the server has the cluster.
  ENDED-BADLY  CONNECTs that were refused, failed or were given up, and connections that were lost, since then.
  BYTES        Carried both ways, since then, by open connections too. ENDED/S and BYTES/S: mean of ten seconds.
  LIMITS-HIT   Limits of the cluster's document that have refused, cut or slowed something, and how often, since then.`;
