import { testStalledCallersIn } from "../harness/stalled-pod.ts";

await testStalledCallersIn(256, ["uds", "tls"]);
