/**
 * The part of the metadata reflection API that @peculiar/x509 needs of its environment before it is loaded (its
 * dependency injection keeps constructor types there). Real polyfills are far larger and offer more than is used.
 */

type Key = string | symbol;
const known = new WeakMap<object, Map<Key, unknown>>();

function define(key: Key, value: unknown, target: object): void {
  const own = known.get(target) ?? new Map<Key, unknown>();
  known.set(target, own.set(key, value));
}

function getOwn(key: Key, target: object): unknown {
  return known.get(target)?.get(key);
}

function get(key: Key, target: object): unknown {
  for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at)) {
    if (known.get(at)?.has(key)) return getOwn(key, at);
  }
  return undefined;
}

if (!("getMetadata" in Reflect)) {
  Object.assign(Reflect, {
    defineMetadata: define,
    getOwnMetadata: getOwn,
    getMetadata: get,
    metadata: (key: Key, value: unknown) => (target: object) => define(key, value, target),
  });
}
