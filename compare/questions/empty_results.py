"""Results that are empty, zero or false."""

from __future__ import annotations

from compare.place import FALSY
from compare.questions import Data, Question
from compare.stage import Stage


def ask(stage: Stage) -> Data:
    """Each of them, twice."""
    wrong, ran = [], 0
    for place, value in enumerate(FALSY):
        outcomes = stage.answers(*[(f"key-{place}", {})] * 2, then=f"falsy:{place}", name=f"v{place}")
        if outcomes[1] != {"returned": value}:
            wrong.append([repr(value), outcomes[1]])
        ran += stage.effects()[f"key-{place}"]
    return {"wrong": wrong, "effects": ran}


def say(data: Data) -> str:
    """Which came back as something else."""
    if data["effects"] > len(FALSY):
        return f"{data['effects']} effects for {len(FALSY)} keys"
    if not data["wrong"]:
        return "each was replayed as it was"
    values = ", ".join(f"`{value}`" for value, _ in data["wrong"])
    came = sorted(
        {f"`{seen['returned']}`" if "returned" in seen else f"`{seen['raised']}`" for _, seen in data["wrong"]}
    )
    return f"{values} came back as {', '.join(came)}"


QUESTION = Question(
    name="empty-results",
    title='The result is `[]`, `0`, `False`, `""` or `{}`.',
    how="Each is returned once and replayed once. The same value is right.",
    ask=ask,
    say=say,
    cell=lambda data: "as they were" if not data["wrong"] else f"{len(data['wrong'])} of {len(FALSY)} wrong",
    right=lambda data: not data["wrong"] and data["effects"] == len(FALSY),
    order=18,
)
