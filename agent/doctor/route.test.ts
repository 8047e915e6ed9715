import assert from "node:assert/strict";
import { test } from "node:test";
import { KerberosTickets, type LoadKerberos } from "../../shared/dial/auth/kerberos.ts";
import { combineFaults, formatProxy, RouteFault } from "../../shared/dial/proxy-route.ts";
import { guarded } from "../../shared/dial/testing/guarded-proxy.ts";
import { faultOf, open, ScriptedProxy } from "../../shared/dial/testing/scripted-proxy.ts";
import { StepFailed } from "./report.ts";
import { routeStepFailed } from "./route.ts";

function culpritOf(error: RouteFault, { url }: ScriptedProxy): string {
  const at = formatProxy(url);
  const failed = routeStepFailed(error, { host: url.host, port: url.port, at, proxyFrom: "--proxy" }, true);
  assert.ok(failed instanceof StepFailed);
  assert.deepEqual([failed.finding.by, failed.finding.proxyFrom, failed.message], [at, "--proxy", error.message]);
  return failed.finding.culprit;
}

test("a KDC that does not answer is found, and not the proxy that asked for its ticket", async () => {
  await using proxy = await guarded({ offers: ["Negotiate"] });
  const abort = new AbortController();
  const stuck: LoadKerberos = () => {
    setImmediate(() => abort.abort());
    return new Promise(() => {});
  };
  const fault = await faultOf(open(proxy, { tickets: new KerberosTickets({}) }, abort.signal, stuck));
  assert.equal(culpritOf(fault, proxy), "kdc_silent");
  const other = new RouteFault("timeout", "http://other:1 gave no connection in time", { at: "http://other:1" });
  assert.equal(culpritOf(combineFaults([fault, other]), proxy), "kdc_silent");
});

test("a proxy that does not answer CONNECT is found itself", async () => {
  const abort = new AbortController();
  await using proxy = await ScriptedProxy.start({ onRequest: () => abort.abort() });
  const fault = await faultOf(open(proxy, {}, abort.signal));
  assert.equal(culpritOf(fault, proxy), "proxy_silent");
});
