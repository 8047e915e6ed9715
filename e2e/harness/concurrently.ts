import { availableParallelism } from "node:os";

/**
 * Runs `task(0)` … `task(count - 1)`, at most `atOnce` of them at a time; the first failure is thrown, after the others
 * have ended.
 */
export async function runConcurrently(
  count: number,
  atOnce: number,
  task: (index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  let failed: { readonly error: unknown } | undefined;
  const worker = async () => {
    while (next < count && !failed) {
      const index = next++;
      try {
        await task(index);
      } catch (error) {
        failed ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(count, atOnce) }, worker));
  if (failed) throw failed.error;
}

/** The results of a task for each item, in the items' order; as many run at once as there are processors. */
export async function mapConcurrently<T, R>(items: readonly T[], task: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  await runConcurrently(items.length, availableParallelism(), async (index) => {
    results[index] = await task(items[index] as T);
  });
  return results;
}
