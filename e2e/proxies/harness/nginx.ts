import { writeFileSync } from "node:fs";
import type { CertificateAndKey } from "../../../shared/pki/certificates.ts";
import { TempDir } from "../../harness/temp.ts";
import { BORDER, INSECURE_PORT, NAMES, PORTS, SERVER } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";

interface NginxOptions {
  /** Its own certificate, for the server's name. */
  readonly pair: CertificateAndKey;
  /** The CA file by which it verifies the server. Absent: it connects to the server's port without TLS. */
  readonly upstreamCa?: string;
  /** Its timeout for a silent server; nginx' default is 60 s. */
  readonly readTimeoutS: number;
}

/** A balancer that terminates the agents' TLS, and connects to the server with TLS of its own or without TLS. */
export class Nginx implements AsyncDisposable {
  /** The address to dial instead of the server's. */
  readonly address = `${BORDER}:${PORTS.https}`;
  readonly #service: Service;

  private constructor(service: Service) {
    this.#service = service;
  }

  static async start({ outside }: CorporateNetwork, options: NginxOptions): Promise<Nginx> {
    const dir = new TempDir();
    writeFileSync(dir.file("pair.pem"), options.pair.cert + options.pair.key);
    writeFileSync(dir.file("nginx.conf"), configuration(dir.file("pair.pem"), options));
    const own = `daemon off; pid ${dir.file("pid")}; error_log stderr;`;
    const argv = ["nginx", "-c", dir.file("nginx.conf"), "-e", "stderr", "-g", own];
    return new Nginx(await Service.start(outside, { name: "nginx", argv, port: PORTS.https, dir }));
  }

  /** All connections through it are lost. */
  async restart(): Promise<void> {
    await this.#service.stop();
    await this.#service.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The worker process survives when the master is killed.
    await this.#service.stop();
    await this.#service[Symbol.asyncDispose]();
  }
}

function configuration(pair: string, { upstreamCa, readTimeoutS }: NginxOptions): string {
  return `
events {}
http {
  access_log off;
  server {
    listen ${BORDER}:${PORTS.https} ssl;
    ssl_certificate ${pair};
    ssl_certificate_key ${pair};
    location / {
      ${upstreamCa === undefined ? `proxy_pass http://127.0.0.1:${INSECURE_PORT};` : overTls(upstreamCa)}
      proxy_http_version 1.1;
      proxy_set_header Host $host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade;
      proxy_read_timeout ${readTimeoutS}s;
    }
  }
}
`;
}

function overTls(upstreamCa: string): string {
  return `
      proxy_pass https://${SERVER}:443;
      proxy_ssl_server_name on;
      proxy_ssl_name ${NAMES.server};
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate ${upstreamCa};`;
}
