import { existsSync } from "node:fs";
import { type Browser, chromium, type Page } from "playwright-core";

/** Debian's; macOS and others have theirs elsewhere. */
const CHROMIUM = process.env["CHROMIUM"] ?? "/usr/bin/chromium";

export interface OpenPage extends AsyncDisposable {
  readonly page: Page;
  /** Lines that the page has written to its console, and scripts and requests that have failed or were blocked. */
  readonly complaints: readonly string[];
}

export async function startBrowser(): Promise<Browser> {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM} does not exist: install chromium, or set CHROMIUM`);
  // In a container its sandbox does not start; it opens no page but ours.
  return await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
}

/** Opens the page at this address in a window of its own. */
export async function openPage(browser: Browser, url: string, options: Parameters<Browser["newPage"]>[0] = {}) {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(20_000);
  const complaints: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) complaints.push(`another host: ${request.url()}`);
  });
  await page.goto(url);
  const opened: OpenPage = { page, complaints, [Symbol.asyncDispose]: () => page.close() };
  return opened;
}
