import { asRender, type Render, render } from "./helm.ts";
import { installationCalled } from "./installations.ts";

/** The render of an installation with a mistake in its YAML; throws if there is no place for the mistake. */
export async function withMistake(name: string, mistake: RegExp, instead: string): Promise<Render> {
  const { installation, yaml } = await render(installationCalled(name));
  const changed = yaml.replace(mistake, instead);
  if (changed === yaml) throw new Error(`${name} renders nothing that ${mistake} matches`);
  return asRender(installation, changed);
}
