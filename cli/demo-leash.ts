/** Loaded into each child of `culvert demo`: ends it when the demo was killed and could not do so itself. */
process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
// The channel must not keep alive a child that has nothing else to do.
process.channel?.unref();

export {};
