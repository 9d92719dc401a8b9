/**
 * An agent's tool calls, each done once. Run it twice: the second run replays, and nothing is noted again.
 *
 *     make serve                                  in another terminal; it prints a token
 *     export ONCEWARD_TOKEN=ow_test_...
 *     node examples/notes.ts                      Node.js 22.18 or later; or Deno, or Bun
 */

import { Client, derive } from "onceward";

/** What a model answered, as an agent stores it before it runs the tools. */
const answer = {
  run: "run-17",
  calls: [
    { tool: "note", input: { text: "milk" } },
    { tool: "note", input: { text: "bread" } },
    { tool: "charge", input: { customer: "cus_notes", amount: "-0.10" } },
  ],
};

const client = new Client("http://127.0.0.1:8600");
const db = client.db("demo", "notes");
await db.create();
await db.query("CREATE TABLE notes (text TEXT)", [], { planKey: "setup", planStep: "notes" });

let done = 0;
for (const [turn, { tool, input }] of answer.calls.entries()) {
  // Made again from what is stored: the same key after a crash, in any process, and in Python.
  const idempotencyKey = derive({ worker: "notes", run: answer.run, turn, tool, input });
  if ("text" in input) {
    const { replayed } = await db.query("INSERT INTO notes VALUES (?)", [input.text], { idempotencyKey });
    done += replayed ? 0 : 1;
  } else {
    const { customer, amount } = input;
    const { replayed } = await client.balance.emit(customer, amount, "note", {
      referenceId: idempotencyKey,
      idempotencyKey,
    });
    done += replayed ? 0 : 1;
  }
}

const notes = (await db.query<{ n: number }>("SELECT count(*) AS n FROM notes")).one()?.n;
const { balance } = await client.balance.derive("cus_notes");
console.log(`${answer.calls.length} calls, ${done} done now; notes=${notes} balance=${balance}`);
