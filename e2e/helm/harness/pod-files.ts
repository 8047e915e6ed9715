import { chmodSync, chownSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { KeysAsFiles, Labels, PodSpec, ProjectedSource, Volume } from "./objects.ts";

const SECRET_MODE = 0o644;
/** The mode that the kubelet adds to the files of a pod with a group. */
const GROUP_READS = 0o440;

/** Where a pod's Secrets, ConfigMaps and tokens come from. */
export interface Sources {
  /** All its keys; undefined where it does not exist. `wanted` are those that the pod names. */
  readonly keys: (kind: "Secret" | "ConfigMap", name: string, wanted: readonly string[]) => Labels | undefined;
  readonly token: (audience: string | undefined) => string;
}

/** Writes a pod's volumes into a folder as the kubelet would, one folder for each by its name. */
export function writeVolumes(spec: PodSpec, sources: Sources, folder: string): void {
  const group = spec.securityContext?.["fsGroup"];
  const writer = new VolumeWriter(sources, typeof group === "number" ? group : undefined);
  for (const volume of spec.volumes ?? []) writer.write(volume, join(folder, volume.name));
}

class VolumeWriter {
  readonly #sources: Sources;
  readonly #group: number | undefined;

  constructor(sources: Sources, group: number | undefined) {
    this.#sources = sources;
    this.#group = group;
  }

  write({ name, secret, configMap, projected, emptyDir }: Volume, folder: string): void {
    mkdirSync(folder, { recursive: true });
    if (emptyDir) this.#share(folder);
    const given = secret ?? configMap ?? projected ?? emptyDir;
    if (given === undefined) throw new Error(`volume ${name} is of a kind that the tests do not know`);
    const mode = (secret ?? configMap ?? projected)?.defaultMode ?? SECRET_MODE;
    if (secret) this.#keys("Secret", secret.secretName, secret, folder, mode);
    if (configMap) this.#keys("ConfigMap", configMap.name, configMap, folder, mode);
    for (const source of projected?.sources ?? []) this.#source(source, folder, mode);
  }

  #source({ secret, configMap, serviceAccountToken, downwardAPI }: ProjectedSource, folder: string, mode: number) {
    if (secret) this.#keys("Secret", secret.name, secret, folder, mode);
    if (configMap) this.#keys("ConfigMap", configMap.name, configMap, folder, mode);
    for (const { path } of downwardAPI?.items ?? []) this.#file(join(folder, path), "", mode);
    if (!serviceAccountToken) return;
    // With a group the kubelet lets nobody else read a token.
    this.#file(
      join(folder, serviceAccountToken.path),
      this.#sources.token(serviceAccountToken.audience),
      this.#group === undefined ? mode : 0o600,
    );
  }

  #keys(kind: "Secret" | "ConfigMap", name: string, how: KeysAsFiles, folder: string, mode: number): void {
    const wanted = (how.items ?? []).map(({ key }) => key);
    const data = this.#sources.keys(kind, name, wanted);
    if (data === undefined) {
      if (how.optional) return;
      throw new Error(`there is no ${kind} ${name}`);
    }
    const items = how.items ?? Object.keys(data).map((key) => ({ key, path: key }));
    for (const { key, path } of items) {
      const text = data[key];
      if (text !== undefined) this.#file(join(folder, path), text, mode);
      else if (!how.optional) throw new Error(`${kind} ${name} has no key ${key}`);
    }
  }

  #file(path: string, text: string, mode: number): void {
    mkdirSync(dirname(path), { recursive: true });
    if (existsSync(path)) throw new Error(`two sources of a volume have ${path}`);
    writeFileSync(path, text);
    const grouped = this.#group === undefined ? mode : mode | GROUP_READS;
    if (this.#group !== undefined && process.getuid?.() === 0) chownSync(path, 0, this.#group);
    chmodSync(path, grouped);
  }

  #share(folder: string): void {
    if (this.#group !== undefined && process.getuid?.() === 0) chownSync(folder, 0, this.#group);
    chmodSync(folder, 0o2777);
  }
}
