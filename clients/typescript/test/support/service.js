/** The real service that the tests run against: whoever starts them (`make test-ts`) says where it is. */

import { randomBytes } from "node:crypto";
import { Client } from "onceward";

export const address = process.env.ONCEWARD_TEST_ADDRESS;
export const token = process.env.ONCEWARD_TEST_TOKEN;
if (!address || !token) throw new Error("these tests need a service: run `make test-ts`");

/** A name that no other test has. */
export const fresh = (kind = "t") => `${kind}${randomBytes(6).toString("hex")}`;

/** A client of the service, or of somebody in between. */
export const clientOf = (options = {}, at = address) => new Client(at, { token, ...options });

/** A database of the test's own, with a table `events`: reached directly, whatever stands in between for others. */
export async function database(name = fresh()) {
  const db = clientOf().db("demo", name);
  await db.create();
  await db.query("CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT NOT NULL)");
  return { db, name };
}

/** How many rows there are, asked without anybody in between. */
export async function rowsOf(name, table = "events") {
  return (await clientOf().db("demo", name).query(`SELECT count(*) FROM ${table}`)).rows[0][0];
}
