/**
 * Exact amounts: decimals with up to nine places, kept as whole billionths in a bigint. Nothing is rounded.
 */

import { RequestInvalid } from "./errors.js";

/** A whole number, or text such as "12.50". A number with a fraction is refused: 0.1 is not exact. */
export type Amount = number | bigint | string;

const PLACES = 9;
const BILLION = 10n ** BigInt(PLACES);
const DELTA_MAX = 1_000_000_000n;
const TEXT_CHARACTERS_MAX = 64;
const SPELLED = /^([-+]?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]{1,3}))?$/;
const ADVICE =
  'send a whole number or a text such as -1 or "12.50": not zero, at most 1,000,000,000 of either sign, at most 9 decimal places';

/** A delta as whole billionths; `RequestInvalid` for anything that is no amount. */
export function parseAmount(value: unknown): bigint {
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw refused(
      Number.isInteger(value) ? "is out of bounds" : "is a number with a fraction, which is not exact: pass it as text",
    );
  }
  if (typeof value === "number" || typeof value === "bigint") return bounded(BigInt(value) * BILLION);
  if (typeof value !== "string") throw refused(`is ${value === null ? "null" : `a ${typeof value}`}`);
  const found = value.length <= TEXT_CHARACTERS_MAX ? SPELLED.exec(value) : null;
  if (found === null) throw refused("is not a decimal number");
  const [, sign, whole, fraction = "", exponent = "0"] = found;
  // Zeros at the end say nothing, however many there are; so do those in front.
  const digits = (whole! + fraction).replace(/^0+/, "");
  const telling = digits.replace(/0+$/, "");
  if (telling === "") throw refused("is zero");
  const power = Number(exponent) - fraction.length + digits.length - telling.length;
  // The exponent is looked at before anything is multiplied out.
  if (telling.length + power > 10) throw refused("is out of bounds");
  const shift = power + PLACES;
  if (shift < 0) throw refused(`has more than ${PLACES} decimal places, and is not rounded`);
  const billionths = BigInt(telling) * 10n ** BigInt(shift);
  return bounded(sign === "-" ? -billionths : billionths);
}

/** Billionths as an exact decimal, without needless zeros: 12500000000n is "12.5". */
export function formatAmount(billionths: bigint): string {
  const [sign, size] = billionths < 0n ? ["-", -billionths] : ["", billionths];
  const decimals = (size % BILLION).toString().padStart(PLACES, "0").replace(/0+$/, "");
  return `${sign}${size / BILLION}${decimals === "" ? "" : `.${decimals}`}`;
}

function bounded(billionths: bigint): bigint {
  if (billionths === 0n) throw refused("is zero");
  if (billionths > DELTA_MAX * BILLION || billionths < -DELTA_MAX * BILLION) throw refused("is out of bounds");
  return billionths;
}

function refused(fault: string): RequestInvalid {
  return new RequestInvalid(`delta ${fault}; ${ADVICE}. Nothing was sent`);
}
