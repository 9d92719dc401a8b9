/**
 * What is known about an attempt that failed: whether its effect took place, and whether to send it again.
 *
 *     certainty   "not sent", "rejected": nothing happened.  "unknown": it may have.  "done": it happened
 *     action      "same-key": send it again, if it has a key or cannot have arrived.  Anything else: do not
 *     wait        seconds that the other side asked for
 *
 * The tables are those of the Python library; `tests/core/golden/shared.json` holds both to it.
 */

/** Whether the effect of an attempt took place. */
export type Certainty = "not sent" | "rejected" | "unknown" | "done";
/** What a caller may do next. */
export type Action = "same-key" | "new-key" | "refresh-credentials" | "escalate" | "never";
/** What sort of trouble it is. */
export type Kind = "rate limit" | "upstream" | "network" | "client" | "auth" | "state" | "other";

/** What is known about one attempt. */
export interface Verdict {
  readonly certainty: Certainty;
  readonly kind: Kind;
  readonly action: Action;
  readonly wait?: number | undefined;
}

const verdict = (certainty: Certainty, kind: Kind, action: Action): Verdict => ({ certainty, kind, action });

const IN_THE_MIDDLE = verdict("unknown", "upstream", "same-key");
const REFUSED = verdict("rejected", "client", "never");
const CONFLICT = verdict("rejected", "state", "never");

/** By status. One that is not listed is judged as its class's first: 4xx as 400, 5xx as 500. */
const STATUSES: Readonly<Record<number, Verdict>> = {
  400: REFUSED,
  401: verdict("rejected", "auth", "refresh-credentials"),
  403: verdict("rejected", "auth", "escalate"),
  404: REFUSED,
  407: verdict("rejected", "auth", "escalate"),
  408: verdict("unknown", "network", "same-key"),
  409: CONFLICT,
  410: CONFLICT,
  412: CONFLICT,
  422: REFUSED,
  423: CONFLICT,
  425: verdict("not sent", "upstream", "same-key"),
  // A limiter stands in front of the work: who is turned away there has not been let in.
  429: verdict("not sent", "rate limit", "same-key"),
  500: IN_THE_MIDDLE,
  501: verdict("rejected", "upstream", "never"),
  502: IN_THE_MIDDLE,
  503: IN_THE_MIDDLE,
  504: IN_THE_MIDDLE,
  505: verdict("rejected", "upstream", "never"),
  529: IN_THE_MIDDLE,
};

/** Our codes that say more than their status, with the statuses that they come with. */
const CODES: Readonly<Record<string, readonly [statuses: readonly number[], verdict: Verdict]>> = {
  in_doubt: [[409], verdict("unknown", "state", "never")],
  not_replayable: [[409], verdict("done", "state", "never")],
  expired: [[410], verdict("done", "state", "never")],
  key_reused: [[409, 422], verdict("rejected", "client", "new-key")],
  balance_exhausted: [[402], verdict("rejected", "state", "escalate")],
  quota_exceeded: [[429], verdict("rejected", "state", "escalate")],
  rate_limited: [[429], verdict("not sent", "rate limit", "same-key")],
  store_unavailable: [[503], verdict("not sent", "upstream", "same-key")],
};

/** The first request is still running, and this is no answer yet. */
const PENDING_CODES: readonly string[] = ["in_flight", "pending", "IDEMPOTENCY_PENDING", "idempotency_key_in_use"];
const PENDING = verdict("unknown", "state", "same-key");
const REDIRECTED = verdict("unknown", "other", "never");

/** The request never left this machine: nothing happened, whatever it was. */
export const NEVER_LEFT: Verdict = verdict("not sent", "network", "same-key");
/** Nobody knows what became of it. */
export const LOST: Verdict = verdict("unknown", "network", "same-key");
/** The other side is not who it says it is; nothing was sent. */
export const UNTRUSTED: Verdict = verdict("not sent", "network", "never");

/** Whether a response says that the first request is still running. */
export function isPending(code: string | undefined): boolean {
  return code !== undefined && PENDING_CODES.includes(code);
}

/** The verdict on a response. */
export function verdictOnResponse(status: number, code: string | undefined, headers: Headers, nowMs: number): Verdict {
  const known = byStatus(status, code);
  const hints = retryHints(headers, nowMs);
  let { action } = known;
  if (hints.retry !== undefined && status >= 400 && (action === "same-key" || action === "never")) {
    // The server says so itself. It cannot make a wrong request right, but this it knows.
    action = hints.retry ? "same-key" : "never";
  }
  return { ...known, action, wait: hints.wait };
}

function byStatus(status: number, code: string | undefined): Verdict {
  if (isPending(code)) return PENDING;
  if (status >= 200 && status < 300) return verdict("done", "other", "never");
  if (status < 400) return REDIRECTED;
  const known = STATUSES[status] ?? STATUSES[Math.floor(status / 100) * 100] ?? IN_THE_MIDDLE;
  const ours = code !== undefined && Object.hasOwn(CODES, code) ? CODES[code] : undefined;
  return ours !== undefined && ours[0].includes(status) ? ours[1] : known;
}

// --- what the other side asks for in its headers ---

/** A month of seconds: whoever asks for more means "never". */
const WAIT_MAX = 30 * 24 * 3600;
const SECONDS = /^[0-9]{1,4096}(\.[0-9]{0,30})?$/;
const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const TIME = "(?<hour>[0-9]{2}):(?<minute>[0-9]{2}):(?<second>[0-9]{2})";
const ZONE = "(?: (?:GMT|UTC|Z|[+-]0000))?";
const DATES = [
  `^[a-z]{3}, (?<day>[0-9]{2}) (?<month>[a-z]{3}) (?<year>[0-9]{4}) ${TIME}${ZONE}$`,
  `^[a-z]{6,9}, (?<day>[0-9]{2})-(?<month>[a-z]{3})-(?<year>[0-9]{2}) ${TIME}${ZONE}$`,
  `^[a-z]{3} (?<month>[a-z]{3}) (?<day>[ 0-9][0-9]) ${TIME} (?<year>[0-9]{4})${ZONE}$`,
].map((form) => new RegExp(form, "i"));

/** What headers ask for. A value that is not well-formed is ignored, as if it were not there. */
export function retryHints(
  headers: Headers,
  nowMs: number,
): { wait?: number | undefined; retry?: boolean | undefined } {
  const word = headers.get("x-should-retry")?.toLowerCase();
  const retry = word === "true" ? true : word === "false" ? false : undefined;
  const after = headers.get("retry-after");
  // The answer's own date, if it has one: then a clock that is wrong on either side does no harm.
  const now = httpDate(headers.get("date") ?? "", nowMs) ?? nowMs;
  const inMilliseconds = longestWait(headers.get("retry-after-ms"), 0.001);
  const wait = inMilliseconds ?? longestWait(after, 1) ?? secondsUntil(httpDate(after ?? "", now), now);
  return { wait, retry };
}

/** Several fields come joined by commas: the longest wait keeps every promise. */
function longestWait(value: string | null, scale: number): number | undefined {
  if (value === null || value.length > 4096) return undefined;
  const parts = value.split(",").map((part) => part.trim());
  if (!parts.every((part) => SECONDS.test(part))) return undefined;
  return Math.min(Math.max(...parts.map((part) => Number(part) * scale)), WAIT_MAX);
}

function secondsUntil(instant: number | undefined, now: number): number | undefined {
  return instant === undefined ? undefined : Math.min(Math.max((instant - now) / 1000, 0), WAIT_MAX);
}

/** An HTTP date in any of its three forms, as milliseconds since 1970; without a zone it is UTC. */
function httpDate(text: string, nowMs: number): number | undefined {
  for (const form of DATES) {
    const found = form.exec(text)?.groups;
    if (found === undefined) continue;
    const month = MONTHS.indexOf(found["month"]!.toLowerCase());
    let year = Number(found["year"]);
    if (found["year"]!.length === 2) {
      const thisYear = new Date(nowMs).getUTCFullYear();
      year += thisYear - (thisYear % 100);
      if (year > thisYear + 50) year -= 100; // RFC 9110: one that seems more than 50 years ahead lies in the past.
    }
    const [day, hour, minute] = [Number(found["day"]), Number(found["hour"]), Number(found["minute"])];
    const second = Math.min(Number(found["second"]), 59); // A leap second is the second before it.
    const made = new Date(Date.UTC(year, month, day, hour, minute, second));
    // `Date.UTC` takes the 31st of February for a day in March; that is no date.
    const isReal = month >= 0 && made.getUTCDate() === day && made.getUTCMonth() === month && hour < 24 && minute < 60;
    return isReal ? made.getTime() : undefined;
  }
  return undefined;
}
