/**
 * `Result` and `BatchResult`: the results of SQL statements, and what a call cost.
 */

import { type SqlValue, valueFromJson } from "./values.js";

/** A row by column name. */
export type SqlRow = Record<string, SqlValue>;

/** What one call cost, and what is left; a member that is missing does not apply. Money is micro-units. */
export interface CallUsage {
  /** Micro-units that it cost; 0 for a replay. */
  cost?: number;
  balance?: number;
  /** Microseconds of a processor. */
  cpuUs?: number;
  bytesGrown?: number;
  bytesLeft?: number;
  recordsLeft?: number;
}

const USAGE_HEADER = "onceward-usage";
const USAGE_MEMBERS: Readonly<Record<string, keyof CallUsage>> = {
  cost: "cost",
  balance: "balance",
  "cpu-us": "cpuUs",
  "bytes-grown": "bytesGrown",
  "bytes-left": "bytesLeft",
  "records-left": "recordsLeft",
};

/** What a response says about the cost of its call. */
export function usageOf(headers: Headers): CallUsage | undefined {
  const said = headers.get(USAGE_HEADER);
  if (said === null) return undefined;
  const usage: CallUsage = {};
  for (const member of said.split(",")) {
    const [name = "", number = ""] = member.trim().split("=", 2);
    const known = Object.hasOwn(USAGE_MEMBERS, name) ? USAGE_MEMBERS[name] : undefined;
    if (known !== undefined && /^-?[0-9]{1,18}$/.test(number)) usage[known] = Number(number);
  }
  return usage;
}

/** The result of one statement. */
export class Result<Row extends object = SqlRow> {
  readonly columns: readonly string[];
  /** The rows as lists of values, in the order of `columns`. */
  readonly rows: readonly (readonly SqlValue[])[];
  readonly rowsRead: number;
  /** How many rows the first run wrote; a replay writes none. */
  readonly rowsWritten: number;
  readonly lastInsertRowid: number | bigint | null;
  readonly meta: Readonly<Record<string, unknown>>;
  /** True: this is the first result under this key; the statement was not run now. */
  readonly replayed: boolean;
  readonly usage: CallUsage | undefined;

  constructor(document: ResultDocument, replayed: boolean, usage: CallUsage | undefined) {
    this.columns = [...document.columns];
    this.rows = document.rows.map((row) => row.map(valueFromJson));
    this.rowsRead = document.rowsRead;
    this.rowsWritten = document.rowsWritten;
    this.lastInsertRowid = valueFromJson(document.lastInsertRowid) as number | bigint | null;
    this.meta = document.meta;
    [this.replayed, this.usage] = [replayed, usage];
  }

  /** The rows by column name. */
  objects(): Row[] {
    return this.rows.map((row) => Object.fromEntries(this.columns.map((name, index) => [name, row[index]])) as Row);
  }

  [Symbol.iterator](): Iterator<Row> {
    return this.objects()[Symbol.iterator]();
  }

  /** The first row by column name, or undefined. */
  one(): Row | undefined {
    return this.objects()[0];
  }
}

/** The result of a batch, statement by statement. */
export class BatchResult {
  readonly results: readonly Result[];
  readonly rowsWritten: number;
  readonly replayed: boolean;
  /** What all its statements cost together. */
  readonly usage: CallUsage | undefined;

  constructor(document: BatchDocument, replayed: boolean, usage: CallUsage | undefined) {
    this.results = document.results.map((one) => new Result(one, replayed, undefined));
    this.rowsWritten = document.rowsWritten;
    [this.replayed, this.usage] = [replayed, usage];
  }
}

/** What a response holds of one statement. */
export interface ResultDocument {
  columns: string[];
  rows: unknown[][];
  rowsRead: number;
  rowsWritten: number;
  lastInsertRowid: unknown;
  meta: Record<string, unknown>;
}

/** What a response holds of a batch. */
export interface BatchDocument {
  results: ResultDocument[];
  rowsWritten: number;
}
