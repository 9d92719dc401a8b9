/**
 * Reads JSON without losing digits: a whole number that a `number` would round is a `bigint`.
 */

import { DEPTH_MAX } from "./canonical.js";

/** So many digits in a row, and not behind a point: there may be a number that is too large. The rest goes the fast way. */
const MANY_DIGITS = /(?:^|[^.0-9])[0-9]{16}/;

/** What JSON text says. Throws `SyntaxError` if it is not JSON. */
export function parseJson(text: string): unknown {
  return MANY_DIGITS.test(text) ? new ExactReader(text).read() : JSON.parse(text);
}

const BLANKS = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\]|\\.)*"/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const WORD = /true|false|null/y;

class ExactReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  read(): unknown {
    const value = this.#value(DEPTH_MAX + 1);
    this.#take(BLANKS);
    if (this.#at !== this.#text.length) throw this.#wrong();
    return value;
  }

  #value(depth: number): unknown {
    if (depth === 0) throw this.#wrong();
    this.#take(BLANKS);
    const next = this.#text[this.#at];
    if (next === "{") return this.#object(depth);
    if (next === "[") return this.#array(depth);
    if (next === '"') return this.#string();
    const number = this.#take(NUMBER);
    if (number !== null) return exactNumber(number);
    const word = this.#take(WORD);
    if (word === null) throw this.#wrong();
    return JSON.parse(word[0]);
  }

  #object(depth: number): object {
    const pairs: [string, unknown][] = [];
    for (let more = this.#opens("}"); more; more = this.#goesOn("}")) {
      this.#take(BLANKS);
      const name = this.#string();
      this.#take(BLANKS);
      this.#mark(":");
      pairs.push([name, this.#value(depth - 1)]);
    }
    return Object.fromEntries(pairs);
  }

  #array(depth: number): unknown[] {
    const values: unknown[] = [];
    for (let more = this.#opens("]"); more; more = this.#goesOn("]")) values.push(this.#value(depth - 1));
    return values;
  }

  /** After an opening bracket: whether there is something in it. */
  #opens(end: string): boolean {
    this.#at += 1;
    this.#take(BLANKS);
    const isEmpty = this.#text[this.#at] === end;
    if (isEmpty) this.#at += 1;
    return !isEmpty;
  }

  /** After a value: whether another one follows. */
  #goesOn(end: string): boolean {
    this.#take(BLANKS);
    const mark = this.#text[this.#at];
    if (mark !== "," && mark !== end) throw this.#wrong();
    this.#at += 1;
    return mark === ",";
  }

  #string(): string {
    const found = this.#take(STRING);
    if (found === null) throw this.#wrong();
    return JSON.parse(found[0]) as string;
  }

  #mark(character: string): void {
    if (this.#text[this.#at] !== character) throw this.#wrong();
    this.#at += 1;
  }

  #take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found !== null) this.#at = pattern.lastIndex;
    return found;
  }

  #wrong(): SyntaxError {
    return new SyntaxError(`this is not JSON, or nested too deeply, at character ${this.#at}`);
  }
}

function exactNumber(found: RegExpExecArray): number | bigint {
  const [text, fraction, exponent] = found;
  const number = Number(text);
  return fraction === undefined && exponent === undefined && !Number.isSafeInteger(number) ? BigInt(text) : number;
}
