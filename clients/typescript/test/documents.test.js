/**
 * The samples of the documents that this project began with, word for word, against the real service. Only what they
 * import is ours: `@persql/sdk` and `PacSpace` are this client.
 */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, KeyReused, RateLimitError } from "onceward";
import { Proxy } from "./support/proxy.js";
import { address, clientOf, database, fresh, rowsOf, token } from "./support/service.js";

describe("the first document: a key, a plan, a limit", () => {
  let proxy, db, name;
  before(async () => {
    proxy = await Proxy.before(address);
    ({ name } = await database());
    db = clientOf({}, proxy.address).db("demo", name);
  });
  after(() => proxy.close());

  const insert = () =>
    // prettier-ignore
    db.query(
"INSERT INTO events (id, name) VALUES (?, ?)",
["e-1", "click"],
{ idempotencyKey: "evt-e-1-2026-04-29" }
);

  test("a retry with the same key returns the first response without running the SQL again", async () => {
    const first = await insert();
    const second = await insert();

    assert.deepEqual([first.replayed, second.replayed], [false, true]);
    assert.deepEqual([first.rowsWritten, second.rowsWritten], [1, 1]);
    assert.equal(await rowsOf(name), 1);
    assert.equal(proxy.passed.at(-1).headers["idempotency-key"], "evt-e-1-2026-04-29");
  });

  test("the id of a model's tool call is the key, unchanged", async () => {
    const toolUse = { id: "toolu_01A09q90qw90lq917835lq9" };
    const input = { sql: "INSERT INTO events (id, name) VALUES (?, ?)", params: ["e-2", "click"] };
    for (const replayed of [false, true]) {
      // prettier-ignore
      const found = await db.query(input.sql, input.params, {
idempotencyKey: toolUse.id,
});
      assert.equal(found.replayed, replayed);
    }
    assert.equal(proxy.passed.at(-1).headers["idempotency-key"], toolUse.id);
  });

  test("a plan whose third step failed replays the first two and runs the third", async () => {
    const migrationId = fresh("m");
    const step1Sql = "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT)";
    const step2Sql = "INSERT INTO settings VALUES ('colour', 'blue')";
    let step3Sql = "INSERT INTO nowhere SELECT * FROM settings";
    const replays = [];
    const { query } = db;
    const noted = { query: async (...args) => replays.push((await query.apply(db, args)).replayed) };
    const run = async (db) => {
      const planKey = `migrate-${migrationId}`;
      await db.query(step1Sql, [], { planKey, planStep: "create-tables" });
      await db.query(step2Sql, [], { planKey, planStep: "seed-defaults" });
      await db.query(step3Sql, [], { planKey, planStep: "backfill" });
    };
    await assert.rejects(run(noted), { name: "SqlError", kind: "unknownTable" });
    step3Sql = "UPDATE settings SET value = upper(value)";
    await run(noted);
    await run(noted);

    assert.deepEqual(replays, [false, false, true, true, false, true, true, true]);
    assert.equal(await rowsOf(name, "settings"), 1);
  });

  test("a 429 is a RateLimitError that says how long to wait, and the retry after it succeeds", async () => {
    const limited = { status: 429, headers: { "retry-after": "0" }, body: "slow down" };
    proxy.spoil = [limited];
    const impatient = clientOf({ maxRetries: 0 }, proxy.address).db("demo", name);
    let waited;
    {
      const db = impatient;
      // prettier-ignore
      try {
await db.query("SELECT 1");
} catch (e) {
if (e instanceof RateLimitError) {
await new Promise((r) => setTimeout(r, e.retryAfterSeconds * 1000));
// retry…
waited = e.retryAfterSeconds;
}
}
    }
    assert.equal(waited, 0);
    assert.deepEqual((await impatient.query("SELECT 1")).rows, [[1]]);
  });
});

describe("the third document: a reference, a key, bounded retries", () => {
  /** The document's client needs no address. */
  class PacSpace extends Client {
    constructor(options) {
      super(address, options);
    }
  }
  process.env.PACSPACE_API_KEY = token;
  // prettier-ignore
  const pac = new PacSpace({
apiKey: process.env.PACSPACE_API_KEY,
maxRetries: 2,
timeout: 30_000,
});
  const [vendor, operation, bucket, uuid] = ["acme", "call", "2026-11", fresh("u")];
  const [customerId, reason, metadata] = [fresh("cus_"), "api call", { model: "small", tokens: 17 }];

  const emit = async () => {
    // prettier-ignore
    const referenceId = `${vendor}:${operation}:${bucket}:${uuid}`;
    return pac.balance.emit(customerId, -1, reason, {
      referenceId,
      idempotencyKey: referenceId,
      metadata,
    });
  };

  test("the same emit, as often as one likes, is one delta", async () => {
    const all = [await emit(), await emit(), ...(await Promise.all([emit(), emit(), emit()]))];

    assert.equal(new Set(all.map((one) => one.id)).size, 1);
    assert.deepEqual([all[0].delta, all[0].metadata, all[0].replayed], ["-1", metadata, false]);
    assert.ok(all.slice(1).every((one) => one.replayed));
    const { balance, deltas } = await pac.balance.derive(customerId);
    assert.deepEqual([balance, deltas], ["-1", 1]);
  });

  test("the same key with another body is a conflict, and nothing is booked", async () => {
    const referenceId = `${vendor}:${operation}:${bucket}:${uuid}`;
    const changed = pac.balance.emit(customerId, -2, reason, { referenceId, idempotencyKey: referenceId, metadata });

    await assert.rejects(
      changed,
      (error) => error instanceof KeyReused && error.retry === "new-key" && error.stop.attempts === 1,
    );
    assert.equal((await pac.balance.derive(customerId)).balance, "-1");
  });

  test("members in another order are the same body", async () => {
    const referenceId = `${vendor}:${operation}:${bucket}:${uuid}`;
    const turned = { tokens: 17, model: "small" };
    const again = await pac.balance.emit(customerId, "-1.0", reason, {
      metadata: turned,
      idempotencyKey: referenceId,
      referenceId,
    });

    assert.ok(again.replayed);
  });
});
