/** What the client does when something goes wrong on the way: a real service, and somebody in between who spoils it. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { InFlight, OutcomeUnknown, RateLimitError, ServiceUnreachable, StoreUnavailable } from "onceward";
import { Proxy } from "./support/proxy.js";
import { address, clientOf, database, fresh, rowsOf } from "./support/service.js";
import { stillRuntime } from "./support/still.js";

const INSERT = "INSERT INTO events VALUES (?, ?)";
const BUSY = { status: 503, body: "busy" };
const problem = (status, code, retry, headers = {}) => ({
  status,
  headers: { "content-type": "application/problem+json", ...headers },
  body: JSON.stringify({ code, detail: `it is ${code}`, status, retry }),
});

let proxy;
before(async () => {
  proxy = await Proxy.before(address);
});
after(() => proxy.close());

/** A database of the test's own, through the proxy; waits are over at once. */
async function through(spoil, options = {}, still = stillRuntime()) {
  const { name } = await database();
  proxy.passed = [];
  proxy.spoil = [...spoil];
  const client = clientOf({ ...options, runtime: { ...still.runtime, ...options.runtime } }, proxy.address);
  return { db: client.db("demo", name), client, name, still };
}

describe("with a key", () => {
  for (const [what, spoiled] of Object.entries({
    "the answer is lost": "lose answer",
    "the answer breaks off in the middle": "half answer",
    "the line is cut": "cut",
    "the service is busy": BUSY,
    "a gateway is bad": { status: 502, headers: { "content-type": "text/html" }, body: "<html>bad gateway</html>" },
    "a gateway gives up": { status: 504 },
    "something fails": { status: 500 },
    "the request took too long": { status: 408 },
  })) {
    test(`${what}: sent again with the same bytes and key, and one effect`, async () => {
      const { db, name } = await through([spoiled, spoiled]);
      const found = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" });

      assert.equal(found.rowsWritten, 1);
      assert.equal(found.replayed, spoiled === "lose answer" || spoiled === "half answer");
      assert.equal(proxy.sent.length, 3);
      assert.equal(new Set(proxy.sent).size, 1);
      assert.equal(await rowsOf(name), 1);
    });
  }

  test("a step of a plan is sent again, too", async () => {
    const { db, name } = await through(["lose answer"]);
    const found = await db.plan("import-42").batch("rows", [
      [INSERT, ["a", "x"]],
      [INSERT, ["b", "y"]],
    ]);

    assert.deepEqual([found.replayed, found.rowsWritten, await rowsOf(name)], [true, 2, 2]);
    assert.equal(new Set(proxy.sent).size, 1);
  });

  test("a delta is sent again under its reference alone, and booked once", async () => {
    const { client } = await through(["lose answer", "cut"]);
    const customer = fresh("cus_");
    const booked = await client.balance.emit(customer, "-0.5", "api call", {
      referenceId: fresh("acme:call:2026-11:"),
    });

    assert.deepEqual([booked.duplicate, booked.delta], [true, "-0.5"]);
    assert.equal(proxy.sent.length, 3);
    assert.equal((await clientOf().balance.derive(customer)).balance, "-0.5");
  });

  test("what the caller does to the values meanwhile changes nothing", async () => {
    const still = stillRuntime();
    const { db, name } = await through([BUSY], {}, still);
    const params = ["e-1", "click"];
    const options = { idempotencyKey: "evt-1" };
    still.meanwhile = () => ([params[0], options.idempotencyKey] = ["changed", "changed"]);
    await db.query(INSERT, params, options);

    assert.equal(new Set(proxy.sent).size, 1);
    assert.deepEqual((await clientOf().db("demo", name).query("SELECT id FROM events")).rows, [["e-1"]]);
  });

  test("it ends after maxRetries, and says that it may have happened", async () => {
    const { db } = await through(["lose answer", "cut", "cut", "cut"]);
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.ok(error instanceof ServiceUnreachable);
    assert.deepEqual(
      [error.retry, error.stop.reason, error.stop.attempts, error.stop.happened],
      ["same-key", "attempts", 3, undefined],
    );
    assert.equal(proxy.sent.length, 3);
    assert.equal(error.key, "evt-1");
  });

  test("doubt stays: a refusal after a lost answer does not mean that nothing happened", async () => {
    const { db, name } = await through(["lose answer", { status: 429 }, { status: 429 }]);
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.deepEqual([error.name, error.stop.happened, await rowsOf(name)], ["RateLimitError", undefined, 1]);
  });

  test("a request that is still running is asked for again", async () => {
    const pending = problem(409, "in_flight", "same-key", { "retry-after": "1" });
    const { db, still } = await through([pending, { ...pending, status: 202 }]);
    const found = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" });

    assert.equal(found.rowsWritten, 1);
    assert.deepEqual(still.waits.map(Math.floor), [1050, 1100]);
  });

  test("a 202 for a request that is still running is no success", async () => {
    const { db } = await through([problem(202, "pending", "same-key")], { maxRetries: 0 });

    await assert.rejects(db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }), InFlight);
  });
});

describe("without a key", () => {
  for (const [what, spoiled] of Object.entries({
    "the answer is lost": "lose answer",
    "the line is cut": "cut",
    "the service is busy": BUSY,
    "the request took too long": { status: 408 },
  })) {
    test(`${what}: not sent again, and said so`, async () => {
      const { db, name } = await through([spoiled]);
      const error = await db.query(INSERT, ["e-1", "click"]).catch((caught) => caught);

      assert.equal(proxy.sent.length, 1, "nothing may repeat it blindly");
      assert.equal(error.stop.reason, "no_key");
      assert.equal(error.stop.happened, undefined);
      assert.equal(error.retry, "never");
      assert.ok(error instanceof OutcomeUnknown || spoiled.status === 408);
      assert.equal(await rowsOf(name), spoiled === "lose answer" ? 1 : 0);
    });
  }

  test("what was turned away unread is sent again: a limit, a store that is away", async () => {
    const { db, name } = await through([{ status: 429 }, problem(503, "store_unavailable", "same-key")]);
    await db.query(INSERT, ["e-1", "click"]);

    assert.equal(proxy.sent.length, 3);
    assert.equal(await rowsOf(name), 1);
  });

  test("what never left is sent again: nobody listens at the address", async () => {
    const closed = await Proxy.before(address);
    await closed.close();
    const still = stillRuntime();
    const db = clientOf({ runtime: still.runtime }, closed.address).db("demo", "x");
    const error = await db.query(INSERT, ["e-1", "click"]).catch((caught) => caught);

    assert.ok(error instanceof ServiceUnreachable);
    assert.deepEqual([error.stop.attempts, error.stop.happened, still.waits.length], [3, false, 2]);
    assert.match(error.message, /could not be reached \(ECONNREFUSED\), and nothing was sent/);
  });

  test("reading the tables, and making a database, may be repeated by nature", async () => {
    const { db } = await through(["lose answer"]);
    assert.equal((await db.tables())[0].name, "events");
    proxy.spoil = ["lose answer"];
    assert.equal(await db.create(), false);
  });
});

describe("never again, whatever the key", () => {
  for (const [status, code] of [
    [400, "request_invalid"],
    [401, "token_invalid"],
    [403, "forbidden"],
    [404, "not_found"],
    [422, "key_reused"],
    [409, "in_doubt"],
    [410, "expired"],
    [402, "balance_exhausted"],
    [429, "quota_exceeded"],
  ]) {
    test(`${status} ${code}`, async () => {
      const { db } = await through([problem(status, code, "never", { "retry-after": "1" })]);
      const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

      assert.equal(proxy.sent.length, 1);
      assert.deepEqual([error.code, error.status, error.message], [code, status, `it is ${code}`]);
    });
  }

  test("the other side asks not to, in so many words", async () => {
    const { db } = await through([{ ...BUSY, headers: { "x-should-retry": "false" } }]);
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.deepEqual([proxy.sent.length, error.stop.reason, error.retry], [1, "server_said_no", "same-key"]);
  });
});

describe("how long to wait", () => {
  test("the other side's wait is kept, and full jitter comes on top of it", async () => {
    const { db, still } = await through([
      { status: 429, headers: { "retry-after": "7" } },
      {
        status: 503,
        headers: { "retry-after": "Thu, 05 Nov 2026 12:00:30 GMT", date: "Thu, 05 Nov 2026 12:00:00 GMT" },
      },
    ]);
    await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" });

    assert.deepEqual(still.waits, [7050, 30_100]);
  });

  test("one that does not fit into the time of the call is not waited for: RateLimitError, at once", async () => {
    const { db, still } = await through([{ status: 429, headers: { "retry-after": "120", "x-request-id": "req-7" } }]);
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.ok(error instanceof RateLimitError);
    assert.deepEqual(
      [error.retryAfterSeconds, error.stop.reason, error.stop.attempts, still.waits],
      [120, "deadline", 1, []],
    );
    assert.equal(error.retryAt.getTime(), still.runtime.wallClock() + 120_000);
    assert.equal(error.requestId, "req-7");
  });

  test("the whole call has a limit: no attempt begins after it", async () => {
    const { db, still } = await through(
      [BUSY, BUSY, BUSY, BUSY],
      { maxRetries: 4, elapsed: 200 },
      stillRuntime({ chance: 0.9 }),
    );
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.deepEqual([error.stop.reason, still.waits.length, proxy.sent.length], ["elapsed", 1, 2]);
    assert.ok(still.time <= 200);
  });

  test("an attempt that takes too long is given up, and sent again under the same key", async () => {
    const timeouts = [];
    const untilItArrived = async (act) => {
      while (proxy.passed.length === 0) await new Promise((resolve) => setImmediate(resolve));
      act();
    };
    const after = (milliseconds, act) => {
      if (timeouts.push(milliseconds) === 1) void untilItArrived(act); // The time of the first is over when it has arrived.
      return () => {};
    };
    const { db, name, still } = await through(["hold"], { timeout: 2_000, elapsed: 2_040, runtime: { after } });
    const found = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" });

    assert.deepEqual([found.rowsWritten, proxy.sent.length, await rowsOf(name)], [1, 2, 1]);
    assert.equal(new Set(proxy.sent).size, 1);
    assert.deepEqual([timeouts, still.time], [[2_000, 1_990], 50], "the second has what is left of the whole call");
  });

  test("the caller's signal ends it: while it is under way, and while it waits", async () => {
    const { db } = await through(["hold"]);
    const reason = new Error("nobody waits any more");
    const controller = new AbortController();
    const running = db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1", signal: controller.signal });
    while (proxy.passed.length === 0) await new Promise((resolve) => setImmediate(resolve));
    controller.abort(reason);
    await assert.rejects(running, reason);

    proxy.spoil = [BUSY];
    const second = new AbortController();
    const waiting = clientOf({ runtime: { random: () => (second.abort(reason), 0.9) } }, proxy.address);
    await assert.rejects(
      waiting.db("demo", "x").query("SELECT 1", [], { idempotencyKey: "k", signal: second.signal }),
      reason,
    );
    assert.equal(proxy.passed.length, 2);

    await assert.rejects(db.query("SELECT 1", [], { signal: AbortSignal.abort(reason) }), reason);
    assert.equal(proxy.passed.length, 2, "nothing is sent");
  });
});

describe("errors of the service", () => {
  test("a store that is away says that nothing happened", async () => {
    const away = problem(503, "store_unavailable", "same-key");
    const { db } = await through([away, away, away]);
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.ok(error instanceof StoreUnavailable);
    assert.deepEqual([error.fault, error.retry, error.stop.happened], ["store", "same-key", false]);
  });

  test("a code that is not known here keeps its own advice", async () => {
    const { db } = await through([problem(418, "never_heard_of", "new-key")]);
    const error = await db.query(INSERT, ["e-1", "click"], { idempotencyKey: "evt-1" }).catch((caught) => caught);

    assert.deepEqual([error.name, error.code, error.retry], ["OncewardError", "never_heard_of", "new-key"]);
  });

  for (const [what, spoiled] of Object.entries({
    "a page of a proxy": { status: 200, headers: { "content-type": "text/html" }, body: "<html>welcome</html>" },
    "a document of somebody else": { status: 200, body: '{"hello": 1}' },
    "a redirect": { status: 302, headers: { location: "https://example.com/" } },
  })) {
    test(`${what} is no answer of a service, and is not followed`, async () => {
      const { db } = await through([spoiled]);
      await assert.rejects(db.query("SELECT 1"), { name: "ConfigurationError", message: /check that the address/ });
      assert.equal(proxy.sent.length, 1);
    });
  }
});
