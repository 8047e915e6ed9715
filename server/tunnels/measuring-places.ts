import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { AgentPlace } from "./cluster-tunnels.ts";
import type { Tunnel } from "./tunnel.ts";

/** Maximum number of agents of a cluster that only measure. */
const MAX_MEASURING = 8;
/** A measurement that takes longer is ended, ms. */
const MEASURED_MS = 120_000;

/** The tunnels of a cluster while an agent measures through one of them. */
export interface MeasuredTunnels {
  onHeld(tunnel: Tunnel): void;
  onReleased(tunnel: Tunnel): void;
}

/** The places of agents that only measure (`culvert doctor`): a few at a time, each for a bounded time. */
export class MeasuringPlaces {
  readonly #cluster: string;
  #taken = 0;

  constructor(cluster: string) {
    this.#cluster = cluster;
  }

  /** Throws `LinkRefused` if there is none left. */
  reserve({ onHeld, onReleased }: MeasuredTunnels): AgentPlace {
    if (this.#taken >= MAX_MEASURING) {
      throw new LinkRefused({
        closeCode: CloseCode.limited,
        reason: `${MAX_MEASURING} others measure their way to cluster "${this.#cluster}" now (culvert doctor): try again in a minute`,
      });
    }
    this.#taken++;
    let held: Tunnel | undefined;
    let timer: NodeJS.Timeout | undefined;
    let released = false;
    return {
      abandoned: false,
      hold: (tunnel) => {
        held = tunnel;
        timer = setTimeout(() => tunnel.destroy(new Error("it has measured for too long")), MEASURED_MS).unref();
        onHeld(tunnel);
      },
      release: () => {
        if (released) return;
        released = true;
        clearTimeout(timer);
        this.#taken--;
        if (held !== undefined) onReleased(held);
      },
    };
  }
}
