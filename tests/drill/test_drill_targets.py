"""The drill of somebody's function: what survives, what doubles and at which line, and what behaves badly."""

from __future__ import annotations

import http.server
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from drill_helpers import nurseries_of
from drill_targets import line_of, write_shop

from onceward.drill.nursery import Nursery, NurseryKeeper
from onceward.drill.target.target_proof import TARGET
from onceward.drill.target.target_run import TargetOrder, drill_target
from onceward.drill.target.watches import watch_of
from onceward.errors import ConfigurationError

ROWS = "rows:sqlite:///shop.db:orders"
POINTS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the shop in it, in which everything runs."""
    place, before = tmp_path_factory.mktemp("shop"), Path.cwd()
    write_shop(place)
    os.chdir(place)
    yield place
    os.chdir(before)


@pytest.fixture(scope="module")
def nursery(folder: Path) -> Iterator[Nursery]:
    """One for all: starting it takes longer than a drill."""
    with closing(NurseryKeeper()) as keeper:
        yield keeper.get()


def drill(nursery: Nursery, name: str, *, arguments: Any = None, watch: str = ROWS, **more: Any) -> dict[str, Any]:
    """The document of a drill of a function of the shop."""
    target = name if ":" in name else f"drilled_shop:{name}"
    given = ["order-{n}"] if arguments is None else arguments
    order = TargetOrder(target, given, watch_of(watch), **{"points": POINTS, **more})
    return drill_target(order, nursery)


def numbers_of(document: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the one proof."""
    found: dict[str, Any] = document["proofs"][0]["guarded"]
    return found


class TestJudging:
    """Which functions survive retries."""

    @pytest.mark.fault("drill-doubles-are-not-seen")
    @pytest.mark.parametrize("name", ["plain", "awaiting"])
    def test_a_plain_function_doubles_and_the_line_is_named(self, name: str, nursery: Nursery) -> None:
        """
        Again, at once and after every kill there are more effects; the line is the one that commits.
        """
        document = drill(nursery, name)
        numbers = numbers_of(document)
        commits = line_of("with database:")

        assert document["verdict"] == "BLOCKED"
        assert numbers["effectsOfOne"] == 1
        assert [tried["effects"] > 1 for tried in numbers["tries"]] == [True] * (2 + POINTS)
        assert numbers["line"] == {"number": commits, "text": "with database:"}
        assert f"line {commits} doubles" in document["reasons"][0]

    def test_a_gated_function_survives_and_says_where_it_is_in_doubt(self, nursery: Nursery) -> None:
        """
        Its own gate and key: nothing doubles; killed with the claim, a blind operation asks somebody.
        """
        document = drill(nursery, "blind", points=40)
        numbers = numbers_of(document)
        tries = {tried["what"]: tried for tried in numbers["tries"]}

        assert (document["verdict"], document["reasons"]) == ("PERMITTED", [])
        assert (numbers["gated"], numbers["line"]) == (1, None)
        assert max(tried["effects"] for tried in numbers["tries"]) == 1
        assert (tries["killed at settle.before"]["effects"], tries["killed at settle.before"]["inDoubt"]) == (1, 1)
        assert (tries["killed at settle.after"]["effects"], tries["killed at settle.after"]["inDoubt"]) == (1, 0)
        assert tries[f"killed before line {line_of('return order')}"]["killed"] == 1

    def test_a_gated_coroutine_survives(self, nursery: Nursery) -> None:
        """
        An AsyncGate's function is awaited, and its boundaries are those of its gate.
        """
        document = drill(nursery, "blind_and_awaited")

        assert (document["verdict"], document["reasons"]) == ("PERMITTED", [])
        assert (numbers_of(document)["gated"], numbers_of(document)["line"]) == (1, None)

    def test_a_function_that_looks_in_its_own_transaction_survives(self, nursery: Nursery) -> None:
        """
        No gate is needed to pass: the watch counts, and nothing else.
        """
        document = drill(nursery, "checked")

        assert (document["verdict"], numbers_of(document)["gated"]) == ("PERMITTED", 0)

    def test_a_wrong_guarantee_is_found_out(self, nursery: Nursery) -> None:
        """
        Sent again it replays; killed after its insert it runs again, since it was declared repeatable, and doubles.
        """
        document = drill(nursery, "not_repeatable", points=6)
        numbers = numbers_of(document)
        doubled = [tried["what"] for tried in numbers["tries"] if tried["effects"] > 1]

        assert document["verdict"] == "BLOCKED"
        assert doubled != []
        assert {"again", "5 at once"}.isdisjoint(doubled)
        assert numbers["line"]["number"] == line_of("with database:")

    @pytest.mark.parametrize("name", ["till.charge", "Till.charge_by_itself"])
    def test_a_method_of_an_object_and_a_static_one_are_functions(self, name: str, nursery: Nursery) -> None:
        """
        They can be called as they are named.
        """
        task = {"do": "target_look", "target": f"drilled_shop:{name}", "args": ["an order"], "kwargs": {}}
        [end] = nursery.run([task])

        assert end.report is not None
        assert end.report["file"].endswith("drilled_shop.py")

    def test_without_a_fresh_number_a_good_function_cannot_be_judged(self, nursery: Nursery) -> None:
        """
        It does nothing the second time, as it should; so no kill would show anything.
        """
        document = drill(nursery, "checked", arguments=["the same order"])

        assert document["verdict"] == "BLOCKED"
        assert "put {n} into a string of --args" in document["reasons"][0]

    def test_the_control_must_see_two_effects_of_two_operations(self) -> None:
        """
        A watch that sees one effect whatever happens makes the drill void.
        """
        tried = {"what": "again", "effects": 1, "inDoubt": 0, "held": 0}
        numbers = {"effectsOfOne": 1, "points": 1, "tries": [tried, tried | {"killed": 1}], "line": None}

        assert TARGET.judge(numbers, {"operations": 1, "effects": 2}).holds is True
        assert "void" in TARGET.judge(numbers, {"operations": 1, "effects": 1}).why[0]

    @pytest.mark.parametrize(
        ("change", "holds"),
        [
            ({"effects": 2}, False),
            ({"effects": 0}, False),
            ({"effects": 0, "inDoubt": 1}, True),
            ({"effects": 0, "held": 1}, True),
            ({"effects": 2, "inDoubt": 1}, False),
            ({"killed": 0}, False),
        ],
    )
    def test_an_effect_may_be_missing_only_where_somebody_is_told(self, change: dict[str, int], holds: bool) -> None:
        """
        In doubt, or still held: a retry was refused. Neither excuses a second effect, nor a kill that was none.
        """
        tried = {"what": "x", "effects": 1, "inDoubt": 0, "held": 0, "killed": 1} | change
        numbers = {"effectsOfOne": 1, "points": 1, "tries": [tried], "line": None}

        assert TARGET.judge(numbers, {"operations": 1, "effects": 2}).holds is holds


class TestWhatCannotBeDrilled:
    """Refused before it is run, with what to do."""

    @pytest.mark.fault("drill-live-scopes-are-run")
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("Till.charge", "is a method, and there is no object to call it on"),
            ("Till", "is a class; name a function"),
            ("gate", "is not a function"),
            ("generates", "it is a generator function"),
            ("nobody", "has no 'nobody'"),
            ("no_such_shop:charge", "there is no module 'no_such_shop'"),
            ("broken:charge", "importing broken raised ZeroDivisionError"),
            ("unclosed:charge", "importing unclosed raised SyntaxError"),
            ("leaving:charge", "importing it ended the process (exit code 4). It printed: 'farewell"),
            ("lively:charge", "it has a gate with a live scope"),
        ],
    )
    def test_is_refused_and_not_run(self, name: str, says: str, nursery: Nursery) -> None:
        """
        What it is, and what to name instead.
        """
        before = watch_of(ROWS).count()

        with pytest.raises(ConfigurationError) as caught:
            drill(nursery, name)
        assert says in str(caught.value)
        assert watch_of(ROWS).count() == before

    @pytest.mark.parametrize("arguments", [[], ["a", "b"], {"oder": "a"}])
    def test_arguments_that_do_not_fit_are_refused(self, arguments: Any, nursery: Nursery) -> None:
        """
        With the function's own parameters.
        """
        with pytest.raises(
            ConfigurationError, match=r"cannot be called with these arguments .* Its signature is \(order\)"
        ):
            drill(nursery, "plain", arguments=arguments)


class TestBadBehaviour:
    """Functions that do harm to their process, which is theirs alone."""

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("hangs", "its first run did not end within 0.5 s (--limit); it was killed"),
            ("leaves", "its first run ended the process (exit code 3) before it returned"),
            ("exits", "its first run raised SystemExit: 2"),
            ("raises", "its first run raised ValueError: no such order"),
            ("does_nothing", "its first run had no effect that the watch could see (rows of orders)"),
            ("late_live", "it has a gate with a live scope"),
        ],
    )
    def test_is_told_and_blocks(self, name: str, says: str, nursery: Nursery) -> None:
        """
        Nothing is known about it then, so nothing is permitted; the drill itself lives on.
        """
        before = watch_of(ROWS).count()
        document = drill(nursery, name, seconds=0.5 if name == "hangs" else 30.0)

        assert document["verdict"] == "BLOCKED"
        assert says in document["reasons"][0]
        assert watch_of(ROWS).count() == before

    def test_what_it_prints_is_read_and_thrown_away(self, nursery: Nursery) -> None:
        """
        Sixty million characters do not stop it, and are nowhere kept.
        """
        task = {"do": "target_call", "target": "drilled_shop:prints", "args": ["printed"], "kwargs": {}}
        [end] = nursery.run([task])

        assert (end.code, end.printed) == (0, 60_000_000)
        assert len(end.output) == 4_000

    @pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="orphans can be found on Linux only")
    @pytest.mark.fault("drill-orphans-are-left")
    def test_what_it_forks_is_gone_with_it(self, nursery: Nursery, folder: Path) -> None:
        """
        Also a daemon, with a session of its own.
        """
        task = {"do": "target_call", "target": "drilled_shop:forks", "args": ["forked"], "kwargs": {}}
        nursery.run([task])
        written = folder / "daemons.txt"
        daemons = [int(pid) for pid in written.read_text().split()] if written.exists() else []

        assert nursery.orphans >= 1
        assert [pid for pid in daemons if Path(f"/proc/{pid}").exists()] == []

    def test_the_end_of_the_drill_is_the_end_of_its_children(self, folder: Path) -> None:
        """
        A nursery that is closed in the middle of a call takes the call with it.
        """
        with closing(NurseryKeeper()) as keeper:
            ours = keeper.get()
            ours.start([{"do": "target_call", "target": "drilled_shop:hangs", "args": ["x"], "kwargs": {}}])
            pids = ours.pids

        assert len(pids) == 1
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


class Counter(http.server.BaseHTTPRequestHandler):
    """Answers with a number, or with something else."""

    def do_GET(self) -> None:
        body = {"/count": b'{"charges": 3}', "/plain": b"4", "/text": b'"four"'}.get(self.path, b"<html>")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server that counts."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Counter)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class TestWatches:
    """What is counted."""

    def test_rows_lines_files_and_numbers(self, tmp_path: Path, address: str) -> None:
        """
        Four kinds of effects; what is not there yet has none.
        """
        (tmp_path / "log").write_text("one\ntwo\n")
        with closing(sqlite3.connect(tmp_path / "w.db")) as database, database:
            database.execute("CREATE TABLE orders AS SELECT 1")
        counted = {
            name: watch_of(text.format(tmp_path, address)).count()
            for name, text in {
                "rows": "rows:sqlite:///{0}/w.db:orders",
                "lines": "file:{0}/log",
                "no file": "file:{0}/nothing",
                "files": "folder:{0}",
                "number": "http:{1}/count#/charges",
                "short": "{1}/plain",
            }.items()
        }

        assert counted == {"rows": 1, "lines": 2, "no file": 0, "files": 2, "number": 3, "short": 4}

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("nothing", "rows:DSN:TABLE"),
            ("rows:", "rows:DSN:TABLE"),
            ("rows:sqlite:///w.db:a b", "a table of a SQLite or PostgreSQL database"),
            ('rows:sqlite:///w.db:a"; DROP TABLE a', "a table of a SQLite or PostgreSQL database"),
            ("rows:redis://localhost:key", "a table of a SQLite or PostgreSQL database"),
            ("rows:sqlite:///nowhere.db:a", "there is no file nowhere.db"),
            ("file:/", "cannot read /"),
            ("http:ftp://host/x", "needs a URL"),
            ("{}/text", "does not return a whole number"),
            ("{}/html", "no number could be read"),
            ("{}/count#/nobody", "no number could be read"),
        ],
    )
    def test_what_cannot_be_counted_is_refused(self, text: str, says: str, address: str) -> None:
        """
        Before anything is run.
        """
        with pytest.raises(ConfigurationError) as caught:
            watch_of(text.format(address)).count()
        assert says in str(caught.value)


def test_nothing_of_all_this_runs_any_more(nursery: Nursery) -> None:
    """
    Of the nurseries of this module one is left: the one that the tests share.
    """
    assert len(nurseries_of(os.getpid())) == 1
    assert json.dumps(nursery.run([])) == "[]"
