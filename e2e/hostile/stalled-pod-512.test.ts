import { WHOLE_MATRICES } from "../harness/counts.ts";
import { testStalledCallersIn } from "../harness/stalled-pod.ts";

// The smaller pod, which is the harder one, is tested at each change.
if (WHOLE_MATRICES) await testStalledCallersIn(512, ["tls"]);
