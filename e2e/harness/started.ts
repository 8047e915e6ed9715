/** The resource, once `start` has resolved. If that rejects, the resource is ended, and the reason is passed on. */
export async function started<T extends AsyncDisposable>(
  resource: T,
  start: (resource: T) => Promise<unknown>,
): Promise<T> {
  try {
    await start(resource);
    return resource;
  } catch (error) {
    await Promise.allSettled([resource[Symbol.asyncDispose]()]);
    throw error;
  }
}
