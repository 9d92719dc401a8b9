/**
 * The client of `onceward serve` for TypeScript and JavaScript.
 *
 *     const client = new Client("https://sql.example.com");        // the token: from ONCEWARD_TOKEN
 *     const db = client.db("acme", "shop");
 *     await db.query("INSERT INTO events VALUES (?, ?)", ["e-1", "click"], { idempotencyKey: "evt-e-1" });
 *
 * Start with `client.ts`, then `database.ts` and `balance.ts` (calls), `retry.ts` (attempts) and `responses.ts`.
 */

export { type Amount, formatAmount, parseAmount } from "./amounts.js";
export { Balance, type EmitOptions } from "./balance.js";
export { canonical, canonicalText } from "./canonical.js";
export { type CallOptions, Client, type ClientOptions } from "./client.js";
export { Database, DatabasePlan, type QueryOptions, type Statement, type TableInfo } from "./database.js";
export * from "./errors.js";
export type { ByKey, ByStep, Identity, Unnamed } from "./identity.js";
export {
  type ColonFields,
  type Environment,
  type ToolCallFields,
  checkKey,
  derive,
  deriveColon,
  environmentKey,
  inputHash,
  mint,
  mintFrom,
} from "./keys.js";
export type {
  BookedBatch,
  BookedItem,
  Checkpoint,
  Delta,
  DeltaOptions,
  Derived,
  Gaps,
  Json,
  Metadata,
  NewDelta,
  Receipt,
} from "./ledger.js";
export { type KeyPart, type Recipe, Reference, recipe } from "./recipes.js";
export { BatchResult, type CallUsage, Result, type SqlRow } from "./results.js";
export type { RetryOptions, Runtime } from "./retry.js";
export type { SqlParam, SqlParams, SqlValue } from "./values.js";
