/**
 * `Database` and `DatabasePlan`: SQL, once per key or step.
 */

import { plainText } from "./canonical.js";
import type { Ask, CallOptions } from "./client.js";
import { ConfigurationError } from "./errors.js";
import { type Identity, identityOf } from "./identity.js";
import type { Reader } from "./responses.js";
import { BatchResult, Result, type SqlRow, usageOf } from "./results.js";
import type { OutgoingRequest } from "./retry.js";
import { type SqlParams, paramsToJson } from "./values.js";

/** The options of a statement: who it is, and how it is sent. */
export type QueryOptions = Identity & CallOptions;

/** A statement of a batch: its text, or its text and its values. */
export type Statement = string | readonly [sql: string, params?: SqlParams | null];

/** A table of a database. */
export interface TableInfo {
  readonly name: string;
  readonly kind: string;
  readonly columns: readonly { name: string; type: string; nullable: boolean; primaryKey: boolean }[];
  readonly rows: number;
  /** Whether `rows` was counted; otherwise it is an estimate. */
  readonly exact: boolean;
}

const readResult: Reader<Result<never>> = (document, replayed, headers) =>
  new Result(document, replayed, usageOf(headers));
const readBatch: Reader<BatchResult> = (document, replayed, headers) =>
  new BatchResult(document, replayed, usageOf(headers));

/** One database of a service. */
export class Database {
  readonly #ask: Ask;
  readonly #path: string;

  constructor(ask: Ask, namespace: string, database: string) {
    this.#ask = ask;
    this.#path = `/v1/db/${pathPart("namespace", namespace)}/${pathPart("database", database)}`;
  }

  /** Run one statement, once per key or step; `Result.replayed` tells whether it ran now. */
  async query<Row extends object = SqlRow>(
    sql: string,
    params?: SqlParams | null,
    options: QueryOptions = {},
  ): Promise<Result<Row>> {
    const outgoing = post(`${this.#path}/query`, statement(sql, params), options);
    return this.#ask(outgoing, readResult as Reader<Result<Row>>, options);
  }

  /** Run statements in one transaction, all or none, once per key or step. */
  async batch(statements: Iterable<Statement>, options: QueryOptions = {}): Promise<BatchResult> {
    const documents = Array.from(statements, (one) =>
      typeof one === "string" ? statement(one, null) : statement(one[0], one[1]),
    );
    return this.#ask(post(`${this.#path}/batch`, { statements: documents }, options), readBatch, options);
  }

  /** A plan: each step runs once, and a re-run replays what was done and goes on. */
  plan(planKey: string): DatabasePlan {
    return new DatabasePlan(this, planKey);
  }

  /** The tables of the database. */
  async tables(options: CallOptions = {}): Promise<TableInfo[]> {
    const read: Reader<TableInfo[]> = (document: { tables: TableInfo[] }) => [...document.tables];
    return this.#ask(withoutBody("GET", `${this.#path}/tables`), read, options);
  }

  /** Make the database; whether it is new. Asking again is safe. */
  async create(options: CallOptions = {}): Promise<boolean> {
    const read: Reader<boolean> = (document: { created: boolean }) => document.created === true;
    return this.#ask(withoutBody("PUT", this.#path), read, options);
  }

  /** Delete the database, and the records of its keys; whether there was one. */
  async drop(options: CallOptions = {}): Promise<boolean> {
    const read: Reader<boolean> = (document: { dropped?: boolean }) => document.dropped === true;
    return this.#ask(withoutBody("DELETE", this.#path), read, options);
  }
}

/** A plan on one database. */
export class DatabasePlan {
  readonly planKey: string;
  readonly #database: Database;

  constructor(database: Database, planKey: string) {
    [this.#database, this.planKey] = [database, planKey];
  }

  /** One statement as a step. */
  async query<Row extends object = SqlRow>(
    step: string,
    sql: string,
    params?: SqlParams | null,
    options: CallOptions = {},
  ): Promise<Result<Row>> {
    return this.#database.query<Row>(sql, params, { ...options, planKey: this.planKey, planStep: step });
  }

  /** A batch as a step. */
  async batch(step: string, statements: Iterable<Statement>, options: CallOptions = {}): Promise<BatchResult> {
    return this.#database.batch(statements, { ...options, planKey: this.planKey, planStep: step });
  }
}

function statement(sql: unknown, params: SqlParams | null | undefined): { sql: string; params: unknown } {
  if (typeof sql !== "string") throw new ConfigurationError("a statement is text; nothing was sent");
  return { sql, params: paramsToJson(params) };
}

function pathPart(what: string, name: unknown): string {
  if (typeof name !== "string" || name === "" || name === "." || name === "..") {
    throw new ConfigurationError(`the ${what}'s name is missing: pass text, such as "shop"`);
  }
  return encodeURIComponent(name);
}

/** A request with a body. It is written here, once: what the caller does to the parameters later changes nothing. */
function post(path: string, document: unknown, options: QueryOptions): OutgoingRequest {
  const { headers, key } = identityOf(options);
  return {
    method: "POST",
    path,
    headers: { "Content-Type": "application/json", ...headers },
    body: plainText(document),
    repeatable: key !== undefined,
    key,
  };
}

/** A request that may be repeated by nature (RFC 9110, 9.2.2). */
export function withoutBody(method: "GET" | "PUT" | "DELETE", path: string): OutgoingRequest {
  return { method, path, headers: {}, body: undefined, repeatable: true, key: undefined };
}
