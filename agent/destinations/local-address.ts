import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { isIPv6 } from "node:net";
import { promisify } from "node:util";
import { canonicalAddress } from "../../shared/address/network.ts";
import { machineAddresses } from "../../shared/address/special-addresses.ts";
import { ConfigError } from "../../shared/config/options.ts";
import type { Logger } from "../../shared/runtime/logger.ts";

/** Runs iproute2's `ip`. */
type RunIp = (...args: readonly string[]) => Promise<unknown>;

const runIp: RunIp = (...args) => promisify(execFile)("ip", args, { timeout: 5_000 });

/** The device that `--interface dummy` makes. */
const DUMMY = "culvert0";
/** Interval of the look whether the address is still there, ms: one that was removed is back within 10 s. */
const CHECK_MS = 3_000;

interface LocalAddressOptions {
  readonly run?: RunIp;
  readonly checkMs?: number;
  readonly addresses?: () => readonly string[];
}

/** An address of scope host that the agent gives this node, keeps there, and removes at its end. */
export class LocalAddress {
  readonly #address: string;
  readonly #device: string;
  readonly #log: Logger;
  readonly #run: RunIp;
  readonly #checkMs: number;
  readonly #addresses: () => readonly string[];
  #timer: NodeJS.Timeout | undefined;
  #isRepairing = false;

  constructor(address: string, kind: "lo" | "dummy", log: Logger, options: LocalAddressOptions = {}) {
    const { run = runIp, checkMs = CHECK_MS, addresses = machineAddresses } = options;
    this.#address = canonicalAddress(address);
    this.#device = kind === "lo" ? "lo" : DUMMY;
    this.#log = log;
    this.#run = run;
    this.#checkMs = checkMs;
    this.#addresses = addresses;
  }

  /** Rejects with a `ConfigError` where the agent may not do it. */
  async add(): Promise<void> {
    try {
      await this.#replace();
    } catch (error) {
      throw new ConfigError([`Cannot add ${this.#address} to ${this.#device}: ${reasonOf(error)}. ${CURE}`], {
        cause: error,
      });
    }
    this.#timer = setInterval(() => void this.#check(), this.#checkMs).unref();
  }

  /** An address that is there stays as it is. */
  async #replace(): Promise<void> {
    const device = this.#device;
    if (device === DUMMY) {
      if (!existsSync(`/sys/class/net/${DUMMY}`)) await this.#run("link", "add", DUMMY, "type", "dummy");
      await this.#run("link", "set", DUMMY, "up");
    }
    // Duplicate address detection would keep the address from being bound for a second (RFC 4862 §5.4).
    const kind = isIPv6(this.#address) ? ["nodad"] : ["scope", "host"];
    await this.#run("address", "replace", this.#withPrefix, "dev", device, ...kind);
  }

  async #check(): Promise<void> {
    if (this.#isRepairing) return;
    this.#isRepairing = true;
    try {
      if (this.#addresses().some((each) => canonicalAddress(each) === this.#address)) return;
      await this.#replace();
      this.#log.warn({ address: this.#address, device: this.#device }, "the address was removed: added it again");
    } catch (error) {
      const line = { address: this.#address, device: this.#device, reason: reasonOf(error) };
      this.#log.error(line, "the address was removed, and cannot be added again");
    } finally {
      this.#isRepairing = false;
    }
  }

  async remove(): Promise<void> {
    clearInterval(this.#timer);
    if (this.#timer === undefined) return;
    this.#timer = undefined;
    const args =
      this.#device === DUMMY ? ["link", "delete", DUMMY] : ["address", "delete", this.#withPrefix, "dev", "lo"];
    await this.#run(...args).catch((error: unknown) => {
      this.#log.warn({ address: this.#address, reason: reasonOf(error) }, "the address could not be removed");
    });
  }

  get #withPrefix(): string {
    return `${this.#address}/${isIPv6(this.#address) ? 128 : 32}`;
  }
}

const CURE = "Give the agent NET_ADMIN and iproute2, or add the address yourself and use --interface none.";

/** The text that `ip` has printed, or the reason why it could not be started. */
function reasonOf(error: unknown): string {
  const { stderr = "", code, message } = error as { stderr?: string; code?: unknown; message?: string };
  if (code === "ENOENT") return "there is no program ip";
  return stderr.trim().split("\n").at(-1) || (message ?? String(error));
}
