/**
 * One value, one spelling: the bytes that a request is compared by (RFC 8785), the same as the Python library writes.
 *
 *     value                          form
 *     -----------------------------  --------------------------------------------------------------
 *     null, boolean, string, array   RFC 8785; Unicode normal forms stay different
 *     number                         RFC 8785: as ECMAScript writes it; -0 is `0`; NaN and infinities are refused
 *     bigint                         every digit; more than 4000 are refused
 *     object, Map                    names in UTF-16 code unit order; a member that is undefined is left out
 *     Date                           string in UTC: "2026-01-31T09:30:00Z", six digits of fraction if any
 *     Uint8Array, ArrayBuffer        string, base64url without padding
 *     Set                            array, sorted by the elements' forms
 *     lone surrogates, cycles, more than 256 levels, undefined in an array, instances of classes: refused
 */

import { RequestInvalid } from "./errors.js";

/** Levels of objects and arrays. */
export const DEPTH_MAX = 256;
const DIGITS_MAX = 4000;
const STEPS_SHOWN = 12;
const NAME_CHARACTERS_SHOWN = 40;
const FLATTEN = "flatten it, break the cycle, or send the deep part as a string";
const HALF = "half of a character in it (a lone surrogate); decode the text again, or send its bytes";
const LONE_SURROGATE = /\p{Surrogate}/u;
const encoder = new TextEncoder();

/** A value without a canonical form; the path is filled on the way out, innermost step first. */
class NoForm extends Error {
  readonly path: (string | number)[] = [];
}

/** The canonical bytes of a value. Throws `RequestInvalid`, naming the path, if it has none. */
export function canonical(value: unknown): Uint8Array {
  return encoder.encode(canonicalText(value));
}

/** The same as text. */
export function canonicalText(value: unknown): string {
  return written(value, false);
}

/** Plain JSON data in canonical form; what only `canonical` has a form for (dates, bytes, sets) is refused. */
export function plainText(value: unknown): string {
  return written(value, true);
}

function written(value: unknown, plain: boolean): string {
  try {
    return write(value, DEPTH_MAX, plain);
  } catch (error) {
    if (!(error instanceof NoForm)) throw error;
    const shown = error.path.slice(-STEPS_SHOWN).reverse().map(pathStep).join("");
    throw new RequestInvalid(`$${shown}${error.path.length > STEPS_SHOWN ? "..." : ""} ${error.message}`);
  }
}

function pathStep(step: string | number): string {
  if (typeof step === "number" || step === "*") return `[${step}]`;
  const isName = /^[A-Za-z_$][\w$]*$/.test(step) && step.length <= NAME_CHARACTERS_SHOWN;
  return isName ? `.${step}` : `[${JSON.stringify(step.slice(0, NAME_CHARACTERS_SHOWN))}]`;
}

function write(value: unknown, depth: number, plain: boolean): string {
  if (value === null) return "null";
  switch (typeof value) {
    case "string":
      if (LONE_SURROGATE.test(value)) throw new NoForm(`is text with ${HALF}`);
      return JSON.stringify(value);
    case "boolean":
      return value ? "true" : "false";
    case "number":
      if (!Number.isFinite(value)) throw new NoForm("is not a finite number; leave the member out or pass null");
      return String(value === 0 ? 0 : value);
    case "bigint":
      return writeBigInt(value);
    case "object":
      return writeObject(value, depth, plain);
    default:
      throw new NoForm(
        `is ${value === undefined ? "undefined" : `a ${typeof value}`}, which has no form; pass plain data`,
      );
  }
}

function writeBigInt(value: bigint): string {
  const digits = value.toString();
  if (digits.replace("-", "").length > DIGITS_MAX) {
    throw new NoForm(`is a whole number of more than ${DIGITS_MAX} digits; pass it as text or as bytes`);
  }
  return digits;
}

function writeObject(value: object, depth: number, plain: boolean): string {
  if (!plain) {
    if (value instanceof Date) return writeDate(value);
    if (value instanceof Uint8Array) return `"${base64Url(value)}"`;
    if (value instanceof ArrayBuffer) return `"${base64Url(new Uint8Array(value))}"`;
  }
  if (depth === 0) throw new NoForm(`is nested more than ${DEPTH_MAX} levels deep, or contains itself; ${FLATTEN}`);
  if (Array.isArray(value)) {
    // Not `map`, which leaves holes out.
    return `[${Array.from(value, (item, index) => inside(item, index, depth, plain)).join(",")}]`;
  }
  if (!plain && value instanceof Set) {
    return `[${Array.from(value, (item) => inside(item, "*", depth, plain))
      .sort(byCodePoint)
      .join(",")}]`;
  }
  return writeMembers(members(value, plain), depth, plain);
}

function members(value: object, plain: boolean): [unknown, unknown][] {
  if (!plain && value instanceof Map) return [...value.entries()];
  const parent: unknown = Object.getPrototypeOf(value);
  const isRecord = parent === null || Object.getPrototypeOf(parent) === null;
  if (!isRecord || Symbol.iterator in value) {
    const name = (value as { constructor?: { name?: string } }).constructor?.name ?? "value of a class";
    throw new NoForm(`is a ${name}, which has no form; pass its identifying fields as a plain object, or its text`);
  }
  return Object.entries(value);
}

function writeMembers(pairs: [unknown, unknown][], depth: number, plain: boolean): string {
  const kept = pairs.filter(([, member]) => member !== undefined) as [string, unknown][];
  for (const [name] of kept) {
    if (typeof name !== "string") throw new NoForm(`has a member name that is a ${typeof name}; names are text`);
    if (LONE_SURROGATE.test(name)) throw new NoForm(`has a member name with ${HALF}`);
  }
  // The comparison of strings is by UTF-16 code units, which is what RFC 8785 asks for.
  kept.sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${kept.map(([name, member]) => `${JSON.stringify(name)}:${inside(member, name, depth, plain)}`).join(",")}}`;
}

function inside(value: unknown, step: string | number, depth: number, plain: boolean): string {
  try {
    return write(value, depth - 1, plain);
  } catch (error) {
    if (error instanceof NoForm) error.path.push(step);
    throw error;
  }
}

function writeDate(value: Date): string {
  const year = value.getUTCFullYear();
  if (Number.isNaN(year) || year < 1 || year > 9999) {
    throw new NoForm("is a Date that is not valid, or not between the years 1 and 9999; pass it as text");
  }
  const text = value.toISOString();
  return value.getUTCMilliseconds() === 0 ? `"${text.slice(0, 19)}Z"` : `"${text.slice(0, 23)}000Z"`;
}

/** By code points: that is the order of the UTF-8 bytes, and not that of UTF-16. */
function byCodePoint(one: string, other: string): number {
  const [left, right] = [Array.from(one), Array.from(other)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = left[i]!.codePointAt(0)! - right[i]!.codePointAt(0)!;
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

/** Bytes as base64. */
export function base64(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    binary += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return btoa(binary);
}

/** Base64 as bytes. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function base64Url(bytes: Uint8Array): string {
  return base64(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
