/**
 * How a key is made from values: `recipe("charge:{order_id}")`. Two different calls never meet in one key: characters of
 * a value that also stand between two fields are percent-escaped, and so is `%` itself.
 */

import { ConfigurationError, KeyInvalid } from "./errors.js";
import { KEY_CHARACTERS_MAX, keyDigest, mint } from "./keys.js";

/** What a field of a recipe may be. */
export type KeyPart = string | number | bigint;

/** Makes keys. */
export interface Recipe {
  /** The names that it needs. */
  readonly fields: readonly string[];
  /** The key for these values. */
  key(values: Readonly<Record<string, KeyPart>>): string;
}

const FIELD = /\{\{|\}\}|\{([^{}]*)\}|[{}]/g;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const encoder = new TextEncoder();

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));
const TIME_OR_ATTEMPT = words(
  "time timestamp ts now utcnow today datetime current_time attempt attempts attempt_number attempt_count " +
    "retry retries retry_count retry_number tries try_count",
);
const MADE_AFRESH = words(
  "random rand randint randbits nonce uuid uuid1 uuid4 uuid7 guid request_id trace_id span_id traceparent",
);

/** Declare how a key is made. Fields that differ between attempts (`timestamp`, `attempt`, `uuid`) are refused. */
export function recipe(template: string): Recipe {
  const steps: [literal: string, name: string][] = [];
  let [literal, at] = ["", 0];
  for (const found of template.matchAll(FIELD)) {
    literal += template.slice(at, found.index);
    at = found.index + found[0].length;
    const name = found[1];
    if (name === undefined) {
      if (found[0].length === 1) throw refused(template, "has a brace without its other half; write {{ for a brace");
      literal += found[0][0]!;
    } else {
      checkField(template, name);
      steps.push([literal, name]);
      literal = "";
    }
  }
  const end = literal + template.slice(at);
  const between = steps.slice(1).map(([separator]) => separator);
  checkLiterals(template, steps, end, between);
  const escaped = new Set(["%", ...between.join("")]);
  const fields = [...new Set(steps.map(([, name]) => name))];
  return Object.freeze({
    fields,
    key: (values: Readonly<Record<string, KeyPart>>) => {
      const made =
        steps.map(([before, name]) => before + escapedText(spelled(name, values), escaped, name)).join("") + end;
      if (made.length <= KEY_CHARACTERS_MAX) return made;
      throw new KeyInvalid(
        `the recipe ${template} gives a key of ${made.length} characters (digest ${keyDigest(made)}), and ` +
          `${KEY_CHARACTERS_MAX} is the limit; it is never cut to fit: use shorter ids, or derive(...)`,
      );
    },
  });
}

function checkField(template: string, name: string): void {
  if (!NAME.test(name)) throw refused(template, "has a field that is not a plain name; name a value");
  const plain = name
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1_$2")
    .toLowerCase();
  const isUnstable = TIME_OR_ATTEMPT.has(plain) || MADE_AFRESH.has(plain);
  if (isUnstable) {
    const why = TIME_OR_ATTEMPT.has(plain) ? "differs on every attempt" : "is usually made afresh on every attempt";
    throw new ConfigurationError(
      `${name} cannot be part of a key: it ${why}, so that a retry would be a new operation; use what the operation is ` +
        "about, such as an order's id, or rename it if it is stored with the operation and stays the same",
    );
  }
}

function checkLiterals(template: string, steps: [string, string][], end: string, between: string[]): void {
  if (steps.length === 0)
    throw refused(template, "has no field, so every call would be one operation; name what tells operations apart");
  if (between.includes("")) throw refused(template, "has two fields side by side; put a separator between, as in :");
  if (between.some((one) => one.includes("%")))
    throw refused(template, "has % between two fields, which escapes values; use : instead");
  const literals = steps.map(([before]) => before).join("") + end;
  if (!/^[\x21-\x7e]*$/.test(literals))
    throw refused(template, "has characters that no key may have; use visible ASCII");
  if (literals.length + steps.length > KEY_CHARACTERS_MAX)
    throw refused(template, "leaves no room for values; shorten it");
}

function refused(template: string, why: string): ConfigurationError {
  return new ConfigurationError(`the recipe ${JSON.stringify(template.slice(0, 300))} ${why}`);
}

function spelled(name: string, values: Readonly<Record<string, unknown>>): string {
  const value = Object.hasOwn(values, name) ? values[name] : undefined;
  if (value === undefined) throw new KeyInvalid(`the recipe needs ${name}, and there is no such value; pass it`);
  if (typeof value === "bigint" || (typeof value === "number" && Number.isSafeInteger(value)))
    return BigInt(value).toString();
  if (typeof value === "number")
    throw new KeyInvalid(`${name} is a number that is not whole; pass text, or whole cents`);
  if (typeof value !== "string")
    throw new KeyInvalid(`${name} is a ${typeof value}, which has no one spelling; pass its id`);
  if (value === "") throw new KeyInvalid(`${name} is empty; a key needs something to tell this operation from others`);
  return value;
}

function escapedText(text: string, escaped: ReadonlySet<string>, name: string): string {
  if (/\p{Surrogate}/u.test(text)) {
    throw new KeyInvalid(`${name} has half of a character in it (a lone surrogate); decode it again`);
  }
  return Array.from(text, (character) => {
    if (/^[\x21-\x7e]$/.test(character) && !escaped.has(character)) return character;
    return Array.from(
      encoder.encode(character),
      (octet) => `%${octet.toString(16).toUpperCase().padStart(2, "0")}`,
    ).join("");
  }).join("");
}

const PARTS = recipe("{vendor}:{operation}:{bucket}:{identifier}");

/** References of the shape `vendor:operation:bucket:identifier`. A colon in a part is escaped. */
export class Reference {
  readonly vendor: string;
  readonly operation: string;
  readonly bucket: string;

  constructor(vendor: string, operation: string, bucket: string) {
    [this.vendor, this.operation, this.bucket] = [vendor, operation, bucket];
    this.of("x"); // Refused now, and not at the first event.
  }

  /** The reference with this identifier: the same whenever that is. */
  of(identifier: KeyPart): string {
    return PARTS.key({ vendor: this.vendor, operation: this.operation, bucket: this.bucket, identifier });
  }

  /** A reference that nobody else has. A crash before it is stored loses it. */
  new(): string {
    return this.of(mint());
  }
}
