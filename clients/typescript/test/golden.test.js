/** The same bytes, keys, waits and verdicts as Python: both read `tests/core/golden`, one file for both languages. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import * as onceward from "onceward";
import { checkKey, environmentKey } from "../dist/keys.js";
import { nextWait } from "../dist/retry.js";
import { environmentOfToken } from "../dist/token.js";
import { valueFromJson } from "../dist/values.js";
import { retryHints, verdictOnResponse } from "../dist/verdicts.js";

const golden = (name) =>
  JSON.parse(readFileSync(new URL(`../../../tests/core/golden/${name}`, import.meta.url), "utf8"));
const shared = golden("shared.json");
const vectors = golden("vectors.json");

/** A value of the file as JavaScript has it. */
function typed(value) {
  if (Array.isArray(value)) return value.map(typed);
  if (typeof value !== "object" || value === null) return value;
  switch (value.$) {
    case "bigint":
      return BigInt(value.text);
    case "number":
      return Number(value.text);
    case "bytes":
      return new Uint8Array(Buffer.from(value.hex, "hex"));
    case "date":
      return new Date(value.ms);
    case "set":
      return new Set(value.items.map(typed));
    case "nested":
      return Array.from({ length: value.levels - 1 }).reduce((inner) => [inner], []);
    default:
      return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, typed(member)]));
  }
}

function untyped(value) {
  if (value instanceof Uint8Array) return { $: "bytes", hex: Buffer.from(value).toString("hex") };
  return typeof value === "bigint" ? { $: "bigint", text: value.toString() } : value;
}

function orCode(compute) {
  try {
    return compute();
  } catch (error) {
    if (!(error instanceof onceward.OncewardError)) throw error;
    return { refused: error.code };
  }
}

const epoch = 0;
const compute = {
  canonical: ({ value }) => orCode(() => Buffer.from(onceward.canonical(typed(value))).toString("utf8")),
  input_hash: ({ value }) => onceward.inputHash(typed(value)),
  derive: ({ fields }) => orCode(() => onceward.derive({ ...fields, input: typed(fields.input) })),
  recipe: ({ template, values }) => orCode(() => onceward.recipe(template).key(typed(values))),
  key: ({ key, limit }) => orCode(() => checkKey(key, limit)),
  environment_key: ({ environment, key }) => orCode(() => environmentKey(environment, key)),
  amount: ({ value }) => orCode(() => onceward.formatAmount(onceward.parseAmount(typed(value)))),
  token: ({ text }) => orCode(() => environmentOfToken(text)),
  sql_value: ({ json }) => untyped(valueFromJson(json)),
  wait: ({ retries, chance, asked }) => nextWait(retries, chance, asked ?? undefined) / 1000,
  retry_hints: ({ headers, now }) => {
    const { wait = null, retry = null } = retryHints(new Headers(headers), now);
    return { wait, retry };
  },
  verdict: ({ status, code, headers }) => {
    const found = verdictOnResponse(status, code ?? undefined, new Headers(headers ?? {}), epoch);
    return [found.certainty, found.kind, found.action];
  },
  error: ({ code }) => {
    const error = new (onceward.ERRORS_BY_CODE.get(code))("x");
    assert.equal(error.constructor, onceward[error.name], "it is exported under its name");
    return { name: error.name, fault: error.fault, retry: error.retry };
  },
  sql_error: ({ kind }) => {
    const error = new onceward.SqlError(kind, "x");
    return { fault: error.fault, retry: error.retry };
  },
};

const near = (actual, expected) => Math.abs(actual - expected) <= 1e-9 * Math.max(1, expected);

describe("shared vectors", () => {
  for (const [part, list] of Object.entries(shared)) {
    test(`${part}: the same as Python`, () => {
      assert.ok(list.length > 0);
      for (const { gives, ...vector } of list) {
        const actual = compute[part](vector);
        if (part === "wait") assert.ok(near(actual, gives), `${JSON.stringify(vector)}: ${actual}, not ${gives}`);
        else assert.deepEqual(actual, gives, JSON.stringify(vector).slice(0, 300));
      }
    });
  }
  test("every part of the file is computed here", () => {
    assert.deepEqual(Object.keys(shared).sort(), Object.keys(compute).sort());
  });
  test("every error that has a code is in the file", () => {
    assert.deepEqual([...onceward.ERRORS_BY_CODE.keys()].sort(), shared.error.map(({ code }) => code).sort());
    assert.deepEqual([...onceward.SQL_KINDS].sort(), shared.sql_error.map(({ kind }) => kind).sort());
  });
});

describe("stored keys, which never change", () => {
  test("derive: the vectors of Python's own file", () => {
    for (const { fields, gives } of vectors.derive) assert.equal(onceward.derive(fields), gives);
  });
  test("derive_colon: the vectors of Python's own file", () => {
    for (const { fields, gives } of vectors.derive_colon) {
      const { worker_id, run_id, turn_seq, tool_name, canonical_input_hash } = fields;
      const named = { workerId: worker_id, runId: run_id, turnSeq: turn_seq, toolName: tool_name };
      assert.equal(onceward.deriveColon({ ...named, canonicalInputHash: canonical_input_hash }), gives);
    }
  });
  test("recipe: the vectors of Python's own file", () => {
    for (const { template, values, gives } of vectors.recipe)
      assert.equal(onceward.recipe(template).key(values), gives);
  });
  test("mint_from: the vectors of Python's own file", () => {
    for (const { bytes, gives } of vectors.mint_from) assert.equal(onceward.mintFrom(Buffer.from(bytes, "hex")), gives);
  });
});
