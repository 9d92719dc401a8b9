/**
 * Every error of the client: what happened, whose fault it is, and what a caller may safely do next.
 *
 * The codes, faults and advice are those of the Python library; `tests/core/golden/shared.json` holds both to it.
 */

/** Whose fault an error is. */
export type Fault = "caller" | "holder" | "store" | "outside";

/** What a caller may safely do about an error: send it again under the same key, under a new one, or not at all. */
export type RetryAdvice = "same-key" | "new-key" | "never";

/** Why no further attempt was made. */
export type StopReason = "attempts" | "elapsed" | "deadline" | "no_key" | "never" | "server_said_no";

/** Why a call was given up, and what is known about it. */
export interface Stop {
  readonly reason: StopReason;
  /** How many attempts were made. */
  readonly attempts: number;
  /** Milliseconds since the call began. */
  readonly elapsed: number;
  /** Whether the effect took place; undefined: some attempt may have had its effect, and nobody knows. */
  readonly happened: boolean | undefined;
}

/** What an error may know besides its message. */
export interface ErrorDetails {
  code?: string | undefined;
  fault?: Fault | undefined;
  retry?: RetryAdvice | undefined;
  status?: number | undefined;
  retryAfterSeconds?: number | undefined;
  retryAt?: Date | undefined;
  requestId?: string | undefined;
  key?: string | undefined;
  stop?: Stop | undefined;
  cause?: unknown;
}

/** A call failed. Read `retry` for what is safe to do next. */
export class OncewardError extends Error {
  /** The class's name, as text: minifiers rename classes. */
  static readonly named: string = "OncewardError";
  static readonly code: string = "error";
  static readonly fault: Fault = "caller";
  static readonly retry: RetryAdvice = "never";

  /** Stable, the same word in Python, on HTTP and here. */
  readonly code: string;
  readonly fault: Fault;
  readonly retry: RetryAdvice;
  /** The HTTP status, if the service responded. */
  declare readonly status: number | undefined;
  /** Seconds after which it makes sense to ask again, if that is known. */
  declare readonly retryAfterSeconds: number | undefined;
  declare readonly retryAt: Date | undefined;
  /** The id that a proxy or the service gave the request (`x-request-id`), if there is one. */
  declare readonly requestId: string | undefined;
  /** Why there was no further attempt; undefined if nothing was sent. */
  declare readonly stop: Stop | undefined;

  readonly #key: string | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, "cause" in details ? { cause: details.cause } : undefined);
    const kind = new.target;
    Object.defineProperty(this, "name", { value: kind.named, configurable: true, writable: true });
    this.code = details.code ?? kind.code;
    this.fault = details.fault ?? kind.fault;
    this.retry = details.retry ?? kind.retry;
    this.#key = details.key;
    const { status, retryAfterSeconds, retryAt, requestId, stop } = details;
    for (const [name, value] of Object.entries({ status, retryAfterSeconds, retryAt, requestId, stop })) {
      if (value !== undefined) Object.defineProperty(this, name, { value, enumerable: true });
    }
  }

  /** The call's key, or its plan and step. Never in the message nor in what is printed: keys can be personal data. */
  get key(): string | undefined {
    return this.#key;
  }
}

/** A setting or an argument cannot work. Nothing was sent, unless the message says that the address is wrong. */
export class ConfigurationError extends OncewardError {
  static override readonly named: string = "ConfigurationError";
  static override readonly code: string = "configuration";
}

/** This is not a valid key. A key is visible ASCII characters, and the same on every attempt. */
export class KeyInvalid extends OncewardError {
  static override readonly named: string = "KeyInvalid";
  static override readonly code: string = "key_invalid";
}

/** There is no key, and nothing was run. Give the call a key, so that a retry can be told from a new operation. */
export class KeyMissing extends KeyInvalid {
  static override readonly named: string = "KeyMissing";
  static override readonly code: string = "key_missing";
}

/** The request is not valid, or has no canonical form. Send plain data. */
export class RequestInvalid extends OncewardError {
  static override readonly named: string = "RequestInvalid";
  static override readonly code: string = "request_invalid";
}

/** This key was used for a different request. Retry with the same request, or use a new key for a new one. */
export class KeyReused extends OncewardError {
  static override readonly named: string = "KeyReused";
  static override readonly code: string = "key_reused";
  static override readonly retry: RetryAdvice = "new-key";
}

/** Another caller is running this operation right now. Retry with the same key. */
export class InFlight extends OncewardError {
  static override readonly named: string = "InFlight";
  static override readonly code: string = "in_flight";
  static override readonly fault: Fault = "holder";
  static override readonly retry: RetryAdvice = "same-key";
}

/** This operation may have happened. Somebody has to decide; it does not run before that. */
export class InDoubt extends OncewardError {
  static override readonly named: string = "InDoubt";
  static override readonly code: string = "in_doubt";
  static override readonly fault: Fault = "outside";
}

/** This operation happened, and its stored result has expired. It will not run again under this key. */
export class Expired extends OncewardError {
  static override readonly named: string = "Expired";
  static override readonly code: string = "expired";
}

/** This operation happened, but its result could not be stored. It will not run again under this key. */
export class NotReplayable extends OncewardError {
  static override readonly named: string = "NotReplayable";
  static override readonly code: string = "not_replayable";
  static override readonly fault: Fault = "outside";
}

/** A value is sealed under a key that the service does not have. The same key works once it is there. */
export class SealKeyMissing extends OncewardError {
  static override readonly named: string = "SealKeyMissing";
  static override readonly code: string = "seal_key_missing";
  static override readonly fault: Fault = "store";
  static override readonly retry: RetryAdvice = "same-key";
}

/** The service's store did not respond, so nothing was started. Retry with the same key. */
export class StoreUnavailable extends OncewardError {
  static override readonly named: string = "StoreUnavailable";
  static override readonly code: string = "store_unavailable";
  static override readonly fault: Fault = "store";
  static override readonly retry: RetryAdvice = "same-key";
}

/** Other callers kept changing this record, so it could not be claimed. Retry with the same key. */
export class StoreContended extends StoreUnavailable {
  static override readonly named: string = "StoreContended";
  static override readonly code: string = "store_contended";
}

/** The service's store is full, so nothing was started. Retry with the same key once there is room. */
export class StoreFull extends StoreUnavailable {
  static override readonly named: string = "StoreFull";
  static override readonly code: string = "store_full";
}

/** This attempt may have had its effect. Look whether it did; with a key it could be sent again safely. */
export class OutcomeUnknown extends OncewardError {
  static override readonly named: string = "OutcomeUnknown";
  static override readonly code: string = "outcome_unknown";
  static override readonly fault: Fault = "outside";
}

/** The service asks for a pause. Nothing happened; retry with the same key after `retryAfterSeconds`. */
export class RateLimitError extends OncewardError {
  static override readonly named: string = "RateLimitError";
  static override readonly code: string = "rate_limited";
  static override readonly fault: Fault = "outside";
  static override readonly retry: RetryAdvice = "same-key";
  /** Seconds to wait; 1 if the other side did not say. */
  declare readonly retryAfterSeconds: number;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, { ...details, retryAfterSeconds: details.retryAfterSeconds ?? 1 });
  }
}

/** The service could not be reached, or did not respond. Send it again with the same key: the call happens once. */
export class ServiceUnreachable extends OncewardError {
  static override readonly named: string = "ServiceUnreachable";
  static override readonly code: string = "service_unreachable";
  static override readonly fault: Fault = "outside";
  static override readonly retry: RetryAdvice = "same-key";
}

/** A step without its plan, or the reverse. Pass both. */
export class PlanIncomplete extends OncewardError {
  static override readonly named: string = "PlanIncomplete";
  static override readonly code: string = "plan_incomplete";
}

/** A call has a key and a step, which are two operations. Pass one of them. */
export class AmbiguousIdentity extends OncewardError {
  static override readonly named: string = "AmbiguousIdentity";
  static override readonly code: string = "ambiguous_identity";
}

/** The request's body is too large. Send less. */
export class BodyTooLarge extends OncewardError {
  static override readonly named: string = "BodyTooLarge";
  static override readonly code: string = "body_too_large";
}

/** The request's body did not arrive in time, so nothing was run. Retry with the same key. */
export class UploadTimeout extends OncewardError {
  static override readonly named: string = "UploadTimeout";
  static override readonly code: string = "upload_timeout";
  static override readonly retry: RetryAdvice = "same-key";
}

/** This token is not valid: it is unknown, revoked, expired or damaged. */
export class TokenInvalid extends OncewardError {
  static override readonly named: string = "TokenInvalid";
  static override readonly code: string = "token_invalid";
}

/** This token may not do that: its role, environment or list of databases does not allow it. */
export class Forbidden extends OncewardError {
  static override readonly named: string = "Forbidden";
  static override readonly code: string = "forbidden";
}

/** The prepaid balance is too low, so nothing was run. Top up, then send it again with the same key. */
export class BalanceExhausted extends OncewardError {
  static override readonly named: string = "BalanceExhausted";
  static override readonly code: string = "balance_exhausted";
  static override readonly retry: RetryAdvice = "same-key";
}

/** The tenant's quota is used up, so nothing was made. Make room, then send it again with the same key. */
export class QuotaExceeded extends OncewardError {
  static override readonly named: string = "QuotaExceeded";
  static override readonly code: string = "quota_exceeded";
  static override readonly retry: RetryAdvice = "same-key";
}

/** There is nothing at this address or under this id. */
export class ResourceNotFound extends OncewardError {
  static override readonly named: string = "ResourceNotFound";
  static override readonly code: string = "not_found";
}

/** There is no such database. Create it first. */
export class DatabaseUnknown extends OncewardError {
  static override readonly named: string = "DatabaseUnknown";
  static override readonly code: string = "database_unknown";
}

/** A name is 1 to 63 characters: small letters, digits, - and _; it begins with a letter or a digit. */
export class NameInvalid extends OncewardError {
  static override readonly named: string = "NameInvalid";
  static override readonly code: string = "name_invalid";
}

/** The engine is closing and takes no more work. Nothing was run; send it again with the same key. */
export class EngineClosed extends OncewardError {
  static override readonly named: string = "EngineClosed";
  static override readonly code: string = "engine_closed";
  static override readonly fault: Fault = "store";
  static override readonly retry: RetryAdvice = "same-key";
}

/** This reference was booked before with something else. A different delta needs a reference of its own. */
export class ReferenceReused extends OncewardError {
  static override readonly named: string = "ReferenceReused";
  static override readonly code: string = "reference_reused";
  static override readonly retry: RetryAdvice = "new-key";
}

/** The period is closed by a checkpoint, and takes no more deltas. */
export class PeriodClosed extends OncewardError {
  static override readonly named: string = "PeriodClosed";
  static override readonly code: string = "period_closed";
}

/** The running period was closed before its end. Send it again, unchanged, when the next one has begun. */
export class PeriodNotOpen extends OncewardError {
  static override readonly named: string = "PeriodNotOpen";
  static override readonly code: string = "period_not_open";
  static override readonly retry: RetryAdvice = "same-key";
}

/** There is no such customer in this ledger. */
export class CustomerUnknown extends OncewardError {
  static override readonly named: string = "CustomerUnknown";
  static override readonly code: string = "customer_unknown";
}

/** There is no such delta in this ledger. */
export class DeltaUnknown extends OncewardError {
  static override readonly named: string = "DeltaUnknown";
  static override readonly code: string = "delta_unknown";
}

/** The ledger's rule refuses this delta. Nothing was booked. */
export class DeltaRefused extends OncewardError {
  static override readonly named: string = "DeltaRefused";
  static override readonly code: string = "delta_refused";
}

/** There is nothing verified that a receipt could be for. */
export class NothingToReceipt extends OncewardError {
  static override readonly named: string = "NothingToReceipt";
  static override readonly code: string = "receipt_unknown";
}

/** Deltas of this period still wait for their verification. Ask again later. */
export class VerificationPending extends OncewardError {
  static override readonly named: string = "VerificationPending";
  static override readonly code: string = "verification_pending";
  static override readonly retry: RetryAdvice = "same-key";
}

/** Why a statement was not done. */
export type SqlKind =
  | "uniqueViolation"
  | "notNull"
  | "foreignKey"
  | "check"
  | "unknownTable"
  | "unknownColumn"
  | "syntax"
  | "type"
  | "locked"
  | "tooManyParams"
  | "wrongParams"
  | "readonly"
  | "timeout"
  | "tooLarge"
  | "denied"
  | "notInTransaction"
  | "full"
  | "invalid";

/** All of them, for whoever reads a kind from elsewhere. The last is for any other reason, which the message gives. */
export const SQL_KINDS: readonly SqlKind[] = [
  ...([
    "uniqueViolation",
    "notNull",
    "foreignKey",
    "check",
    "unknownTable",
    "unknownColumn",
    "syntax",
    "type",
  ] as const),
  ...(["locked", "tooManyParams", "wrongParams", "readonly", "timeout", "tooLarge", "denied"] as const),
  ...(["notInTransaction", "full", "invalid"] as const),
];

/** Kinds that may pass: the same statement with the same key may succeed later. */
const PASSING: readonly SqlKind[] = ["locked", "timeout", "full"];

/** What an `SqlError` knows besides. */
export interface SqlErrorDetails extends ErrorDetails {
  table?: string | undefined;
  column?: string | undefined;
  constraint?: string | undefined;
  hint?: string | undefined;
  statement?: number | undefined;
}

/** The statement was not done, and nothing of its request was written. `kind` says why; the key is free. */
export class SqlError extends OncewardError {
  static override readonly named: string = "SqlError";
  static override readonly code: string = "sql_error";
  readonly kind: SqlKind;
  declare readonly table: string | undefined;
  declare readonly column: string | undefined;
  declare readonly constraint: string | undefined;
  /** What to do next. */
  declare readonly hint: string | undefined;
  /** The number of the statement in its batch, from 0. */
  declare readonly statement: number | undefined;

  constructor(kind: SqlKind, message: string, details: SqlErrorDetails = {}) {
    const passes = PASSING.includes(kind);
    super(message, {
      ...details,
      retry: passes ? "same-key" : "never",
      fault: passes && kind !== "timeout" ? "store" : "caller",
    });
    this.kind = kind;
    const { table, column, constraint, hint, statement } = details;
    for (const [name, value] of Object.entries({ table, column, constraint, hint, statement })) {
      if (value !== undefined) Object.defineProperty(this, name, { value, enumerable: true });
    }
  }
}

/** A class whose errors are made of a message. */
export type ErrorClass = { new (message: string, details?: ErrorDetails): OncewardError } & Pick<
  typeof OncewardError,
  "named" | "code" | "fault" | "retry"
>;

/** The classes by code; `SqlError` needs a kind and is not among them. */
export const ERRORS_BY_CODE: ReadonlyMap<string, ErrorClass> = new Map(
  (
    [
      ...[ConfigurationError, KeyInvalid, KeyMissing, RequestInvalid, KeyReused, InFlight, InDoubt, Expired],
      ...[NotReplayable, SealKeyMissing, StoreUnavailable, StoreContended, StoreFull],
      ...[OutcomeUnknown, RateLimitError, ServiceUnreachable, PlanIncomplete, AmbiguousIdentity],
      ...[BodyTooLarge, UploadTimeout, TokenInvalid, Forbidden, BalanceExhausted, QuotaExceeded, ResourceNotFound],
      ...[DatabaseUnknown, NameInvalid, EngineClosed, ReferenceReused, PeriodClosed, PeriodNotOpen, CustomerUnknown],
      ...[DeltaUnknown, DeltaRefused, NothingToReceipt, VerificationPending],
    ] as ErrorClass[]
  ).map((kind) => [kind.code, kind]),
);
