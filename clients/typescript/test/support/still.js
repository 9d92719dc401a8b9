/** A clock that stands still: a wait is over at once, and noted. */
export function stillRuntime({ chance = 0.5, ...more } = {}) {
  const still = { waits: [], time: 0 };
  still.runtime = {
    now: () => still.time,
    wallClock: () => 1_793_880_000_000 + still.time,
    random: typeof chance === "function" ? chance : () => chance,
    sleep: async (milliseconds, signal) => {
      signal?.throwIfAborted();
      still.waits.push(milliseconds);
      still.time += milliseconds;
      await still.meanwhile?.();
    },
    ...more,
  };
  return still;
}

/** A `fetch` that answers from a list, and notes what it was asked. The real one is used wherever a socket matters. */
export function answers(list) {
  const asked = [];
  const fetch = async (url, init) => {
    asked.push({ url, ...init });
    const next = list[Math.min(asked.length, list.length) - 1];
    if (next instanceof Error) throw next;
    return new Response(next.body ?? "{}", { status: next.status ?? 200, headers: next.headers ?? {} });
  };
  return { fetch, asked };
}

/** What the service answers to a statement. */
export const DONE = JSON.stringify({
  columns: [],
  rows: [],
  rowsRead: 0,
  rowsWritten: 1,
  lastInsertRowid: 1,
  meta: {},
});

/** A token that is well-formed and opens nothing. */
export const TOKEN = "ow_test_000000000000_0000000000000000000000000000000003q0AhC";
