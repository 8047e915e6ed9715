const SECOND_MS = 1_000;

/**
 * Makes a value at most once a second, for whoever asks meanwhile the same one: what strangers may ask for as often as
 * they like must not cost its making each time. A promise is one that is made until it settles; its second begins then.
 */
export function onceASecond<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  const forget = (): void => {
    made = undefined;
  };
  const forgetLater = (): void => {
    setTimeout(forget, SECOND_MS).unref();
  };
  return () => {
    if (made !== undefined) return made.value;
    const value = make();
    made = { value };
    if (value instanceof Promise) value.then(forgetLater, forgetLater);
    else forgetLater();
    return value;
  };
}
