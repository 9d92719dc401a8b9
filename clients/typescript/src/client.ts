/**
 * `Client`: a service, its databases and its balance ledger.
 */

import { Balance } from "./balance.js";
import { Database } from "./database.js";
import { ConfigurationError } from "./errors.js";
import type { Environment } from "./keys.js";
import { type Reader, resultOf } from "./responses.js";
import {
  type OutgoingRequest,
  RequestSender,
  type RetryOptions,
  type RetryPolicy,
  type Runtime,
  realRuntime,
  retryPolicy,
} from "./retry.js";
import { checkEnvironment, findToken } from "./token.js";

/** How a client is made. */
export interface ClientOptions extends RetryOptions {
  /** The token; without it, that of the environment variable `ONCEWARD_TOKEN`. */
  token?: string | undefined;
  /** The same as `token`. */
  apiKey?: string | undefined;
  /** `live` or `test`: a token for the other one is refused before anything is sent. */
  environment?: Environment | undefined;
  /** Time, chance and the network, where these are not the usual ones: a `fetch` of your own, or a clock that stands still. */
  runtime?: Partial<Runtime> | undefined;
}

/** What any call takes besides. */
export interface CallOptions extends RetryOptions {
  /** Gives the call up: it rejects with the signal's reason. What was sent may still have its effect. */
  signal?: AbortSignal | undefined;
}

/** Sends one call and reads its result. */
export type Ask = <T>(outgoing: OutgoingRequest, read: Reader<T>, options: CallOptions) => Promise<T>;

/**
 * A service.
 *
 * A call with a key is sent again with the same bytes; one without is sent again only if it is known not to have
 * arrived: `maxRetries` times, each attempt for at most `timeout` milliseconds, and all of it for at most `elapsed`.
 */
export class Client {
  /** Where its calls go: `live` or `test`, as the token says. */
  readonly environment: Environment;
  /** The tenant's balance ledger. */
  readonly balance: Balance;

  // Private fields: what prints an object does not see them.
  readonly #policy: RetryPolicy;
  readonly #sender: RequestSender;

  constructor(url: string | URL, options: ClientOptions = {}) {
    const address = checkedAddress(url);
    const token = findToken(options.token, options.apiKey);
    this.environment = checkEnvironment(token, options.environment);
    this.#policy = retryPolicy(options);
    this.#sender = new RequestSender(
      address,
      { Authorization: `Bearer ${token}` },
      { ...realRuntime(), ...options.runtime },
    );
    this.balance = new Balance(this.#ask, this.environment);
  }

  /** One database. */
  db(namespace: string, database: string): Database {
    return new Database(this.#ask, namespace, database);
  }

  readonly #ask: Ask = async (outgoing, read, options) => {
    const end = await this.#sender.send(outgoing, retryPolicy(options, this.#policy), options.signal);
    return resultOf(outgoing, end, read, this.#sender.wallClock());
  };
}

function checkedAddress(url: string | URL): string {
  let parts: URL;
  try {
    parts = new URL(url);
  } catch {
    throw new ConfigurationError("this is not a service's URL. Pass https://host");
  }
  if ((parts.protocol !== "http:" && parts.protocol !== "https:") || parts.search !== "" || parts.hash !== "") {
    throw new ConfigurationError("this is not a service's URL. Pass https://host, without a query");
  }
  if (parts.username !== "" || parts.password !== "") {
    throw new ConfigurationError("the URL must not have a user or a password in it; pass the token as token");
  }
  return parts.origin + parts.pathname.replace(/\/+$/, "");
}
