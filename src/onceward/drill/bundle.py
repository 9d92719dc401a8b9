"""
The evidence bundle: what a drill came to, as one JSON document with a digest, and the verdict that follows from it.

    PERMITTED    every proof that was chosen holds, and every control went wrong as it must
    BLOCKED      one does not, or could not be run; the reasons say which and why

`verify` takes nothing on trust: the digest is computed again, each proof is judged again from its numbers, and the
verdict again from that. A digest is not a signature: it shows that a bundle was edited, not who made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from onceward._core.canonical import canonical
from onceward._core.errors import ConfigurationError, RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.drill.proof import ProofClaims, ProofJudgement

FORMAT = "onceward-drill/1"
PERMITTED, BLOCKED = "PERMITTED", "BLOCKED"
BYTES_MAX = 4_000_000
"""Of a bundle: hundreds of times what a drill writes."""


def sealed(document: dict[str, Any], proofs: Mapping[str, ProofClaims]) -> dict[str, Any]:
    """The document with each proof's judgement, the verdict, its reasons and the digest."""
    for entry in document["proofs"]:
        found = judged(entry, proofs[entry["name"]])
        entry |= {"holds": found.holds, "why": list(found.why)}
    reasons = reasons_of(document, proofs)
    document |= {"verdict": BLOCKED if reasons else PERMITTED, "reasons": reasons}
    return document | {"digest": digest_of_bundle(document)}


def judged(entry: Mapping[str, Any], proof: ProofClaims) -> ProofJudgement:
    """What the numbers of one entry come to."""
    if entry.get("broke"):
        return ProofJudgement(False, (f"it did not run to its end: {entry['broke']}",))
    return proof.judge(_numbers(entry, "guarded"), _numbers(entry, "control"))


def reasons_of(document: Mapping[str, Any], proofs: Mapping[str, ProofClaims]) -> list[str]:
    """Why the verdict is BLOCKED, from the numbers; nothing if it is not."""
    reasons = [
        f"{entry['name']}: {why}" for entry in document["proofs"] for why in judged(entry, proofs[entry["name"]]).why
    ]
    return reasons or ([] if document["proofs"] else ["no proof was run"])


def digest_of_bundle(document: Mapping[str, Any]) -> str:
    """The digest over everything in a bundle but the digest."""
    return (
        "sha256:" + sha256(canonical({name: value for name, value in document.items() if name != "digest"})).hexdigest()
    )


def read_bundle(path: Path) -> Any:
    """The document in a file, whatever it is."""
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read the bundle {str(path)!r}: {error.strerror}") from None
    if len(raw) > BYTES_MAX:
        raise ConfigurationError(f"{str(path)!r} is not a drill bundle: it has more than {BYTES_MAX:,} bytes")
    try:
        return parse_json(raw)
    except RequestInvalid as error:
        raise ConfigurationError(f"{str(path)!r} is not a drill bundle: {error}") from None


def faults_of(document: Any, proofs: Mapping[str, ProofClaims]) -> list[str]:
    """What is wrong with a bundle, one sentence each; nothing if it is whole and says what its numbers say."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return [f"it is not a drill bundle: its format is not {FORMAT}"]
    entries, left_out = document.get("proofs"), document.get("leftOut")
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        return ["its proofs are not a list of objects"]
    if not isinstance(left_out, dict) or not isinstance(document.get("chosen"), list):
        return ["it does not say which proofs were chosen, and which were skipped"]
    names = [one.get("name") for one in entries]
    if unknown := [name for name in [*names, *left_out] if not isinstance(name, str) or name not in proofs]:
        return [f"this version knows no proof {unknown[0]!r}; verify with the version that made it"]
    faults = []
    if document.get("digest") != digest_of_bundle(document):
        faults.append("the digest does not match: the bundle was edited after it was made")
    if sorted([*names, *left_out]) != sorted(map(str, document["chosen"])):
        faults.append("the chosen proofs are not those that were run or skipped")
    faults += [f"{name}: it was skipped, although it needs nothing that could be missing" for name in left_out
               if not proofs[name].needs]  # fmt: skip
    for entry in entries:
        found = judged(entry, proofs[entry["name"]])
        if entry.get("holds") is not found.holds:
            says = "holds" if entry.get("holds") else "does not hold"
            faults.append(f"{entry['name']}: the bundle says that it {says}; its numbers say otherwise. "
                          + "; ".join(found.why))  # fmt: skip
    reasons = reasons_of(document, proofs)
    verdict = BLOCKED if reasons else PERMITTED
    if document.get("verdict") != verdict:
        faults.append(f"the bundle gives the verdict as {str(document.get('verdict'))[:40]}; the numbers say {verdict}")
    return faults


def _numbers(entry: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    found = entry.get(side)
    return found if isinstance(found, Mapping) else {}
