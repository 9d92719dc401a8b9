/** Databases, plans, values and the ledger, on the real service. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DatabaseUnknown, NameInvalid, Reference, ReferenceReused, SqlError, derive } from "onceward";
import { clientOf, database, fresh, rowsOf } from "./support/service.js";

describe("statements", () => {
  test("values come back as they went in, however large", async () => {
    const { db } = await database();
    await db.query("CREATE TABLE kept (place INTEGER PRIMARY KEY, value)");
    const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256);
    const values = [
      null,
      0,
      -1.5,
      1e300,
      9007199254740991,
      9007199254740993n,
      -(2n ** 63n),
      2n ** 63n - 1n,
      "",
      "zoë 😀",
      bytes,
    ];
    for (const [place, value] of values.entries()) await db.query("INSERT INTO kept VALUES (?, ?)", [place, value]);
    await db.query("INSERT INTO kept VALUES (:place, :value)", { place: 100, value: true });
    await db.query("INSERT INTO kept VALUES (?, ?)", [101, bytes.buffer]);
    await db.query("INSERT INTO kept VALUES (?, ?)", [102, 7n]);
    const found = (await db.query("SELECT value FROM kept ORDER BY place")).rows.map(([value]) => value);

    assert.deepEqual(found, [...values, 1, bytes, 7]);
  });

  test("rows by column name, one or all, also a column named __proto__", async () => {
    const { db } = await database();
    await db.batch([["INSERT INTO events VALUES (?, ?)", ["a", "x"]], "INSERT INTO events VALUES ('b', 'y')"]);
    const found = await db.query("SELECT id, name FROM events ORDER BY id");

    assert.deepEqual(
      [...found],
      [
        { id: "a", name: "x" },
        { id: "b", name: "y" },
      ],
    );
    assert.deepEqual(found.one(), { id: "a", name: "x" });
    assert.equal((await db.query("SELECT * FROM events WHERE id = 'z'")).one(), undefined);
    const odd = (await db.query('SELECT 1 AS "__proto__"')).one();
    assert.deepEqual(Object.entries(odd), [["__proto__", 1]]);
    assert.equal(Object.getPrototypeOf(odd), Object.prototype);
  });

  test("a batch is all or none, once per key, and names the statement that failed", async () => {
    const { db, name } = await database();
    const failing = db.batch(
      [["INSERT INTO events VALUES (?, ?)", ["a", "x"]], "INSERT INTO events VALUES ('a', 'y')"],
      { idempotencyKey: "b-1" },
    );
    await assert.rejects(
      failing,
      (error) => error instanceof SqlError && error.kind === "uniqueViolation" && error.statement === 1,
    );
    assert.equal(await rowsOf(name), 0);
    const statements = [["INSERT INTO events VALUES (?, ?)", ["a", "x"]], ["INSERT INTO events VALUES ('b', 'y')"]];
    const [first, second] = [
      await db.batch(statements, { idempotencyKey: "b-1" }),
      await db.batch(statements, { idempotencyKey: "b-1" }),
    ];

    assert.deepEqual([first.rowsWritten, first.replayed, second.rowsWritten, second.replayed], [2, false, 2, true]);
    assert.deepEqual([first.results.length, await rowsOf(name)], [2, 2]);
  });

  test("fifty at the same instant under one key are one row, and all learn the same", async () => {
    const { db, name } = await database();
    const one = () =>
      db.query("INSERT INTO events VALUES ('a', 'x')", [], {
        idempotencyKey: "k-1",
        elapsed: 600_000,
        timeout: 600_000,
      });
    const all = await Promise.all(Array.from({ length: 50 }, one));

    assert.deepEqual(new Set(all.map((found) => found.rowsWritten)), new Set([1]));
    assert.equal(all.filter((found) => !found.replayed).length, 1);
    assert.equal(await rowsOf(name), 1);
  });

  test("a derived key makes a tool call one call, after a restart, too", async () => {
    const { db, name } = await database();
    const key = () => derive({ worker: "w-1", run: "r-1", turn: 3, tool: "note", input: { text: "milk" } });
    for (let run = 0; run < 2; run++)
      await db.query("INSERT INTO events VALUES ('a', 'milk')", [], { idempotencyKey: key() });

    assert.equal(await rowsOf(name), 1);
  });

  test("what a call cost is said where the service says it", async () => {
    const { db } = await database();
    const { usage } = await db.query("SELECT 1");

    assert.ok(usage.cpuUs > 0);
  });

  test("errors have a class, a code, a status and advice", async () => {
    const { db } = await database();
    await assert.rejects(db.query("INSERT INTO events VALUES (?, ?)", ["a"]), {
      name: "SqlError",
      code: "sql_error",
      kind: "wrongParams",
      status: 400,
      retry: "never",
    });
    await assert.rejects(db.query("SELEC 1"), { kind: "syntax" });
    await assert.rejects(db.query("INSERT INTO events (id) VALUES ('a')"), {
      kind: "notNull",
      table: "events",
      column: "name",
    });
    await assert.rejects(clientOf().db("demo", fresh("none")).query("SELECT 1"), DatabaseUnknown);
    await assert.rejects(clientOf().db("demo", "Not A Name").create(), NameInvalid);
  });

  test("a database is made once, listed and dropped", async () => {
    const db = clientOf().db("demo", fresh());
    assert.deepEqual([await db.create(), await db.create()], [true, false]);
    await db.query("CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)");
    const [table] = await db.tables();
    assert.deepEqual([table.name, table.columns.map(({ name }) => name)], ["t", ["id", "note"]]);
    assert.deepEqual([await db.drop(), await db.drop()], [true, false]);
  });
});

describe("the ledger", () => {
  test("amounts keep every digit, and so does metadata", async () => {
    const { balance } = clientOf();
    const customer = fresh("cus_");
    const reference = new Reference("acme", "call", "2026-11");
    const metadata = { big: 12345678901234567890n, list: [1.5, null, "zoë"], left: undefined };
    const booked = await balance.emit(customer, "0.000000001", "drop", { referenceId: reference.new(), metadata });
    await balance.emit(customer, 999_999_999n, "much", { referenceId: reference.of(`a:${customer}`) });

    assert.equal(booked.delta, "0.000000001");
    assert.deepEqual(booked.metadata, { big: 12345678901234567890n, list: [1.5, null, "zoë"] });
    assert.ok(booked.bookedAt instanceof Date);
    assert.equal((await balance.derive(customer)).balance, "999999999.000000001");
    assert.deepEqual((await balance.delta(booked.id)).metadata, booked.metadata);
    assert.deepEqual(await balance.gaps(customer), { customer, lastSeq: 2, gaps: [] });
  });

  test("a reference is booked once; with another amount it is refused", async () => {
    const { balance } = clientOf();
    const [customer, referenceId] = [fresh("cus_"), fresh("acme:call:2026-11:")];
    const first = await balance.emit(customer, -1, "api call", { referenceId });
    const again = await balance.emit(customer, -1, "api call", { referenceId });

    assert.deepEqual([first.duplicate, again.duplicate, again.id], [false, true, first.id]);
    await assert.rejects(balance.emit(customer, -2, "api call", { referenceId }), ReferenceReused);
    const receipt = await balance.receipt(customer, { referenceId });
    assert.deepEqual([receipt.delta.id, receipt.checkpoint], [first.id, null]);
  });

  test("a batch books what can be booked, and says of the others why not", async () => {
    const { balance } = clientOf();
    const [customer, name] = [fresh("cus_"), fresh("acme:call:2026-11:")];
    const deltas = [
      { customer, delta: 1, reason: "a", referenceId: `${name}-1` },
      { customer, delta: 1, reason: "a", referenceId: `${name}-1` },
      { customer, delta: 2, reason: "a", referenceId: `${name}-1` },
    ];
    const found = await balance.emitMany(deltas, { idempotencyKey: name });

    assert.deepEqual([found.booked, found.duplicates, found.refused], [1, 1, 1]);
    assert.ok(found.results[2].error instanceof ReferenceReused);
    assert.ok((await balance.emitMany(deltas, { idempotencyKey: name })).replayed);
  });

  test("a checkpoint inside a running period is a mark", async () => {
    const { balance } = clientOf();
    const customer = fresh("cus_");
    const { period } = await balance.emit(customer, 5, "top-up", { referenceId: fresh("r-") });
    const mark = await balance.checkpoint(customer, period);

    assert.deepEqual([mark.closed, mark.balance, mark.closedAt], [false, "5", null]);
  });
});
