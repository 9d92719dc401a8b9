/**
 * Sends again, under the same keys, what a Python client has sent (`tests/clients/test_typescript.py`), and prints of
 * each call whether it was replayed: the two write the same request.
 */

import { derive, Reference } from "onceward";
import { clientOf } from "./service.js";

const [name] = process.argv.slice(2);
const client = clientOf();
const db = client.db("demo", name);
const bytes = new Uint8Array([0, 255, 128]);
const values = ["zoë 😀", 17, 1.5, 100, null, true, 9007199254740993n, -(2n ** 63n), bytes];
const marks = values.map(() => "?").join(", ");
const key = (turn) => derive({ worker: "w-1", run: name, turn, tool: "note", input: { b: [1, 2.5], a: "é" } });
const referenceId = new Reference("acme", "call:x", "2026-11").of(name);
const metadata = { z: 1, a: [1.5, null, "é"], big: 12345678901234567890n };

const found = [
  await db.query(`INSERT INTO kept VALUES (${marks})`, values, { idempotencyKey: key(1) }),
  await db.query("INSERT INTO kept (a, b) VALUES (:a, :b)", { a: "x", b: 2 }, { idempotencyKey: key(2) }),
  await db.query("INSERT INTO kept (a) VALUES ('y')", undefined, { planKey: `plan-${name}`, planStep: "first" }),
  await db.batch(["INSERT INTO kept (a) VALUES ('z')", ["INSERT INTO kept (a) VALUES (?)", [1e21]]], {
    idempotencyKey: key(3),
  }),
  await client.balance.emit("cus_both", "-12.50", "api call", { referenceId, idempotencyKey: key(4), metadata }),
  await client.balance.emitMany([{ customer: "cus_both", delta: 1n, reason: "a", referenceId: `${name}-1` }], {
    idempotencyKey: key(5),
  }),
];
console.log(JSON.stringify({ replayed: found.map((one) => one.replayed), reference: referenceId }));
