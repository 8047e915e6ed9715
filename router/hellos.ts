import type { Socket } from "node:net";
import { networkOf } from "../shared/address/network.ts";
import { BySource } from "../shared/basics/by-source.ts";
import { seconds } from "../shared/basics/text.ts";
import { type ClientHello, ClientHelloReader } from "../shared/listen/client-hello.ts";
import { sourceOf } from "../shared/listen/incoming-connection.ts";
import { peek } from "../shared/listen/preface.ts";
import { Refusal } from "./refusal.ts";

export interface HellosOptions {
  readonly timeoutMs: number;
  /** How many may be in progress. One more drops the oldest of the network that has most. */
  readonly most: number;
}

/** A connection whose ClientHello is read. */
interface Reading {
  readonly client: Socket;
  refuse(refusal: Refusal): void;
}

/** Connections whose ClientHello has not come to its end: whoever is slow here is no agent of ours. */
export class Hellos {
  readonly #options: HellosOptions;
  readonly #reading = new BySource<Reading>();

  constructor(options: HellosOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#reading.size;
  }

  /** The name asked for; the socket is paused, and its bytes are in front of what it will deliver. Rejects with a `Refusal`. */
  async read(client: Socket): Promise<string> {
    const hello = await this.#read(client);
    if (hello.problem !== undefined) throw new Refusal("unreadable", hello.problem);
    if (hello.serverName === undefined) throw new Refusal("no_name", "it asks for no server name (SNI)");
    return hello.serverName;
  }

  /** Ends all that are in progress. */
  destroyAll(): void {
    for (const { client } of this.#reading) client.destroy();
  }

  #read(client: Socket): Promise<ClientHello> {
    const { timeoutMs, most } = this.#options;
    return new Promise((resolve, reject) => {
      const refuse = (refusal: Refusal): void => {
        leave();
        reject(refusal);
      };
      const onGone = (): void => refuse(new Refusal("gone", "it ended before its ClientHello had"));
      const leave = (): void => {
        this.#reading.delete(reading);
        client.off("end", onGone).off("close", onGone);
      };
      const hello = new ClientHelloReader();
      const reading: Reading = { client, refuse };
      this.#reading.add(reading, networkOf(sourceOf(client).address));
      client.on("end", onGone).on("close", onGone);
      peek<ClientHello>(client, {
        reader: (chunk) => {
          const found = hello.push(chunk);
          return found && { found, consumed: 0 };
        },
        timeoutMs,
        onFound: (found) => {
          leave();
          resolve(found);
        },
        onLate: () => refuse(new Refusal("late", `its ClientHello did not come to its end in ${seconds(timeoutMs)}`)),
      });
      if (this.#reading.size > most) this.#dropOldest();
    });
  }

  #dropOldest(): void {
    const sentence = "too many have not ended their ClientHello: the oldest of the network that has most was dropped";
    this.#reading.oldestOfFullest?.refuse(new Refusal("crowded", sentence));
  }
}
