import { testStalledCallersIn } from "../harness/stalled-pod.ts";

await testStalledCallersIn(512, ["tls"]);
