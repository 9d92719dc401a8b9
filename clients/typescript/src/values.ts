/**
 * Values between JavaScript and SQL, without loss in either direction: bytes are `{"base64": ...}` on the wire. Whole
 * numbers beyond 2^53 are `bigint` here; they are sent with every digit, and come as `{"integer": "..."}`.
 */

import { base64, fromBase64 } from "./canonical.js";
import { ConfigurationError } from "./errors.js";

/** A value of a row. A whole number that a `number` would round is a `bigint`. */
export type SqlValue = null | number | bigint | string | Uint8Array;

/** A value to be filled in: as in a row, and booleans (1 and 0) and buffers. */
export type SqlParam = SqlValue | boolean | ArrayBuffer;

/** The values of a statement: a list for `?`, or an object for `:name`. */
export type SqlParams = readonly SqlParam[] | Readonly<Record<string, SqlParam>>;

const INTEGER_MAX = 2n ** 63n - 1n;
const INTEGER_MIN = -(2n ** 63n);
/** From here on ECMAScript writes a number with an exponent, and the service reads a REAL. */
const EXPONENT_FROM = 1e21;

/** Parameters as the wire has them. */
export function paramsToJson(params: SqlParams | undefined | null): unknown {
  if (params === undefined || params === null) return null;
  if (Array.isArray(params)) return Array.from(params as unknown[], (value, index) => toJson(value, `${index}`));
  const parent: unknown = typeof params === "object" ? Object.getPrototypeOf(params) : undefined;
  if (parent !== null && (parent === undefined || Object.getPrototypeOf(parent) !== null)) {
    throw new ConfigurationError("params must be an array of values or an object by name; nothing was sent");
  }
  return Object.fromEntries(Object.entries(params).map(([name, value]) => [name, toJson(value, name)]));
}

function toJson(value: unknown, where: string): unknown {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") return checkedNumber(value, where);
  if (typeof value === "bigint") {
    if (value < INTEGER_MIN || value > INTEGER_MAX)
      throw refused(where, "is a whole number beyond 64 bits; send it as text");
    return value; // Written as a number with every digit, as Python writes it.
  }
  if (value instanceof Uint8Array) return { base64: base64(value) };
  if (value instanceof ArrayBuffer) return { base64: base64(new Uint8Array(value)) };
  if (value === undefined)
    throw refused(where, "is undefined; send null, or leave it out together with its placeholder");
  if (value instanceof Date)
    throw refused(where, "is a Date, and SQL has several spellings of one; send text: toISOString()");
  throw refused(
    where,
    "has no place in SQL; send null, a number, a bigint, text or bytes, and arrays and objects as JSON text",
  );
}

function checkedNumber(value: number, where: string): number {
  if (!Number.isFinite(value)) throw refused(where, "is not a finite number; send null");
  const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < EXPONENT_FROM;
  if (isRounded) throw refused(where, "is a whole number beyond 2^53, which may have lost digits; send a bigint");
  return value;
}

/** A value of a response as JavaScript has it. */
export function valueFromJson(value: unknown): SqlValue {
  if (typeof value === "object" && value !== null) {
    const { base64: blob, integer } = value as { base64?: unknown; integer?: unknown };
    if (typeof blob === "string") return fromBase64(blob);
    if (typeof integer === "string") return BigInt(integer);
  }
  return value as SqlValue;
}

function refused(where: string, why: string): ConfigurationError {
  return new ConfigurationError(`parameter ${where.slice(0, 100)} ${why}. Nothing was sent`);
}
