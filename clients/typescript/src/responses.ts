/**
 * From an HTTP response to a result, or to the error that it stands for.
 */

import {
  ConfigurationError,
  ERRORS_BY_CODE,
  type ErrorDetails,
  InFlight,
  OncewardError,
  OutcomeUnknown,
  RateLimitError,
  type RetryAdvice,
  SQL_KINDS,
  ServiceUnreachable,
  SqlError,
  type SqlKind,
  type Stop,
} from "./errors.js";
import { parseJson } from "./json.js";
import { type Answer, type CallEnd, type OutgoingRequest, failureName } from "./retry.js";
import { retryHints } from "./verdicts.js";

/** How the result of a call is read from the document of its response. */
export type Reader<T> = (document: never, replayed: boolean, headers: Headers) => T;

const REPLAY_HEADERS = ["idempotency-replayed", "idempotent-replayed", "plan-replayed"];
const ADVICE = ["same-key", "new-key", "never"];
const CHECK_ADDRESS = "check that the address is that of an onceward service, and that no proxy answers in its place";

/** What a call came to; or its error, thrown. `nowMs` is the time of day, for errors that name an instant. */
export function resultOf<T>(outgoing: OutgoingRequest, end: CallEnd, read: Reader<T>, nowMs: number): T {
  if (end.answer === undefined) throw noResponseError(outgoing, end.failure, end.stop);
  const { answer, stop } = end;
  if (stop !== undefined) throw errorFromAnswer(outgoing, answer, stop, nowMs);
  const { status, headers, text } = answer;
  if (status < 200 || status >= 300) {
    throw new ConfigurationError(
      `the response is a redirect (${status || "of a kind that is not shown"}), and redirects are not followed; ${CHECK_ADDRESS}`,
    );
  }
  try {
    return read(parseJson(text) as never, isReplay(headers), headers);
  } catch (error) {
    if (error instanceof OncewardError) throw error;
    throw new ConfigurationError(`the response (${status}) is not an onceward service's; ${CHECK_ADDRESS}`);
  }
}

function isReplay(headers: Headers): boolean {
  return REPLAY_HEADERS.some((name) => ["true", "1", "?1"].includes((headers.get(name) ?? "").trim().toLowerCase()));
}

/** The error for a call without a response. */
function noResponseError(outgoing: OutgoingRequest, failure: unknown, stop: Stop): OncewardError {
  const [name, details] = [failureName(failure), { key: outgoing.key, stop, cause: failure }];
  if (stop.reason === "server_said_no") {
    return new ConfigurationError(
      `the service's certificate is not trusted (${name}), and nothing was sent. Check the address, or trust its authority`,
      details,
    );
  }
  if (stop.happened === undefined && !outgoing.repeatable) {
    return new OutcomeUnknown(
      `no response came (${name}), and the call may have had its effect. Look whether it did; with an idempotencyKey, or ` +
        "as a step of a plan, it could be sent again safely",
      details,
    );
  }
  if (stop.happened === false) {
    return new ServiceUnreachable(
      `the service could not be reached (${name}), and nothing was sent. Check the address, and that the service runs; ` +
        "then send it again",
      details,
    );
  }
  return new ServiceUnreachable(`no response came (${name}). Send it again, unchanged: it happens once`, details);
}

/** A refusal as the error that it stands for. */
function errorFromAnswer(outgoing: OutgoingRequest, answer: Answer, stop: Stop, nowMs: number): OncewardError {
  const document = documentOf(answer.text);
  const code = typeof document["code"] === "string" ? document["code"] : "";
  const detail =
    typeof document["detail"] === "string" ? document["detail"] : `the service responded with ${answer.status}`;
  const wait = waitOf(document, answer.headers, nowMs);
  const details: ErrorDetails = {
    status: answer.status,
    retryAfterSeconds: wait,
    retryAt: wait === undefined ? undefined : new Date(nowMs + wait * 1000),
    requestId: answer.headers.get("x-request-id") ?? undefined,
    key: outgoing.key,
    stop,
  };
  if (code === SqlError.code) return sqlError(document, detail, details);
  if (answer.status === 202) return new InFlight(detail, details);
  const kind = ERRORS_BY_CODE.get(code);
  if (kind === undefined) return unknownError(outgoing, answer.status, code, document["retry"], detail, details);
  const isDoubtful = kind.code === OutcomeUnknown.code && outgoing.repeatable;
  return new kind(detail, isDoubtful ? { ...details, retry: "same-key" } : details);
}

/** An error whose code is not known here: of a proxy, or of a newer service. Its own advice counts, if it gives any. */
function unknownError(
  outgoing: OutgoingRequest,
  status: number,
  code: string,
  advice: unknown,
  detail: string,
  details: ErrorDetails,
): OncewardError {
  if (status === 429) return new RateLimitError(detail, details);
  if (status >= 500)
    return new OutcomeUnknown(detail, outgoing.repeatable ? { ...details, retry: "same-key" } : details);
  const retry = ADVICE.includes(advice as string) ? (advice as RetryAdvice) : undefined;
  return new OncewardError(detail, { ...details, retry, code: code === "" ? undefined : code });
}

/** The error for a code of one item of a batch. */
export function errorFromCode(code: string, detail: string): OncewardError {
  const kind = ERRORS_BY_CODE.get(code);
  return kind === undefined ? new OncewardError(detail, { code }) : new kind(detail);
}

function documentOf(text: string): Record<string, unknown> {
  try {
    const found = parseJson(text);
    return typeof found === "object" && found !== null ? (found as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function sqlError(document: Record<string, unknown>, detail: string, details: ErrorDetails): SqlError {
  const text = (name: string) => (typeof document[name] === "string" ? document[name] : undefined);
  const kind = SQL_KINDS.includes(document["kind"] as SqlKind) ? (document["kind"] as SqlKind) : "invalid";
  const { statement } = document;
  return new SqlError(kind, detail, {
    ...details,
    table: text("table"),
    column: text("column"),
    constraint: text("constraint"),
    hint: text("hint"),
    statement: typeof statement === "number" ? statement : undefined,
  });
}

function waitOf(document: Record<string, unknown>, headers: Headers, nowMs: number): number | undefined {
  const said = document["retryAfterSeconds"];
  return typeof said === "number" && Number.isFinite(said) ? Math.max(0, said) : retryHints(headers, nowMs).wait;
}
