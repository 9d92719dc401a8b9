/** What is decided before anything is sent, how long is waited, and what is never shown. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { Client, ConfigurationError, KeyMissing, OncewardError, canonicalText, mint } from "onceward";
import { parseJson } from "../dist/json.js";
import { verdictOnFailure } from "../dist/retry.js";
import { sha256Hex } from "../dist/sha256.js";
import { DONE, TOKEN, answers, stillRuntime } from "./support/still.js";

const URL_OF_NOBODY = "https://sql.example.com";

/** A client whose answers are given: nothing is sent. */
function clientWith(list, options = {}, still = stillRuntime()) {
  const { fetch, asked } = answers(list);
  const client = new Client(URL_OF_NOBODY, { token: TOKEN, ...options, runtime: { ...still.runtime, fetch } });
  return { client, db: client.db("acme", "shop"), asked, still };
}

describe("on the wire", () => {
  test("a statement is one POST with its key in one header, and a body with sql and params", async () => {
    const { db, asked } = clientWith([{ body: DONE }]);
    await db.query("INSERT INTO t VALUES (?)", ["a"], { idempotencyKey: "k-1" });

    const { url, method, headers, body } = asked[0];
    assert.equal(url, `${URL_OF_NOBODY}/v1/db/acme/shop/query`);
    assert.equal(method, "POST");
    assert.deepEqual(headers, {
      "Content-Type": "application/json",
      "Idempotency-Key": "k-1",
      Authorization: `Bearer ${TOKEN}`,
    });
    assert.equal(body, '{"params":["a"],"sql":"INSERT INTO t VALUES (?)"}');
  });

  test("a step is two headers, and no key", async () => {
    const { db, asked } = clientWith([{ body: DONE }]);
    await db.query("SELECT 1", null, { planKey: "p", planStep: "s" });

    const { Authorization, "Content-Type": kind, ...named } = asked[0].headers;
    assert.deepEqual(named, { "Plan-Key": "p", "Plan-Step": "s" });
  });

  test("an address with a path keeps it, and names are escaped", async () => {
    const { fetch, asked } = answers([{ body: '{"tables": []}' }]);
    await new Client(new URL("http://127.0.0.1:8600/behind/"), { token: TOKEN, runtime: { fetch } })
      .db("a b", "c/d")
      .tables();

    assert.equal(asked[0].url, "http://127.0.0.1:8600/behind/v1/db/a%20b/c%2Fd/tables");
  });
});

describe("waits", () => {
  test("full jitter: anything from nothing to the ceiling, which doubles", async () => {
    for (const chance of [0, 0.25, 0.999]) {
      const still = stillRuntime({ chance });
      const { db } = clientWith([{ status: 503 }], { maxRetries: 4 }, still);
      await db.query("SELECT 1", [], { idempotencyKey: "k" }).catch(() => {});

      assert.deepEqual(
        still.waits,
        [100, 200, 400, 800].map((ceiling) => ceiling * chance),
      );
    }
  });

  test("no wait of ours is longer than ten seconds", async () => {
    const still = stillRuntime({ chance: 0.5 });
    const { db } = clientWith([{ status: 503 }], { maxRetries: 12, allowMany: true, elapsed: 86_400_000 }, still);
    await db.query("SELECT 1", [], { idempotencyKey: "k" }).catch(() => {});

    assert.deepEqual(still.waits.slice(-3), [5_000, 5_000, 5_000]);
  });

  test("each wait asks chance anew", async () => {
    const chances = [0.1, 0.9, 0.4];
    const still = stillRuntime({ chance: () => chances.shift() });
    const { db } = clientWith([{ status: 503 }], { maxRetries: 3 }, still);
    await db.query("SELECT 1", [], { idempotencyKey: "k" }).catch(() => {});

    assert.deepEqual(still.waits, [10, 180, 160]);
  });

  test("options of one call win over those of the client", async () => {
    const { db, asked } = clientWith([{ status: 503 }], { maxRetries: 0 });
    await db.query("SELECT 1", [], { idempotencyKey: "k", maxRetries: 1 }).catch(() => {});

    assert.equal(asked.length, 2);
  });
});

describe("refused before anything is sent", () => {
  const refusals = {
    "a key that is undefined": [{ idempotencyKey: undefined }, "key_missing"],
    "a key that is null": [{ idempotencyKey: null }, "key_missing"],
    "an empty key": [{ idempotencyKey: "" }, "key_missing"],
    "a key with a line end": [{ idempotencyKey: "a\r\nX-Evil: 1" }, "key_invalid"],
    "a key of 201 characters": [{ idempotencyKey: "x".repeat(201) }, "key_invalid"],
    "a plan without a step": [{ planKey: "p" }, "plan_incomplete"],
    "a step without a plan": [{ planStep: "s" }, "plan_incomplete"],
    "a step that is undefined": [{ planKey: "p", planStep: undefined }, "key_missing"],
    "a key and a plan": [{ idempotencyKey: "k", planKey: "p", planStep: "s" }, "ambiguous_identity"],
    "more than four retries": [{ maxRetries: 5 }, "configuration"],
    "a timeout of nothing": [{ timeout: 0 }, "configuration"],
    "no limit": [{ elapsed: Infinity }, "configuration"],
  };
  for (const [what, [options, code]] of Object.entries(refusals)) {
    test(what, async () => {
      const { db, asked } = clientWith([{ body: DONE }]);
      const error = await db.query("SELECT 1", [], options).catch((caught) => caught);

      assert.ok(error instanceof OncewardError);
      assert.deepEqual([error.code, asked.length], [code, 0]);
    });
  }

  for (const [what, value] of Object.entries({
    undefined: undefined,
    NaN: Number.NaN,
    "a number that has lost digits": 9007199254740992,
    "a bigint beyond 64 bits": 2n ** 63n,
    "a Date": new Date(0),
    "an object": { a: 1 },
    "an array": [1],
    "half a character": "\ud800",
  })) {
    test(`a parameter that is ${what}`, async () => {
      const { db, asked } = clientWith([{ body: DONE }]);
      const error = await db.query("SELECT ?", [value]).catch((caught) => caught);

      assert.ok(error instanceof OncewardError, String(error));
      assert.equal(asked.length, 0);
    });
  }

  test("a delta without a name, an amount that is not exact, metadata that is no data", async () => {
    const { client, asked } = clientWith([{}]);
    const { balance } = client;
    const referenceId = "r-1";
    await assert.rejects(balance.emit("cus_1", -1, "x"), KeyMissing);
    await assert.rejects(balance.emit("cus_1", -1, "x", { referenceId: undefined }), KeyMissing);
    await assert.rejects(balance.emit("cus_1", 0.1, "x", { referenceId }), {
      code: "request_invalid",
      message: /not exact/,
    });
    await assert.rejects(balance.emit("cus 1", 1, "x", { referenceId }), { code: "request_invalid" });
    await assert.rejects(balance.emit("cus_1", 1, "", { referenceId }), { code: "request_invalid" });
    await assert.rejects(balance.emit("cus_1", 1, "x", { referenceId: "live:r-1" }), { code: "key_invalid" });
    await assert.rejects(balance.emit("cus_1", 1, "x", { referenceId, metadata: { at: new Date(0) } }), {
      code: "request_invalid",
      message: /\$\.at is a Date/,
    });
    await assert.rejects(balance.emit("cus_1", 1, "x", { referenceId, metadata: { a: "x".repeat(5_000) } }), {
      code: "request_invalid",
    });
    await assert.rejects(balance.emitMany([]), { code: "request_invalid" });
    await assert.rejects(balance.emitMany([{ customer: "c", delta: 0, reason: "x", referenceId }]), {
      message: /^deltas\[0\]: delta is zero/,
    });
    await assert.rejects(balance.receipt("c", {}), ConfigurationError);
    assert.equal(asked.length, 0);
  });

  test("an address that is none, or has a password in it", () => {
    for (const url of ["sql.example.com", "ftp://x", "https://x?a=1", "https://x#a", "https://me:secret@x"]) {
      assert.throws(
        () => new Client(url, { token: TOKEN }),
        (error) => error instanceof ConfigurationError && !error.message.includes("secret"),
      );
    }
  });
});

describe("the token", () => {
  test("from the option, under either name, or from ONCEWARD_TOKEN", () => {
    const { ONCEWARD_TOKEN: before } = process.env;
    delete process.env.ONCEWARD_TOKEN;
    try {
      assert.throws(() => new Client(URL_OF_NOBODY), { code: "configuration", message: /ONCEWARD_TOKEN/ });
      assert.throws(() => new Client(URL_OF_NOBODY, { token: TOKEN, apiKey: TOKEN }), ConfigurationError);
      process.env.ONCEWARD_TOKEN = ` ${TOKEN}\n`;
      assert.equal(new Client(URL_OF_NOBODY).environment, "test");
      assert.equal(new Client(URL_OF_NOBODY, { apiKey: TOKEN, environment: "test" }).environment, "test");
    } finally {
      if (before === undefined) delete process.env.ONCEWARD_TOKEN;
      else process.env.ONCEWARD_TOKEN = before;
    }
  });

  test("for the other environment, or damaged: refused before anything is sent, and not repeated", () => {
    const caught = [];
    for (const options of [
      { token: TOKEN, environment: "live" },
      { token: `${TOKEN.slice(0, -1)}0` },
      { token: "sk_live_x" },
    ]) {
      assert.throws(
        () => new Client(URL_OF_NOBODY, options),
        (error) => caught.push(error) > 0,
      );
    }
    assert.deepEqual(
      caught.map(({ code }) => code),
      ["configuration", "token_invalid", "token_invalid"],
    );
    assert.ok(!inspect(caught, { depth: 9, showHidden: true }).includes(TOKEN.slice(8, 40)));
  });

  test("no error and nothing that is printed shows the token or the key", async () => {
    const printed = [];
    const { log, warn, error: complain } = console;
    for (const name of ["log", "warn", "error", "info", "debug"])
      console[name] = (...args) => printed.push(inspect(args));
    const shown = [];
    try {
      const failed = new TypeError("fetch failed", { cause: Object.assign(new Error("x"), { code: "ECONNRESET" }) });
      for (const answer of [
        { status: 401 },
        { status: 429 },
        { status: 503 },
        { status: 302 },
        { body: "x" },
        failed,
      ]) {
        const { client, db } = clientWith([answer], { maxRetries: 0 });
        const error = await db.query("SELECT 1", [], { idempotencyKey: "zoe@example.com" }).catch((caught) => caught);
        assert.ok(error instanceof OncewardError);
        const all = [client, db, client.balance, error];
        shown.push(...all.map((one) => inspect(one, { depth: 9, showHidden: true, getters: true })));
        shown.push(...all.map((one) => JSON.stringify(one)), ...all.map(String), error.stack);
      }
    } finally {
      Object.assign(console, { log, warn, error: complain });
    }
    assert.deepEqual(printed, []);
    assert.ok(!shown.join("\n").includes(TOKEN));
    const keys = shown.filter((text) => text.includes("zoe@example.com"));
    assert.ok(
      keys.every((text) => text.includes("[Getter")),
      "only whoever asks for error.key sees it",
    );
  });
});

describe("errors of fetch, as the engines word them", () => {
  const failed = (cause) => new TypeError("fetch failed", { cause });
  const coded = (code, more = {}) => Object.assign(new Error(code), { code, ...more });
  const refused = coded("ECONNREFUSED", { syscall: "connect" });
  const deno = (words) => failed(new Error(`error sending request for url (http://127.0.0.1:1/): ${words}`));

  test("no connection: nothing was sent", () => {
    const all = {
      "Node.js": failed(refused),
      "Node.js, a host with two addresses": failed(
        new AggregateError([refused, coded("ETIMEDOUT", { syscall: "connect" })]),
      ),
      "Node.js, no such host": failed(coded("ENOTFOUND", { syscall: "getaddrinfo" })),
      "Node.js, too late": failed(coded("UND_ERR_CONNECT_TIMEOUT")),
      Bun: Object.assign(new TypeError("ECONNREFUSED: Unable to connect."), { code: "ECONNREFUSED" }),
      Deno: deno("client error (Connect): tcp connect error: Connection refused (os error 111)"),
    };
    for (const [engine, error] of Object.entries(all))
      assert.equal(verdictOnFailure(error).certainty, "not sent", engine);
  });

  test("anything else may have arrived, and browsers never say", () => {
    const all = [
      failed(coded("UND_ERR_SOCKET")),
      failed(coded("ECONNRESET", { syscall: "read" })),
      failed(new AggregateError([refused, coded("ECONNRESET", { syscall: "read" })])),
      failed(new AggregateError([])),
      deno("client error (SendRequest): connection closed before message completed"),
      new TypeError("Failed to fetch"),
      new TypeError("terminated"),
      "thrown text",
    ];
    for (const error of all)
      assert.deepEqual([verdictOnFailure(error).certainty, verdictOnFailure(error).action], ["unknown", "same-key"]);
  });

  test("a certificate that is not trusted is not asked again", async () => {
    const { db, asked } = clientWith([failed(coded("DEPTH_ZERO_SELF_SIGNED_CERT"))]);
    await assert.rejects(db.query("SELECT 1", [], { idempotencyKey: "k" }), {
      code: "configuration",
      message: /certificate is not trusted/,
    });
    assert.equal(asked.length, 1);
  });
});

describe("small parts", () => {
  test("SHA-256: the vectors of FIPS 180-4, and a million letters", () => {
    const of = (text) => sha256Hex(new TextEncoder().encode(text));
    assert.equal(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert.equal(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert.equal(
      of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    );
    assert.equal(of("a".repeat(1_000_000)), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  });

  test("JSON is read without losing digits, and as strictly as JSON.parse reads it", () => {
    const text =
      '{"a": [12345678901234567890, -9007199254740993, 1234567890123456.5, 1e20, "12345678901234567890"], "__proto__": {"x": 1}}';
    const read = parseJson(text);
    assert.deepEqual(read.a, [
      12345678901234567890n,
      -9007199254740993n,
      1234567890123456.5,
      1e20,
      "12345678901234567890",
    ]);
    assert.deepEqual(Object.keys(read), ["a", "__proto__"]);
    for (const plain of [
      "[ ]",
      "{ }",
      ' [1 , {"a" : null , "b":[true,false]}]\n',
      '"\\u00e9\\n\\ud83d\\ude00"',
      "0",
      "-0.5e-3",
    ]) {
      const long = `[${plain}, 1234567890123456]`;
      assert.deepEqual(parseJson(long), JSON.parse(long));
    }
    for (const wrong of [
      "[1234567890123456",
      "[1234567890123456,]",
      '{"a" 1234567890123456}',
      "01234567890123456",
      '["\u0001", 1234567890123456]',
      "[1234567890123456] x",
      "nul1234567890123456",
      `${"[".repeat(300)}1234567890123456`,
    ]) {
      assert.throws(() => parseJson(wrong), SyntaxError, wrong.slice(0, 40));
    }
  });

  test("only plain data has a canonical form, and a refusal names the place", () => {
    assert.equal(canonicalText({ b: undefined, a: new Map([["z", 1]]) }), '{"a":{"z":1}}');
    const cycle = {};
    cycle.self = cycle;
    for (const [value, place] of [
      [{ a: [1, undefined] }, "$.a[1] is undefined"],
      [{ a: () => 1 }, "$.a is a function"],
      [[new (class Order {})()], "$[0] is a Order"],
      [cycle, "$.self.self"],
      [{ "a b": Number.NaN }, '$["a b"] is not a finite'],
    ]) {
      assert.throws(
        () => canonicalText(value),
        (error) => error.code === "request_invalid" && error.message.startsWith(place),
      );
    }
  });

  test("a minted key is a UUID, and another one each time", () => {
    assert.match(mint(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.notEqual(mint(), mint());
  });
});
