/**
 * Sends one request, with all its attempts: the same bytes and the same key each time, or not again at all.
 *
 * What is decided after each attempt that failed, in this order:
 *
 *     nothing to gain       the verdict says so, or the other side does        never, server_said_no
 *     may have happened     and it has no key, and is not safe by nature       no_key
 *     often enough          maxRetries                                         attempts
 *     no time               the wait would go past the limit: stop now         deadline, elapsed
 *
 * Doubt is sticky: once an attempt may have had its effect, the stop says so, whatever came later.
 */

import { ConfigurationError, type Stop, type StopReason } from "./errors.js";
import { LOST, NEVER_LEFT, UNTRUSTED, type Verdict, isPending, verdictOnResponse } from "./verdicts.js";

/** How often and how long a client tries. Times are milliseconds. */
export interface RetryPolicy {
  readonly maxRetries: number;
  /** For one attempt. */
  readonly timeout: number;
  /** For the whole call, with its waits. */
  readonly elapsed: number;
}

/** The same, each of them optional. */
export interface RetryOptions {
  /** Attempts after the first (default: 2). More than 4 hide an outage: say `allowMany`, too. */
  maxRetries?: number | undefined;
  allowMany?: boolean | undefined;
  /** Milliseconds for one attempt; less if less is left (default: 30,000). */
  timeout?: number | undefined;
  /** Milliseconds for the whole call, with its waits (default: 60,000). */
  elapsed?: number | undefined;
}

/** Time, chance and the network. For tests, and for places with a `fetch` of their own. */
export interface Runtime {
  fetch(url: string, init: RequestInit): Promise<Response>;
  /** Milliseconds on a clock that is never set back. */
  now(): number;
  /** Milliseconds since 1970. */
  wallClock(): number;
  /** Wait; rejects with the signal's reason when that is aborted. */
  sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void>;
  /** Call this later, unless what it returns is called first. */
  after(milliseconds: number, act: () => void): () => void;
  /** A number from 0 to 1, without 1. */
  random(): number;
}

/** A request, ready to be sent; the same on every attempt. */
export interface OutgoingRequest {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  /** Whether sending it twice is sending it once: it has a key or names itself, or it is so by nature. */
  readonly repeatable: boolean;
  /** The key that it goes under, or its plan and step. */
  readonly key: string | undefined;
}

/** A response, read to its end. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The problem's code, if it is one. */
  readonly code: string | undefined;
}

/** How a call ended: with a response, or without one; and why there was no further attempt, unless it succeeded. */
export type CallEnd =
  | { readonly answer: Answer; readonly stop: Stop | undefined }
  | { readonly answer: undefined; readonly failure: unknown; readonly stop: Stop };

const BASE_MS = 100;
const CAP_MS = 10_000;
const RETRIES = 2;
const RETRIES_UNSAID_MAX = 4;
const RETRIES_MAX = 99;
const TIMEOUT_MS = 30_000;
const ELAPSED_MS = 60_000;
const DAY_MS = 86_400_000;

/** The policy of a client, or of one call on top of it; refused if it cannot work. */
export function retryPolicy(options: RetryOptions, base?: RetryPolicy): RetryPolicy {
  const retries = options.maxRetries ?? base?.maxRetries ?? RETRIES;
  if (!Number.isSafeInteger(retries) || retries < 0 || retries > RETRIES_MAX) {
    throw new ConfigurationError(`maxRetries is a whole number from 0 to ${RETRIES_MAX}: the attempts after the first`);
  }
  if (retries > RETRIES_UNSAID_MAX && options.allowMany !== true && retries !== base?.maxRetries) {
    throw new ConfigurationError(
      `more than ${RETRIES_UNSAID_MAX} retries hide an outage. If you mean it, say it twice: maxRetries: ${retries}, ` +
        "allowMany: true",
    );
  }
  return {
    maxRetries: retries,
    timeout: checkedTime("timeout", options.timeout ?? base?.timeout ?? TIMEOUT_MS),
    elapsed: checkedTime("elapsed", options.elapsed ?? base?.elapsed ?? ELAPSED_MS),
  };
}

function checkedTime(name: string, value: unknown): number {
  if (typeof value !== "number" || !(value > 0) || value > DAY_MS) {
    throw new ConfigurationError(
      `${name} is a number of milliseconds, more than 0 and at most a day; everything has a limit`,
    );
  }
  return value;
}

/** Full jitter: anything from nothing to the ceiling, which doubles with each retry. Milliseconds. */
export function backoff(retries: number, chance: number): number {
  return chance * Math.min(CAP_MS, BASE_MS * 2 ** retries);
}

/** The wait before the next attempt: never less than the other side asked for, and not everybody at the same instant. */
export function nextWait(retries: number, chance: number, askedSeconds: number | undefined): number {
  return (askedSeconds ?? 0) * 1000 + backoff(retries, chance);
}

/** The runtime of this place. */
export function realRuntime(): Runtime {
  return {
    fetch: (url, init) => globalThis.fetch(url, init),
    now: () => performance.now(),
    wallClock: () => Date.now(),
    sleep,
    after: (milliseconds, act) => {
      const timer = setTimeout(act, milliseconds);
      return () => clearTimeout(timer);
    },
    random: () => Math.random(),
  };
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason); // It will not tell again.
      return;
    }
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Sends requests to one service. */
export class RequestSender {
  readonly #address: string;
  readonly #credential: Readonly<Record<string, string>>;
  readonly #runtime: Runtime;

  constructor(address: string, credential: Readonly<Record<string, string>>, runtime: Runtime) {
    [this.#address, this.#credential, this.#runtime] = [address, credential, runtime];
  }

  /** Milliseconds since 1970, for errors that name an instant. */
  wallClock(): number {
    return this.#runtime.wallClock();
  }

  /** Send it, again if that is safe and worth it. Rejects only if the caller's signal is aborted. */
  async send(outgoing: OutgoingRequest, policy: RetryPolicy, signal: AbortSignal | undefined): Promise<CallEnd> {
    const { now, random } = this.#runtime;
    const began = now();
    const limit = began + policy.elapsed;
    let mayHaveHappened = false;
    for (let attempt = 1; ; attempt++) {
      signal?.throwIfAborted();
      const ended = await this.#attempt(outgoing, Math.min(policy.timeout, Math.max(limit - now(), 1)), signal);
      if (ended.verdict === undefined) return { answer: ended.answer, stop: undefined };
      const { verdict } = ended;
      mayHaveHappened ||= verdict.certainty === "unknown";
      const end = (reason: StopReason): CallEnd => {
        const happened = mayHaveHappened ? undefined : verdict.certainty === "done";
        const stop = { reason, attempts: attempt, elapsed: now() - began, happened };
        return ended.answer === undefined
          ? { answer: undefined, failure: ended.failure, stop }
          : { answer: ended.answer, stop };
      };
      const reason = finalReason(verdict, outgoing, attempt, policy);
      if (reason !== undefined) return end(reason);
      const wait = nextWait(attempt - 1, random(), verdict.wait);
      const outOfTime = verdict.wait ? "deadline" : "elapsed";
      if (now() + wait >= limit) return end(outOfTime);
      await this.#runtime.sleep(wait, signal);
      if (now() >= limit) return end(outOfTime); // Whatever slept, slept longer than it was asked to.
    }
  }

  /** One attempt: a response that is a success, or what failed and what that means. */
  async #attempt(outgoing: OutgoingRequest, timeout: number, signal: AbortSignal | undefined): Promise<AttemptEnd> {
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    const tooLong = () => controller.abort(new DOMException("the attempt took too long", "TimeoutError"));
    const cancel = this.#runtime.after(timeout, tooLong);
    signal?.addEventListener("abort", abort, { once: true });
    try {
      const response = await this.#runtime.fetch(this.#address + outgoing.path, {
        method: outgoing.method,
        headers: { ...outgoing.headers, ...this.#credential },
        ...(outgoing.body === undefined ? {} : { body: outgoing.body }),
        redirect: "manual",
        signal: controller.signal,
      });
      // Within the attempt, so that a response that breaks off is a failed attempt, too.
      const text = await response.text();
      const { status, headers } = response;
      const mayHoldCode = status >= 400 || status === 202;
      const answer = { status, headers, text, code: mayHoldCode ? codeIn(text) : undefined };
      const isFailure = status >= 400 || (status === 202 && isPending(answer.code));
      if (!isFailure) return { answer, verdict: undefined };
      return { answer, verdict: verdictOnResponse(status, answer.code, headers, this.#runtime.wallClock()) };
    } catch (failure) {
      signal?.throwIfAborted();
      return { answer: undefined, failure, verdict: verdictOnFailure(failure) };
    } finally {
      cancel();
      signal?.removeEventListener("abort", abort);
    }
  }
}

/** How one attempt ended: with a success, a response that is a failure, or without a response. */
type AttemptEnd =
  | { readonly answer: Answer; readonly verdict: undefined }
  | { readonly answer: Answer; readonly verdict: Verdict }
  | { readonly answer: undefined; readonly failure: unknown; readonly verdict: Verdict };

/** Whether the call ends here, whatever the time. */
function finalReason(
  verdict: Verdict,
  outgoing: OutgoingRequest,
  attempt: number,
  policy: RetryPolicy,
): StopReason | undefined {
  if (verdict.action !== "same-key") {
    const isPassing = verdict.kind === "rate limit" || verdict.kind === "upstream" || verdict.kind === "network";
    return verdict.action === "never" && isPassing ? "server_said_no" : "never";
  }
  if (verdict.certainty === "unknown" && !outgoing.repeatable) return "no_key";
  return attempt > policy.maxRetries ? "attempts" : undefined;
}

/** Problems are short; a larger body is not looked into. */
const CODE_CHARACTERS_MAX = 65_536;

function codeIn(text: string): string | undefined {
  if (text.length > CODE_CHARACTERS_MAX || !text.trimStart().startsWith("{")) return undefined;
  try {
    const { code } = JSON.parse(text) as { code?: unknown };
    return typeof code === "string" && code !== "" ? code.slice(0, 100) : undefined;
  } catch {
    return undefined;
  }
}

/** System calls that come before a request: whatever fails there, no byte of it has left. */
const BEFORE_SENDING: readonly unknown[] = ["connect", "getaddrinfo"];
const NO_CONNECTION_CODES: readonly unknown[] = ["UND_ERR_CONNECT_TIMEOUT", "ECONNREFUSED", "ConnectionRefused"];
/** Deno's errors have no code. Blanks in an address are escaped, so no address can say this. */
const DENO_CONNECTING = "): client error (Connect): ";
const CERTIFICATE_CODE = /^(?:CERT_|ERR_TLS_CERT|DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED|UNABLE_TO_(?:VERIFY|GET_ISSUER))/;

/** What is known of an error of `fetch`: where it does not say, it may have arrived. Browsers never say. */
export function verdictOnFailure(failure: unknown): Verdict {
  const cause = causeOf(failure);
  const all = cause instanceof AggregateError ? (cause.errors as unknown[]) : [cause];
  if (all.length > 0 && all.every(isBeforeSending)) return NEVER_LEFT;
  const { code } = partsOf(cause);
  return typeof code === "string" && CERTIFICATE_CODE.test(code) ? UNTRUSTED : LOST;
}

/** What an error is called, for a message: never its own text, which may hold anything. */
export function failureName(failure: unknown): string {
  const { code } = partsOf(causeOf(failure));
  return typeof code === "string"
    ? code.slice(0, 60)
    : failure instanceof Error || failure instanceof DOMException
      ? failure.name
      : "error";
}

function isBeforeSending(error: unknown): boolean {
  const { syscall, code } = partsOf(error);
  const isOfDeno = error instanceof Error && error.message.includes(DENO_CONNECTING);
  return BEFORE_SENDING.includes(syscall) || NO_CONNECTION_CODES.includes(code) || isOfDeno;
}

function causeOf(failure: unknown): unknown {
  return failure instanceof Error && failure.cause !== undefined ? failure.cause : failure;
}

function partsOf(error: unknown): { syscall?: unknown; code?: unknown } {
  return typeof error === "object" && error !== null ? error : {};
}
