/**
 * What the ledger is sent and what it responds with. Amounts are exact decimals as text: no number can round them.
 */

import { type Amount, formatAmount, parseAmount } from "./amounts.js";
import { plainText } from "./canonical.js";
import { ConfigurationError, type OncewardError, RequestInvalid } from "./errors.js";
import { type Environment, environmentKey } from "./keys.js";
import { type Reader, errorFromCode } from "./responses.js";

/** Plain JSON data. Whole numbers of any size are bigints. */
export type Json =
  null | boolean | number | bigint | string | readonly Json[] | { readonly [name: string]: Json | undefined };

/** Plain JSON data by name. */
export type Metadata = { readonly [name: string]: Json | undefined };

/** What a delta may have besides customer, amount and reason. */
export interface DeltaOptions {
  /** Your own name for it, made of what it is about: booked once, however often it is sent. */
  referenceId?: string;
  metadata?: Metadata | undefined;
  /** The id of the delta that this one corrects. That one stays as it is. */
  corrects?: string | undefined;
  /** The month that it belongs to (`2026-11`); without it, the current one. */
  period?: string | undefined;
}

/** A delta to be booked. */
export interface NewDelta extends Omit<DeltaOptions, "referenceId"> {
  customer: string;
  delta: Amount;
  reason: string;
  referenceId?: string | undefined;
}

/** A delta as it is booked. */
export interface Delta {
  readonly id: string;
  readonly customer: string;
  /** Its number among the customer's deltas, from 1, without gaps. */
  readonly seq: number;
  /** An exact decimal: "-1", "12.5". */
  readonly delta: string;
  readonly reason: string;
  readonly referenceId: string | null;
  readonly metadata: Metadata | null;
  readonly corrects: string | null;
  readonly period: string;
  readonly bookedAt: Date;
  /** verified; queued: it does not count yet; failed: it never will. */
  readonly status: string;
  readonly failure: string | null;
  readonly hash: string;
  readonly previous: string;
  /** Whether the reference had been booked before: nothing was booked now. */
  readonly duplicate: boolean;
  /** Whether this is a replay of the first result under this key: nothing was booked now. */
  readonly replayed: boolean;
}

/** What one delta of a batch came to: a delta, or the error that it was refused with. */
export interface BookedItem {
  /** False for a duplicate and for a refusal. */
  readonly booked: boolean;
  readonly delta: Delta | null;
  readonly error: OncewardError | null;
}

/** What a batch came to, delta by delta, in the order of the call. */
export interface BookedBatch {
  readonly results: readonly BookedItem[];
  readonly booked: number;
  readonly duplicates: number;
  readonly refused: number;
  readonly replayed: boolean;
}

/** A closed period, or a mark in one that still runs. */
export interface Checkpoint {
  readonly id: string;
  readonly customer: string;
  readonly period: string;
  /** False: a mark. The period takes deltas as before. */
  readonly closed: boolean;
  readonly number: number | null;
  readonly seq: number | null;
  /** An exact decimal: at the end of the period; of a mark, so far. */
  readonly balance: string;
  readonly deltas: number;
  readonly root: string;
  readonly previous: string;
  readonly hash: string;
  readonly closedAt: Date | null;
  /** Closed before its end: what is refused from now on, and until when. */
  readonly refuses: string | null;
  readonly duplicate: boolean;
}

/** A balance, derived from verified deltas. */
export interface Derived {
  readonly customer: string;
  /** An exact decimal. */
  readonly balance: string;
  /** The id of the checkpoint that it started from; null: from the first delta. */
  readonly checkpoint: string | null;
  readonly deltas: number;
  /** Not counted: they wait for their verification. */
  readonly queued: number;
  readonly period: string | null;
  /** What the service advises about how often a balance is derived. */
  readonly advice: string | null;
}

/** A receipt: the same one, whenever and however often it is asked for. */
export interface Receipt {
  readonly id: string;
  readonly customer: string;
  readonly delta: Delta | null;
  readonly checkpoint: Checkpoint | null;
}

/** What is missing among a customer's numbers: pairs of the first and the last of each gap. */
export interface Gaps {
  readonly customer: string;
  readonly lastSeq: number;
  readonly gaps: readonly (readonly [first: number, last: number])[];
}

const CUSTOMER = /^[A-Za-z0-9_.:-]{1,128}$/;
const REASON_CHARACTERS_MAX = 500;
const METADATA_BYTES_MAX = 4096;

/** The document of a delta that is sent: always the same. Refused if it cannot be booked. */
export function deltaDocument(made: NewDelta, environment: Environment): Record<string, unknown> {
  const { customer, delta, reason, referenceId, metadata, corrects, period } = made;
  if (typeof customer !== "string" || !CUSTOMER.test(customer)) {
    throw refused("customer is not valid: pass 1 to 128 of A-Z, a-z, 0-9, '_', '.', ':' and '-'");
  }
  if (typeof reason !== "string" || reason === "" || Array.from(reason).length > REASON_CHARACTERS_MAX) {
    throw refused(`reason is not valid: pass text of 1 to ${REASON_CHARACTERS_MAX} characters`);
  }
  if (referenceId !== undefined) environmentKey(environment, referenceId);
  if (metadata !== undefined) checkMetadata(metadata);
  const amount = formatAmount(parseAmount(delta));
  return { customerId: customer, delta: amount, reason, referenceId, metadata, corrects, period };
}

function checkMetadata(metadata: unknown): void {
  if (typeof metadata !== "object" || metadata === null || Array.isArray(metadata)) {
    throw new ConfigurationError("metadata must be an object of plain data by name; nothing was sent");
  }
  const size = new TextEncoder().encode(plainText(metadata)).length;
  if (size > METADATA_BYTES_MAX) throw refused(`metadata has ${size} bytes; at most ${METADATA_BYTES_MAX} are taken`);
}

function refused(why: string): RequestInvalid {
  return new RequestInvalid(`${why}; nothing was sent`);
}

// --- results ---

interface DeltaDocument extends Omit<Delta, "customer" | "bookedAt" | "replayed"> {
  customerId: string;
  bookedAt: string;
}

interface CheckpointDocument extends Omit<Checkpoint, "customer" | "closedAt"> {
  customerId: string;
  closedAt: string | null;
}

export const readDelta: Reader<Delta> = (found: DeltaDocument, replayed) => deltaOf(found, replayed);

function deltaOf(found: DeltaDocument, replayed: boolean): Delta {
  const { customerId, bookedAt, ...rest } = found;
  return { ...rest, customer: customerId, delta: text(found.delta), bookedAt: date(bookedAt), replayed };
}

export const readBatch: Reader<BookedBatch> = (
  found: {
    results: { booked: boolean; delta: DeltaDocument | null; code: string | null; detail: string | null }[];
    booked: number;
    duplicates: number;
    refused: number;
  },
  replayed,
) => ({
  results: found.results.map(({ booked, delta, code, detail }) => ({
    booked,
    delta: delta === null ? null : deltaOf(delta, replayed),
    error: code === null ? null : errorFromCode(code, detail ?? code),
  })),
  booked: found.booked,
  duplicates: found.duplicates,
  refused: found.refused,
  replayed,
});

export const readCheckpoint: Reader<Checkpoint> = (found: CheckpointDocument) => checkpointOf(found);

function checkpointOf(found: CheckpointDocument): Checkpoint {
  const { customerId, closedAt, ...rest } = found;
  return {
    ...rest,
    customer: customerId,
    balance: text(found.balance),
    closedAt: closedAt === null ? null : date(closedAt),
  };
}

export const readDerived: Reader<Derived> = (
  found: Omit<Derived, "customer" | "checkpoint" | "advice"> & {
    customerId: string;
    checkpoint: { id: string } | null;
  },
  _replayed,
  headers,
) => ({
  customer: found.customerId,
  balance: text(found.balance),
  checkpoint: found.checkpoint === null ? null : found.checkpoint.id,
  deltas: found.deltas,
  queued: found.queued,
  period: found.period,
  advice: headers.get("onceward-advice"),
});

export const readReceipt: Reader<Receipt> = (found: {
  id: string;
  customerId: string;
  delta: DeltaDocument | null;
  checkpoint: CheckpointDocument | null;
}) => ({
  id: found.id,
  customer: found.customerId,
  delta: found.delta === null ? null : deltaOf(found.delta, false),
  checkpoint: found.checkpoint === null ? null : checkpointOf(found.checkpoint),
});

export const readGaps: Reader<Gaps> = (found: {
  customerId: string;
  lastSeq: number;
  gaps: { first: number; last: number }[];
}) => ({
  customer: found.customerId,
  lastSeq: found.lastSeq,
  gaps: found.gaps.map(({ first, last }) => [first, last] as const),
});

function text(value: unknown): string {
  if (typeof value !== "string") throw new TypeError("an amount is text");
  return value;
}

function date(value: string): Date {
  const made = new Date(value);
  if (Number.isNaN(made.getTime())) throw new TypeError("this is not a date");
  return made;
}
