"""What its command shows of a call that was killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compare.questions import Data, Question
from compare.stage import Stage

COMMANDS = {
    "Onceward": ("onceward", "records", "list", "--store", "{url}"),
    "agent-once": ("once", "ls", "--db", "{file}"),
    "dbos": ("dbos", "workflow", "list", "--sys-db-url", "{url}"),
    "temporalio": ("temporal", "workflow", "list", "--address", "{url}"),
    "idemkey": ("idemkey", "--store", "{file}", "log"),
}
"""The command of each that lists what there is, from its documentation."""


def ask(stage: Stage) -> Data:
    """Kill a call after its effect, and run the command."""
    first = stage.ask(("order-4711", {"amount": 5}), then="hold")
    first.held()
    first.kill()
    program, *arguments = COMMANDS[stage.peer.name]
    filled = [one.format(url=stage.url, file=stage.folder / "kept.db") for one in arguments]
    done = subprocess.run(
        [str(Path(stage.python).with_name(program)), *filled],
        cwd=stage.folder, env=stage.environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    words = " ".join(one for one in COMMANDS[stage.peer.name] if not one.startswith(("-", "{")))
    return {"command": words, "code": done.returncode, "shown": "4711" in done.stdout}


def say(data: Data) -> str:
    """Whether the key is in what it prints."""
    if data["code"] != 0:
        return f"`{data['command']}` ended with {data['code']}"
    return f"`{data['command']}` {'shows it by its key' if data['shown'] else 'does not show its key'}"


def better(ours: Data, theirs: Data) -> str | None:
    """It shows the key, and ours does not."""
    if theirs["shown"] and not ours["shown"]:
        return ""
    return None


QUESTION = Question(
    name="looks",
    title="A call was killed. Which command shows it?",
    how="The command that lists what there is. It should name the key that was killed.",
    ask=ask,
    say=say,
    cell=lambda data: "yes" if data["shown"] else "no",
    right=lambda data: data["code"] == 0 and data["shown"],
    better=better,
    best=lambda ours: "Show a killed call by its key; our list did not",
    only=tuple(COMMANDS),
    order=31,
)
