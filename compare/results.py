"""What was seen: asked, kept in `compare/results.json`, and read again for the page."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from compare.peers import Peer, of_kind
from compare.questions import Question, questions
from compare.servers import Servers
from compare.stage import NoAnswer, Stage
from compare.telling import progress

KEPT = Path(__file__).resolve().parent / "results.json"
Results = dict[str, Any]
OURS = "Onceward"


def ask(
    chosen: Iterable[Question], names: set[str], servers: Servers, folder: Path, missing: dict[str, str]
) -> Results:
    """Every question of every peer that is wanted, one after the other."""
    found: Results = {}
    for question in chosen:
        for peer in of_kind(question.kind):
            if (names and peer.name not in names) or not question.asks(peer.name):
                continue
            answer = answer_of(question, peer, servers, folder, missing)
            found.setdefault(question.name, {})[peer.name] = answer
            progress(f"{question.name:16} {peer.name:24} {shown(question, answer)}")
    return found


def shown(question: Question, answer: dict[str, Any]) -> str:
    """An answer as one line."""
    return question.say(answer["seen"]) if "seen" in answer else f"NOT ASKED: {answer['missing']}"


def answer_of(
    question: Question, peer: Peer, servers: Servers, folder: Path, missing: dict[str, str]
) -> dict[str, Any]:
    """One question to one peer: what was seen, or why there is nothing."""
    known = version("onceward") if peer.ours else peer.needs[peer.name]
    told = {"day": datetime.datetime.now(tz=datetime.UTC).date().isoformat(), "version": known}
    absent = [f"{name} {missing[name]}" for name in peer.needs if name in missing]
    store = peer.store(server=question.server)
    if absent:
        return {**told, "missing": "; ".join(absent)}
    if store is None:
        return {**told, "missing": "it has no store on a server that can be started here"}
    place = folder / f"{question.name}-{peer.adapter}"
    try:
        address = servers.address(store, f"{question.name}_{peer.adapter}", place)
        with Stage(peer, place, address, server=servers.of(store)) as stage:
            return {**told, "store": store, "seen": question.ask(stage)}
    except (NoAnswer, RuntimeError, ValueError, IndexError) as error:
        return {**told, "missing": f"no answer: {type(error).__name__}: {error}".replace(str(folder), "...")}


def wrong(results: Results, known: dict[str, Question]) -> list[str]:
    """Answers of ours that are not what we promise."""
    found = []
    for name, answers in results.items():
        ours = answers.get(OURS)
        if ours is not None and not ("seen" in ours and known[name].right(ours["seen"])):
            found.append(f"{name}: {shown(known[name], ours)}")
    return found


def save(results: Results, path: Path = KEPT) -> None:
    """Keep them; what was not asked now stays as it was, unless nobody asks it any more."""
    known = questions()
    kept = read(path) if path.exists() else {"answers": {}}
    for name, answers in results.items():
        kept["answers"].setdefault(name, {}).update(answers)
    kept["answers"] = {
        name: {peer: answer for peer, answer in answers.items() if known[name].asks(peer)}
        for name, answers in kept["answers"].items()
        if name in known
    }
    kept["machine"] = {"system": platform.system(), "python": platform.python_version()}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path = KEPT) -> Results:
    """What is kept."""
    kept: Results = json.loads(path.read_text(encoding="utf-8"))
    return kept
