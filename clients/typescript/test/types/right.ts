/** What users may write. Only its types are looked at. */

import {
  type Amount,
  type BookedBatch,
  Client,
  type Delta,
  type NewDelta,
  OncewardError,
  RateLimitError,
  Reference,
  type Result,
  type RetryAdvice,
  SqlError,
  type SqlKind,
  type SqlValue,
  derive,
  recipe,
} from "onceward";

declare const process: { env: Record<string, string | undefined> };
declare const toolUse: { id: string };
declare const input: { sql: string; params: (string | number)[] };

export const client: Client = new Client("https://sql.example.com", {
  apiKey: process.env["PACSPACE_API_KEY"],
  maxRetries: 2,
  timeout: 30_000,
});
const db = client.db("acme", "shop");

export async function statements(signal: AbortSignal): Promise<void> {
  await db.query("SELECT 1");
  await db.query("INSERT INTO events (id, name) VALUES (?, ?)", ["e-1", "click"], { idempotencyKey: "evt-e-1" });
  await db.query(input.sql, input.params, { idempotencyKey: toolUse.id, signal, timeout: 1_000 });
  await db.query("SELECT :a", { a: 1n }, { planKey: "p", planStep: "s" });
  await db.query("SELECT ?, ?, ?", [null, true, new Uint8Array()], {});
  await db.batch(["SELECT 1", ["SELECT ?", [1]], ["SELECT 2"]], { idempotencyKey: "k" });
  const plain: Result = await db.query("SELECT 1 AS one");
  const value: SqlValue | undefined = plain.one()?.["one"];
  const typed = await db.query<{ id: string; amount: number }>("SELECT id, amount FROM t");
  const amount: number | undefined = typed.one()?.amount;
  for (const row of typed) row.id.toUpperCase();
  await db.plan("p").query<{ id: string }>("step", "SELECT 1", [], { signal });
  void [value, amount];
}

export async function ledger(): Promise<Delta> {
  const amounts: Amount[] = [-1, 12n, "12.50"];
  const deltas: NewDelta[] = amounts.map((delta, i) => ({ customer: "c", delta, reason: "r", referenceId: `r-${i}` }));
  const found: BookedBatch = await client.balance.emitMany(deltas);
  const error: OncewardError | null | undefined = found.results[0]?.error;
  await client.balance.receipt("c", { period: "2026-11" });
  const referenceId = new Reference("acme", "call", "2026-11").of(
    derive({ worker: "w", run: "r", turn: 1, tool: "t", input: error }),
  );
  return client.balance.emit("c", -1, "r", {
    referenceId,
    idempotencyKey: referenceId,
    metadata: { a: [1, null, { b: 2n }] },
  });
}

export function reading(error: unknown): RetryAdvice | SqlKind | number | undefined {
  if (error instanceof RateLimitError) return error.retryAfterSeconds * 1000;
  if (error instanceof SqlError) return error.kind;
  return error instanceof OncewardError ? error.retry : undefined;
}

export const key: string = recipe("charge:{order_id}").key({ order_id: 17 });
