/**
 * What makes a call safe to send again: a key, or a step of a plan; or neither.
 */

import { AmbiguousIdentity, KeyMissing, PlanIncomplete } from "./errors.js";
import { SQL_KEY_CHARACTERS_MAX, checkKey } from "./keys.js";

/** A call under a key. */
export interface ByKey {
  /** Names what is to happen once: the same on every attempt, and another for every operation. */
  idempotencyKey: string;
  planKey?: never;
  planStep?: never;
}

/** A call that is a step of a plan. */
export interface ByStep {
  planKey: string;
  planStep: string;
  idempotencyKey?: never;
}

/** A call without either: sent again only if it is known not to have arrived. */
export interface Unnamed {
  idempotencyKey?: never;
  planKey?: never;
  planStep?: never;
}

/** One of the three. */
export type Identity = ByKey | ByStep | Unnamed;

/** The headers that carry the identity of a call, and what its errors call it; refused if it is not valid. */
export function identityOf(given: Identity): { headers: Record<string, string>; key: string | undefined } {
  const options = given as { idempotencyKey?: unknown; planKey?: unknown; planStep?: unknown };
  for (const name of ["idempotencyKey", "planKey", "planStep"] as const) {
    // Somebody meant to give one, and has none: sent without it, a retry could do it twice.
    if (name in options && (options[name] === undefined || options[name] === null)) {
      throw new KeyMissing(
        `${name} is there, but ${String(options[name])}; pass text, or leave the option out. Nothing was sent`,
      );
    }
  }
  const { idempotencyKey, planKey, planStep } = options;
  if ((planKey === undefined) !== (planStep === undefined)) {
    throw new PlanIncomplete("planKey and planStep go together: pass both, or neither. Nothing was sent");
  }
  if (idempotencyKey !== undefined && planKey !== undefined) {
    throw new AmbiguousIdentity("a call has either an idempotencyKey or a planKey, not both. Nothing was sent");
  }
  if (planKey !== undefined) {
    const plan = checkKey(planKey, SQL_KEY_CHARACTERS_MAX, "the planKey");
    const step = checkKey(planStep, SQL_KEY_CHARACTERS_MAX, "the planStep");
    return { headers: { "Plan-Key": plan, "Plan-Step": step }, key: `${plan} / ${step}` };
  }
  if (idempotencyKey === undefined) return { headers: {}, key: undefined };
  const key = checkKey(idempotencyKey, SQL_KEY_CHARACTERS_MAX, "the idempotencyKey");
  return { headers: { "Idempotency-Key": key }, key };
}
