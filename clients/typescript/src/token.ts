/**
 * The token of a client: given, or from the environment. Checked before anything is sent, and never shown.
 */

import { ConfigurationError, TokenInvalid } from "./errors.js";
import type { Environment } from "./keys.js";

/** The environment variable with the token, where there are environment variables. */
export const TOKEN_VARIABLE = "ONCEWARD_TOKEN";

const TOKEN_CHARACTERS = 60;
const CHECKSUM_CHARACTERS = 6;
const TOKEN = /^ow_(live|test)_[0-9a-z]{12}_[0-9A-Za-z]{33}[0-9A-Za-z]{6}$/;
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** The environment of a token; `TokenInvalid` if it cannot be one. Nothing of it is repeated in the error. */
export function environmentOfToken(text: string): Environment {
  const found = text.length === TOKEN_CHARACTERS ? TOKEN.exec(text) : null;
  if (found === null) {
    throw new TokenInvalid(
      `this is not a token. Copy it whole, without blanks or line ends: a token has ${TOKEN_CHARACTERS} characters and ` +
        "begins with ow_live_ or ow_test_",
    );
  }
  if (checksum(text.slice(0, -CHECKSUM_CHARACTERS)) !== text.slice(-CHECKSUM_CHARACTERS)) {
    throw new TokenInvalid("the token was copied wrongly: its checksum does not match. Copy it again, whole");
  }
  return found[1] as Environment;
}

/** The token that was given under either name, or that of the environment variable. */
export function findToken(token: string | undefined, apiKey: string | undefined): string {
  if (token !== undefined && apiKey !== undefined) {
    throw new ConfigurationError("token and apiKey mean the same; pass one of them");
  }
  const found = (token ?? apiKey ?? variable(TOKEN_VARIABLE) ?? "").trim();
  if (found === "") {
    throw new ConfigurationError(
      `there is no token. Set the environment variable ${TOKEN_VARIABLE}, or pass token; ` +
        "`onceward token create` makes one",
    );
  }
  return found;
}

/** The token's environment, if it is the one that the client is for. */
export function checkEnvironment(text: string, wanted: Environment | undefined): Environment {
  if (wanted !== undefined && wanted !== "live" && wanted !== "test") {
    throw new ConfigurationError("environment must be one of live, test");
  }
  const found = environmentOfToken(text);
  if (wanted !== undefined && found !== wanted) {
    throw new ConfigurationError(
      `this is a token for ${found}, and the client is for ${wanted}; nothing was sent. Use a token for ${wanted}, or ` +
        `make the client with environment: "${found}"`,
    );
  }
  return found;
}

function variable(name: string): string | undefined {
  try {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return process?.env?.[name];
  } catch {
    return undefined; // Deno without the permission to read it.
  }
}

function checksum(body: string): string {
  let number = crc32(body);
  let digits = "";
  for (let i = 0; i < CHECKSUM_CHARACTERS; i++) {
    digits = DIGITS[number % 62]! + digits;
    number = Math.floor(number / 62);
  }
  return digits;
}

function crc32(text: string): number {
  let remainder = 0xffffffff;
  for (const character of text) {
    remainder ^= character.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) remainder = (remainder >>> 1) ^ (remainder & 1 ? 0xedb88320 : 0);
  }
  return (remainder ^ 0xffffffff) >>> 0;
}
