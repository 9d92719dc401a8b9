/** What must not compile: each line below a mark is an error, and a mark without one is an error, too. */

import { Client, OncewardError, type Result, derive, recipe } from "onceward";

const client = new Client("https://sql.example.com");
const db = client.db("acme", "shop");

export async function wrong(error: OncewardError): Promise<void> {
  // @ts-expect-error a key and a plan are two operations
  await db.query("SELECT 1", [], { idempotencyKey: "k", planKey: "p", planStep: "s" });
  // @ts-expect-error a plan without its step
  await db.query("SELECT 1", [], { planKey: "p" });
  // @ts-expect-error a step without its plan
  await db.query("SELECT 1", [], { planStep: "s" });
  // @ts-expect-error a key that is undefined is no key
  await db.query("SELECT 1", [], { idempotencyKey: undefined });
  // @ts-expect-error a key is text
  await db.query("SELECT 1", [], { idempotencyKey: 17 });
  // @ts-expect-error a misspelt option would send it without a key
  await db.query("SELECT 1", [], { idempotentKey: "k" });
  // @ts-expect-error the key is an option, not a value
  await db.query("SELECT 1", "k");
  // @ts-expect-error a Date has several spellings
  await db.query("SELECT ?", [new Date()]);
  // @ts-expect-error undefined is no value
  await db.query("SELECT ?", [undefined]);
  // @ts-expect-error an object is no value
  await db.query("SELECT ?", [{ a: 1 }]);
  // @ts-expect-error a result is not changed
  (await db.query("SELECT 1")).rowsWritten = 2;
  // @ts-expect-error an amount is a whole number, a bigint or text
  await client.balance.emit("c", null, "r", { referenceId: "r" });
  // @ts-expect-error metadata is plain data
  await client.balance.emit("c", 1, "r", { referenceId: "r", metadata: { at: new Date() } });
  // @ts-expect-error a reference that is undefined is no reference
  await client.balance.emit("c", 1, "r", { referenceId: undefined });
  // @ts-expect-error a receipt is for a delta or for a period
  await client.balance.receipt("c", {});
  // @ts-expect-error an amount is text: adding would join
  const sum: number = (await client.balance.derive("c")).balance;
  // @ts-expect-error most errors do not know how long to wait
  const wait: number = error.retryAfterSeconds;
  // @ts-expect-error the advice is one of three words
  const again: boolean = error.retry === "yes";
  // @ts-expect-error the token is not to be read
  const token: string = client.token;
  void [sum, wait, again, token];
}

// @ts-expect-error an environment is live or test
export const staging: Client = new Client("https://sql.example.com", { environment: "staging" });
// @ts-expect-error a call is awaited
export const early: Result = db.query("SELECT 1");
// @ts-expect-error all five fields identify a call
export const key: string = derive({ worker: "w", run: "r", turn: 1, tool: "t" });
// @ts-expect-error a boolean tells too little
export const made: string = recipe("{a}").key({ a: true });
