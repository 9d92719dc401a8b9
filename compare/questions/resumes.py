"""Three steps, killed in the second: who goes on, and when."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from compare.place import Place, patience
from compare.questions import Data, Question, number
from compare.stage import NoAnswer, Stage

WAIT_SECONDS = 30.0
PAUSE_SECONDS = 0.05


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """One process: it runs the steps, or (the second time) only starts up and waits; then it calls."""
    again = (folder / "steps.txt").exists()

    def work(step: str) -> str:
        with (folder / "steps.txt").open("a") as file:
            file.write(f"{step}\n")
        if step == "two" and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        return step

    run = adapter.steps(Place(folder, url), work)
    if not again:
        run()
    until = time.monotonic() + patience(WAIT_SECONDS)
    while time.monotonic() < until and "three" not in (folder / "steps.txt").read_text().split():
        time.sleep(PAUSE_SECONDS)
    alone = "three" in (folder / "steps.txt").read_text().split()
    result = run()
    return {"alone": alone, "result": result, "steps": Counter((folder / "steps.txt").read_text().split())}


def ask(stage: Stage) -> Data:
    """The first process dies of it; the second tells what it saw."""
    with contextlib.suppress(NoAnswer):
        stage.inside("resumes")
    return stage.inside("resumes")


def say(data: Data) -> str:
    """Whether somebody had to call, and how often each step ran."""
    steps = ", ".join(f"{step} {number(data['steps'].get(step, 0))}" for step in ("one", "two", "three"))
    began = "a new process went on by itself" if data["alone"] else "it went on when it was called again"
    return f"{began}; runs of the steps: {steps}"


def better(ours: Data, theirs: Data) -> str | None:
    """Nobody had to call."""
    if theirs["alone"] and not ours["alone"]:
        return ""
    return None


QUESTION = Question(
    name="resumes",
    title="Three steps, killed in the second. Who continues?",
    how=(
        "`kill -9` in step two; a new process starts and waits half a minute, then calls. Continuing without a "
        "call is best; step one must not run again."
    ),
    ask=ask,
    row="Three steps, killed in the second: goes on",
    say=say,
    cell=lambda data: "by itself" if data["alone"] else "when called",
    right=lambda data: data["steps"].get("one") == 1 and data["steps"].get("three") == 1,
    better=better,
    best=lambda ours: "Resume a killed workflow automatically; Onceward's plan waits until it is called again",
    only=("Onceward", "dbos", "temporalio"),
    order=30,
)
