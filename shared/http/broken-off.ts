/**
 * What a peer has done that broke a connection off, by the error that Node has for it: a sentence begins with who it was.
 * `undefined`: it is another error.
 */
export function brokenOff({ code, syscall }: NodeJS.ErrnoException): string | undefined {
  // Without a call of the kernel's it is Node that says so of an end in order: "socket hang up", "Client network socket
  // disconnected before secure TLS connection was established".
  if (code === "EPIPE" || (code === "ECONNRESET" && syscall === undefined)) return "closed the connection";
  return code === "ECONNRESET" ? "reset the connection" : undefined;
}
