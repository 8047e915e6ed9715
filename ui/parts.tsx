import type { ComponentChildren } from "preact";
import type { CertificateFact, ClusterState, RefusalFact } from "../server/operators/facts.ts";
import { STATE_WORDS } from "./clusters.ts";
import { nextStep } from "./next-step.ts";
import { count, duration } from "./text.ts";

// Parts that several views share.

export function State({ state }: { readonly state: ClusterState }) {
  return <span class={`state ${state}`}>{STATE_WORDS[state]}</span>;
}

export function ClusterLink({ name }: { readonly name: string }) {
  return <a href={clusterHref(name)}>{name}</a>;
}

export function clusterHref(name: string): string {
  return `#/cluster/${encodeURIComponent(name)}`;
}

/** A moment, as the time since then. */
export function Ago({ at, now }: { readonly at: string; readonly now: number }) {
  return (
    <time dateTime={at} title={at}>
      {duration(now - Date.parse(at))} ago
    </time>
  );
}

export function Tile({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div class="tile">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Problems({ problems }: { readonly problems: readonly string[] }) {
  if (problems.length === 0) return null;
  return (
    <section aria-labelledby="problems">
      <h2 id="problems">Problems</h2>
      <ul class="problems">
        {problems.map((problem) => (
          <li key={problem}>{problem}</li>
        ))}
      </ul>
    </section>
  );
}

interface RefusalsProps {
  readonly refusals: readonly Omit<RefusalFact, "cluster">[];
  /** Absent: all are of one cluster. */
  readonly clusterOf?: (at: number) => string;
  readonly now: number;
}

export function Refusals({ refusals, clusterOf, now }: RefusalsProps) {
  if (refusals.length === 0) return <p class="quiet">Nobody was refused.</p>;
  return (
    <ol class="refusals">
      {refusals.map(({ side, code, from, target, reason, certificate, fault, at, times }, index) => {
        const cluster = clusterOf?.(index);
        const next = nextStep({ code, fault });
        return (
          <li key={`${cluster} ${side} ${code} ${from} ${target} ${reason} ${certificate}`}>
            <p class="reason">
              <code>{code}</code> {reason}
            </p>
            <p class="quiet">
              {side} {from}
              {certificate === undefined ? "" : ` with a certificate of ${certificate}`}
              {target === undefined ? "" : ` asked for ${target}`}
              {cluster === undefined ? "" : " · "}
              {cluster === undefined ? "" : cluster === "" ? "of no cluster" : <ClusterLink name={cluster} />}
              {" · "}
              <Ago at={at} now={now} />
              {times === 1 ? "" : `, ${count(times)} times`}
            </p>
            {next === undefined ? null : (
              <p>
                <strong>Next:</strong> {next}
              </p>
            )}
          </li>
        );
      })}
    </ol>
  );
}

const SOON_MS = 30 * 86_400_000;

interface CertificatesProps {
  readonly certificates: readonly CertificateFact[];
  readonly withCluster: boolean;
  readonly now: number;
}

export function Certificates({ certificates, withCluster, now }: CertificatesProps) {
  if (certificates.length === 0) return <p class="quiet">None is in use.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Ends</th>
          {withCluster ? <th scope="col">Cluster</th> : null}
          <th scope="col">What</th>
          <th scope="col" class="wide">
            Then
          </th>
        </tr>
      </thead>
      <tbody>
        {certificates.map(({ cluster, thing, by, consequence, notAfter }) => {
          const leftMs = Date.parse(notAfter) - now;
          const stage = leftMs <= 0 ? "bad" : leftMs < SOON_MS ? "soon" : "";
          return (
            <tr key={`${cluster} ${thing} ${by} ${notAfter}`}>
              <td>
                <time dateTime={notAfter} title={notAfter} class={stage}>
                  {leftMs <= 0 ? `ended ${duration(-leftMs)} ago` : `in ${duration(leftMs)}`}
                </time>
              </td>
              {withCluster ? <td>{cluster === "" ? "all" : <ClusterLink name={cluster} />}</td> : null}
              <td>
                {thing} of <code>{by}</code>
              </td>
              <td class="wide">{consequence}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
