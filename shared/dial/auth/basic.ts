import { type AuthScheme, CHECK_PASSWORD, NoCredentials } from "./scheme.ts";

/** Basic (RFC 7617), always in UTF-8, because a proxy cannot ask for another character set. */
export const BASIC: AuthScheme = {
  name: "Basic",
  sends: "password",
  refused: `refuses the user or the password (Basic): ${CHECK_PASSWORD}`,

  pick: (challenges) => challenges.find(({ scheme }) => scheme === "basic"),

  async begin({ credentials }) {
    const given = await credentials();
    if (given === undefined) throw new NoCredentials();
    const secret = Buffer.from(`${given.user}:${given.password}`, "utf8").toString("base64");
    return { authorize: async () => ({ value: `Basic ${secret}`, secret }), next: () => undefined };
  },
};
