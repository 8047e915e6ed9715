/** Runs `task(0)` … `task(count - 1)`, at most `atOnce` of them at a time; the first failure is thrown, after the others have ended. */
export async function inTurn(count: number, atOnce: number, task: (index: number) => Promise<void>): Promise<void> {
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
