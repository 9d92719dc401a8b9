"""New code is deployed between two calls with one key."""

from __future__ import annotations

import re

from compare.peers import ROOT
from compare.place import patience
from compare.questions import Data, Question, effects, got
from compare.stage import NoAnswer, Stage

LEASE_SECONDS, PATIENCE_SECONDS = 1.5, 15.0
DONE, KILLED = ("done", {"amount": 5}), ("killed", {"amount": 5})


def changed(source: str) -> str:
    """The adapter after a deployment: one more line in every function that it declares."""
    return re.sub(r"^( +)(return (?:await )?(?:work|charge)\()", r"\1deployed = True\n\1\2", source, flags=re.MULTILINE)


def ask(stage: Stage) -> Data:
    """One call is done and one killed after its effect; then both are called again by code that differs by a line."""
    (first,) = stage.answers(DONE, lease=LEASE_SECONDS)
    held = stage.ask(KILLED, then="hold", name="held", lease=LEASE_SECONDS)
    held.held()
    held.kill()
    stage.go()
    source = (ROOT / "compare" / "adapters" / f"{stage.peer.adapter}.py").read_text()
    (stage.folder / "deployed").mkdir()
    (stage.folder / "deployed" / f"{stage.peer.adapter}.py").write_text(changed(source))
    outcomes = stage.answers(
        DONE,
        KILLED,
        name="second",
        lease=LEASE_SECONDS,
        code=stage.folder / "deployed",
        how="patiently",
        seconds=patience(PATIENCE_SECONDS),
    )
    if len(outcomes) == 1:
        raise NoAnswer(f"the first call after the deployment: {outcomes[0]}")
    counted = stage.effects()
    return {
        "effects": counted["done"],
        "replayed": outcomes[0] == first,
        "killed": counted["killed"],
        "killed_got": outcomes[1],
    }


def say(data: Data) -> str:
    """Whether the first was replayed, and what became of the other."""
    replayed = "was replayed" if data["replayed"] and data["effects"] == 1 else f"had {effects(data['effects'])}"
    killed = f"had {effects(data['killed'])}, and its caller got {got(data['killed_got'])}"
    return f"what was done {replayed}; what was killed {killed}"


QUESTION = Question(
    name="deployed",
    title="New code is deployed between two calls with one key.",
    how=(
        "One call is done, one is killed after its effect; then a process whose functions differ by a line calls both "
        "again. Right: the first is replayed, and neither has a second effect."
    ),
    ask=ask,
    say=say,
    cell=lambda data: "replayed" if data["replayed"] else "not replayed",
    right=lambda data: data["replayed"] and data["effects"] == 1 and data["killed"] == 1,
    order=23,
)
