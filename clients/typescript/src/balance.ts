/**
 * `Balance`: the tenant's balance ledger. Deltas are booked once, however often they are sent.
 */

import { plainText } from "./canonical.js";
import type { Ask, CallOptions } from "./client.js";
import { withoutBody } from "./database.js";
import { ConfigurationError, KeyMissing, OncewardError, RequestInvalid } from "./errors.js";
import { type Environment, environmentKey } from "./keys.js";
import {
  type BookedBatch,
  type Checkpoint,
  type Delta,
  type DeltaOptions,
  type Derived,
  type Gaps,
  type NewDelta,
  type Receipt,
  deltaDocument,
  readBatch,
  readCheckpoint,
  readDelta,
  readDerived,
  readGaps,
  readReceipt,
} from "./ledger.js";
import type { Amount } from "./amounts.js";
import type { OutgoingRequest } from "./retry.js";

const BALANCE = "/api/v1/balance";
const BATCH_MAX = 100;

/** The options of an `emit`: how the delta is named and what belongs to it, and how it is sent. */
export interface EmitOptions extends DeltaOptions, CallOptions {
  /** The key of the request. Without one, the reference is its key. */
  idempotencyKey?: string;
}

/** The tenant's balance ledger. */
export class Balance {
  readonly #ask: Ask;
  readonly #environment: Environment;

  constructor(ask: Ask, environment: Environment) {
    [this.#ask, this.#environment] = [ask, environment];
  }

  /**
   * Book one delta: signed, exact, not zero. Sent again with the same reference, it returns what was booked
   * (`duplicate`); with another amount it throws `ReferenceReused`. Without reference and key it is not sent.
   */
  async emit(customer: string, delta: Amount, reason: string, options: EmitOptions = {}): Promise<Delta> {
    const { referenceId, metadata, corrects, period } = options;
    const key = this.#key(options);
    const made = { customer, delta, reason, referenceId, metadata, corrects, period };
    const document = this.#named(made, key);
    return this.#ask(this.#post("/delta", document, key, referenceId), readDelta, options);
  }

  /** Book up to 100 deltas in one transaction; one that is refused leaves the others booked, and says why. */
  async emitMany(
    deltas: Iterable<NewDelta>,
    options: CallOptions & { idempotencyKey?: string } = {},
  ): Promise<BookedBatch> {
    const key = this.#key(options);
    const documents = Array.from(deltas, (one, index) => this.#named(one, key, `deltas[${index}]: `));
    if (documents.length < 1 || documents.length > BATCH_MAX) {
      throw new RequestInvalid(
        `the batch has ${documents.length} deltas, and 1 to ${BATCH_MAX} are taken. Send several batches; nothing was sent`,
      );
    }
    return this.#ask(this.#post("/delta/batch", { deltas: documents }, key), readBatch, options);
  }

  /** The balance now, or at the end of a period. On demand, on a schedule, before a bill; not after every emit. */
  async derive(customer: string, options: CallOptions & { period?: string } = {}): Promise<Derived> {
    return this.#ask(get("derive", customer, { period: options.period }), readDerived, options);
  }

  /** The receipt of a delta or of a closed period: the same one every time. */
  async receipt(
    customer: string,
    options: CallOptions & ({ referenceId: string; period?: never } | { period: string; referenceId?: never }),
  ): Promise<Receipt> {
    const { referenceId, period } = options;
    if ((referenceId === undefined) === (period === undefined)) {
      throw new ConfigurationError("a receipt is for a delta or for a period: pass either referenceId or period");
    }
    return this.#ask(get("receipt", customer, { referenceId, period }), readReceipt, options);
  }

  /**
   * Close a customer's period (`2026-11`), once whatever the key; one that still runs is marked, and stays open.
   * `close: true` closes it before its end: until the next period begins, deltas are refused.
   */
  async checkpoint(
    customer: string,
    period: string,
    options: CallOptions & { close?: boolean; idempotencyKey?: string } = {},
  ): Promise<Checkpoint> {
    const key = this.#key(options);
    const document = { customerId: customer, period, close: options.close };
    return this.#ask(this.#post("/checkpoint", document, key), readCheckpoint, options);
  }

  /** One delta, by the id that the service gave it. */
  async delta(id: string, options: CallOptions = {}): Promise<Delta> {
    return this.#ask(get("delta", id, {}), readDelta, options);
  }

  /** Numbers that are missing among a customer's deltas: there are none, or somebody deleted rows. */
  async gaps(customer: string, options: CallOptions = {}): Promise<Gaps> {
    return this.#ask(get("gaps", customer, {}), readGaps, options);
  }

  #key(options: { idempotencyKey?: unknown; referenceId?: unknown }): string | undefined {
    for (const name of ["idempotencyKey", "referenceId"] as const) {
      // Somebody meant to give one, and has none.
      if (name in options && (options[name] === undefined || options[name] === null)) {
        throw new KeyMissing(
          `${name} is there, but ${String(options[name])}; pass text, or leave the option out. Nothing was sent`,
        );
      }
    }
    return options.idempotencyKey === undefined ? undefined : environmentKey(this.#environment, options.idempotencyKey);
  }

  #named(made: NewDelta, key: string | undefined, where = ""): Record<string, unknown> {
    try {
      if (made.referenceId === undefined && key === undefined) {
        throw new KeyMissing(
          "the delta has no reference and no key, and a retry would book it twice. Pass referenceId, made from the event " +
            "itself (see Reference); nothing was sent",
        );
      }
      return deltaDocument(made, this.#environment);
    } catch (error) {
      if (where !== "" && error instanceof OncewardError) error.message = where + error.message;
      throw error;
    }
  }

  /** Without a key these name themselves, for good: by references, or by the period. */
  #post(path: string, document: unknown, key: string | undefined, name?: string): OutgoingRequest {
    return {
      method: "POST",
      path: BALANCE + path,
      headers: { "Content-Type": "application/json", ...(key === undefined ? {} : { "Idempotency-Key": key }) },
      body: plainText(document),
      repeatable: true,
      key: key ?? name,
    };
  }
}

function get(verb: string, what: unknown, query: Readonly<Record<string, string | undefined>>): OutgoingRequest {
  if (typeof what !== "string" || what === "" || what === "." || what === "..") {
    throw new ConfigurationError(`${verb} needs an id: text that is not empty`);
  }
  const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
  const encoded = new URLSearchParams(given).toString();
  return withoutBody("GET", `${BALANCE}/${verb}/${encodeURIComponent(what)}${encoded === "" ? "" : `?${encoded}`}`);
}
