import { mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * A mounted Secret, as the kubelet writes it: each name leads through `..data` to a folder of this generation, and an
 * update swaps that one link (kubernetes `pkg/volume/util/atomic_writer.go`).
 */
export class KubernetesVolume {
  readonly path: string;
  #generation = 0;

  constructor(path: string, files: Readonly<Record<string, string>>) {
    this.path = path;
    mkdirSync(path);
    this.update(files);
    for (const name of Object.keys(files)) symlinkSync(join("..data", name), this.file(name));
  }

  file(name: string): string {
    return join(this.path, name);
  }

  /** All files at once. */
  update(files: Readonly<Record<string, string>>): void {
    const before = this.#generation === 0 ? undefined : readlinkSync(this.file("..data"));
    const folder = `..2026_11_21_${++this.#generation}`;
    mkdirSync(this.file(folder));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(this.path, folder, name), text);
    symlinkSync(folder, this.file("..data_tmp"));
    renameSync(this.file("..data_tmp"), this.file("..data"));
    if (before !== undefined) rmSync(this.file(before), { recursive: true });
  }
}
