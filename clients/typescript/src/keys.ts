/**
 * What may be a key, and keys that can be made again: the same call gives the same key, in any process and in either
 * language. A key never appears in an error: people put personal data into keys. A short digest does.
 */

import { canonical } from "./canonical.js";
import { ConfigurationError, KeyInvalid, KeyMissing } from "./errors.js";
import { hex, sha256, sha256Hex } from "./sha256.js";

/** The most characters of a key. */
export const KEY_CHARACTERS_MAX = 255;
/** Of a key, a plan or a step that goes with SQL. */
export const SQL_KEY_CHARACTERS_MAX = 200;

/** Which of the two worlds a token, a key or a client belongs to. */
export type Environment = "live" | "test";

const ENVIRONMENTS: readonly string[] = ["live", "test"];
const DERIVE_DOMAIN = "onceward/derive/1";
const VISIBLE = /^[\x21-\x7e]+$/;
const encoder = new TextEncoder();

/** The key, if it can be one: 1 to `limit` visible ASCII characters. Otherwise `KeyInvalid` or `KeyMissing`. */
export function checkKey(key: unknown, limit: number = KEY_CHARACTERS_MAX, what = "the key"): string {
  if (typeof key === "string" && key.length <= limit && VISIBLE.test(key)) return key;
  if (key === undefined || key === null || key === "") {
    const state = key === "" ? "is empty" : "is missing";
    throw new KeyMissing(`${what} ${state}; derive it from what the operation is about, for example charge:order-17`);
  }
  if (typeof key !== "string") {
    throw new KeyInvalid(
      `${what} is a ${typeof key} and must be a string; write it as text, the same on every attempt`,
    );
  }
  const facts = `(${key.length} characters, digest ${keyDigest(key)})`;
  if (key.length > limit) {
    throw new KeyInvalid(
      `${what} is longer than ${limit} characters ${facts}; it is never cut to fit: use fewer ingredients, or hash them ` +
        "with derive(...)",
    );
  }
  if (/[^\x00-\x7f]/.test(key)) {
    throw new KeyInvalid(
      `${what} has characters outside ASCII ${facts}; use an id instead of a name, or percent-encode it`,
    );
  }
  if (/[\x00-\x1f\x7f]/.test(key)) {
    throw new KeyInvalid(`${what} has control characters ${facts}; strip line ends and tabs before using it`);
  }
  throw new KeyInvalid(`${what} has blanks in it ${facts}; use visible characters only, for example - or :`);
}

/**
 * The environment in front of a key (`live:`, `test:`), so that the two can never meet. A key that already carries it is
 * left alone; one that carries the other is refused.
 */
export function environmentKey(environment: Environment, key: unknown): string {
  if (!ENVIRONMENTS.includes(environment)) throw new ConfigurationError("an environment is one of live, test");
  const [found, rest] = typeof key === "string" ? [key.split(":", 1)[0]!, key] : ["", ""];
  if (!rest.includes(":") || !ENVIRONMENTS.includes(found)) return `${environment}:${checkKey(key)}`;
  if (found !== environment) {
    throw new KeyInvalid(
      `the key belongs to the ${found} environment and this is ${environment} (digest ${keyDigest(rest)}); use a key of ` +
        "this environment, and none that begins with the other's name",
    );
  }
  return `${environment}:${checkKey(rest.slice(found.length + 1))}`;
}

/** What an error shows of a key. */
export function keyDigest(key: string): string {
  return sha256Hex(encoder.encode(key)).slice(0, 12);
}

/** What a tool call of an agent is known by. */
export interface ToolCallFields {
  /** Who runs it. */
  worker: string;
  run: string;
  /** Its number or name within the run: 3 and "3" are the same. */
  turn: number | bigint | string;
  tool: string;
  /** What it is asked for; counts by its canonical form. */
  input: unknown;
}

/** The key of one tool call: 64 hex digits, the same whenever the five fields are, here and in Python. */
export function derive(fields: ToolCallFields): string {
  const parts = [
    ...[checkedText("worker", fields.worker), checkedText("run", fields.run)],
    ...[checkedTurn("turn", fields.turn), checkedText("tool", fields.tool)],
  ];
  const pieces = [encoder.encode(DERIVE_DOMAIN), ...parts.map(lengthPrefixed), sha256(canonical(fields.input))];
  return sha256Hex(joined(pieces));
}

/** What an older key of a tool call is made of. */
export interface ColonFields {
  workerId: string;
  runId: string;
  turnSeq: number | bigint | string;
  toolName: string;
  /** From `inputHash`. */
  canonicalInputHash: string;
}

/** An older form of the same: SHA-256 of the five fields with colons between them. A colon in a field is refused. */
export function deriveColon(fields: ColonFields): string {
  const parts = [
    ["workerId", checkedText("workerId", fields.workerId)],
    ["runId", checkedText("runId", fields.runId)],
    ["turnSeq", checkedTurn("turnSeq", fields.turnSeq)],
    ["toolName", checkedText("toolName", fields.toolName)],
    ["canonicalInputHash", checkedText("canonicalInputHash", fields.canonicalInputHash)],
  ] as const;
  for (const [name, part] of parts) {
    if (part.includes(":")) {
      throw new KeyInvalid(`${name} has a colon in it, which this form cannot tell from its own; use derive(...)`);
    }
  }
  return sha256Hex(encoder.encode(parts.map(([, part]) => part).join(":")));
}

/** SHA-256 of a value's canonical form, as 64 hex digits: the same whatever the order of its members. */
export function inputHash(value: unknown): string {
  return sha256Hex(canonical(value));
}

/** A new random key, a UUID. Store it before the first send: nobody can make it again. */
export function mint(): string {
  const { crypto } = globalThis as { crypto?: Crypto };
  if (crypto === undefined) {
    throw new ConfigurationError("there is no crypto here; pass 16 random bytes to mintFrom, or use derive(...)");
  }
  return mintFrom(crypto.getRandomValues(new Uint8Array(16)));
}

/** 16 random bytes as a UUID of version 4. */
export function mintFrom(random16: Uint8Array): string {
  if (random16.length !== 16) {
    throw new ConfigurationError(`a UUID is made of 16 random bytes, not ${random16.length}`);
  }
  const octets = Uint8Array.from(random16);
  octets[6] = (octets[6]! & 0x0f) | 0x40;
  octets[8] = (octets[8]! & 0x3f) | 0x80;
  const digits = hex(octets);
  return [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)].join(
    "-",
  );
}

function checkedText(name: string, value: unknown): string {
  if (typeof value !== "string")
    throw new KeyInvalid(`${name} is a ${typeof value} and must be a string; pass the id as text`);
  if (value === "") {
    throw new KeyInvalid(`${name} is empty; without it, calls that differ only in their ${name} would share a key`);
  }
  if (/\p{Surrogate}/u.test(value)) {
    throw new KeyInvalid(`${name} has half of a character in it (a lone surrogate); decode it again`);
  }
  return value;
}

function checkedTurn(name: string, value: unknown): string {
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new KeyInvalid(`${name} is not a whole number that is exact; pass an integer, a bigint or text`);
  }
  if (typeof value !== "number" && typeof value !== "bigint") return checkedText(name, value);
  if (value < 0) throw new KeyInvalid(`${name} is negative; count turns from 0`);
  return BigInt(value).toString();
}

function lengthPrefixed(part: string): Uint8Array {
  const encoded = encoder.encode(part);
  const made = new Uint8Array(8 + encoded.length);
  new DataView(made.buffer).setBigUint64(0, BigInt(encoded.length));
  made.set(encoded, 8);
  return made;
}

function joined(pieces: Uint8Array[]): Uint8Array {
  const made = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    made.set(piece, at);
    at += piece.length;
  }
  return made;
}
