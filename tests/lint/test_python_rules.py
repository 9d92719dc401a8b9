"""What the Python rules understand: names, aliases, loops, and the samples of the requirements."""

from __future__ import annotations

import pytest
from linting import codes_in, findings_in

from onceward import Gate
from onceward.lint.python.checks import check_python
from onceward.lint.source_file import SourceFile


class TestNames:
    """A name counts as what the file shows it to be."""

    @pytest.mark.parametrize(
        "lines",
        [
            "import time\nkey = time.time()",
            "import time as t\nkey = t.time()",
            "from time import time\nkey = time()",
            "from time import time as now\nkey = now()",
            "import time\nclock = time.time\nkey = clock()",
            "import datetime\nkey = datetime.datetime.now()",
            "from datetime import datetime\nkey = datetime.now().isoformat()",
        ],
    )
    @pytest.mark.fault("lint-aliases-are-not-followed")
    def test_an_import_is_known_under_whatever_name(self, lines: str) -> None:
        """
        The module, an alias of it, the function, an alias of that, a plain assignment.
        """
        assert codes_in(f"{lines}\npay(idempotency_key=key)\n") == ["OW101"]

    @pytest.mark.parametrize(
        "lines",
        [
            "def time(): return order.id\nkey = time()",
            "from shop import time\nkey = time.time()",
            "import time\ndef f(time):\n    pay(idempotency_key=time.time())\nkey = 'x'",
        ],
    )
    def test_another_thing_of_that_name_is_another_thing(self, lines: str) -> None:
        """
        What the file itself defines, imports from elsewhere, or takes as a parameter is not the clock.
        """
        assert codes_in(f"{lines}\npay(idempotency_key=key)\n") == []

    def test_a_finding_is_where_the_clock_is_read(self) -> None:
        """
        Line and column of the ingredient, counted in characters, and not of the call that takes the key.
        """
        (finding,) = findings_in(
            """\
            import time
            straße = time.time()
            pay(größe=1, idempotency_key=f"ä{straße}")
            """
        )

        assert (finding.line, finding.column, finding.end_column) == (2, 10, 21)


class TestRequirements:
    """The samples of the documents."""

    @pytest.mark.requirement("D15")
    @pytest.mark.parametrize(
        ("recipe", "codes"),
        [
            ('f"{user_id}:{timestamp}"', ["OW101"]),
            ('f"{user_id}:{retry_count}"', ["OW104"]),
            ('f"{user_id}:{task_id}:{step_id}"', []),
        ],
    )
    def test_the_three_samples_are_told_apart(self, recipe: str, codes: list[str]) -> None:
        """
        A timestamp and a retry count differ on each retry; user, task and step do not.
        """
        text = f"""\
            def book_flight(flight_id, user_id, task_id, step_id, timestamp, retry_count):
                idempotency_key = {recipe}
                return api.book(flight_id=flight_id, idempotency_key=idempotency_key)
            """

        assert codes_in(text) == codes

    @pytest.mark.requirement("C18")
    @pytest.mark.parametrize("made", ["time.time()", "uuid.uuid4()", "random.random()", "id(order)"])
    def test_what_cannot_be_computed_again_is_no_key(self, made: str) -> None:
        """
        Neither the wall clock alone nor anything that is made afresh.
        """
        text = f"import random, time, uuid\ndef pay(order):\n    api.pay(order, idempotency_key=str({made}))\n"

        assert len(codes_in(text)) == 1

    @pytest.mark.requirement("C20")
    @pytest.mark.fault("lint-key-in-the-loop")
    def test_a_key_that_varies_by_attempt_is_two_operations_and_is_warned_about(self) -> None:
        """
        The hazard itself, and the linter's word on the very same text.
        """
        text = """\
            def pay(gate, order, effects):
                for attempt in range(2):
                    try:
                        gate.run(f"{order}:{attempt}", lambda: effects.append(order), guarantee="blind")
                        lose_the_answer()
                        return
                    except TimeoutError:
                        continue
            """
        effects: list[str] = []
        with Gate("memory://", scope="test:lint") as gate:
            for attempt in range(2):
                gate.run(f"o-17:{attempt}", lambda: effects.append("o-17"), guarantee="blind")

        assert effects == ["o-17", "o-17"]
        assert codes_in(
            text.replace("gate, order", "gate: Gate, order").replace(
                "def", "from onceward import Gate\n            def", 1
            )
        ) == ["OW104"]

    @pytest.mark.requirement("C60")
    @pytest.mark.parametrize(
        ("mode", "code", "text"),
        [
            ("key reuse", "OW107", 'def pay(order):\n    api.pay(order, idempotency_key="pay")\n'),
            ("retrying 400 and 401", "OW113", "RETRY_STATUSES = {400, 401, 503}\n"),
            ("unbounded retry", "OW114", "from tenacity import retry\n@retry\ndef f(): return fetch()\n"),
            (
                "references from the wall clock",
                "OW101",
                "import time\nledger.emit('c', -1, 'call', reference_id=f'v:op:{time.time()}')\n",
            ),
            (
                "a slow handler that works before it answers",
                "OW130",
                "@app.post('/webhooks')\ndef hook(event):\n    process_event(event)\n    return 'ok'\n",
            ),
            (
                "a balance derived for each event",
                "OW132",
                "def f(ledger, events):\n    for e in events:\n        ledger.emit(e)\n        ledger.derive(e)\n",
            ),
        ],
    )
    def test_each_of_the_six_failure_modes_has_a_rule(self, mode: str, code: str, text: str) -> None:
        """
        The modes that the third document lists, each found in a few lines that have it.
        """
        assert codes_in(text) == [code], mode


class TestRetries:
    """What is a retry, and what is not."""

    def test_the_marked_line_is_the_write(self) -> None:
        """
        In a loop of twenty lines it is the write that needs the key.
        """
        (finding,) = findings_in(
            """\
            import requests

            def pay(order):
                for attempt in range(3):
                    try:
                        return requests.post("https://x.example/orders", json=order)
                    except requests.Timeout:
                        log(attempt)
            """
        )

        assert (finding.code, finding.line) == ("OW110", 6)

    @pytest.mark.fault("lint-items-are-attempts")
    def test_a_loop_over_items_is_no_retry(self) -> None:
        """
        It leaves out an item that fails, and sends none twice.
        """
        text = """\
            import requests

            def send(orders):
                for order in orders:
                    try:
                        requests.post("https://x.example/orders", json=order)
                    except requests.Timeout:
                        continue
            """

        assert codes_in(text) == []

    def test_a_function_in_a_loop_is_not_called_by_it(self) -> None:
        """
        What is only defined inside a retry may be called later, once.
        """
        text = """\
            import uuid

            def build():
                for attempt in range(3):
                    try:
                        def late(order):
                            return pay(order, idempotency_key=order.id)
                        return late
                    except OSError:
                        continue
            """

        assert codes_in(text) == []


class TestSize:
    """A large file takes time, and no more than that."""

    @pytest.mark.parametrize(
        "text",
        [
            "x = " + "+".join(["a"] * 20_000),
            "x = " + "f(" * 150 + ")" * 150,
            "x = " + "-" * 50_000 + "1",
            "x = a" + ".b" * 50_000,
            "x = a" + "()" * 20_000,
            "if a:\n" + "".join(" " * depth + "if a:\n" for depth in range(1, 99)) + " " * 99 + "pass\n",
        ],
    )
    def test_deep_nesting_is_a_finding_and_no_crash(self, text: str) -> None:
        """
        Either it is checked and clean, or it is said that it was too deep.
        """
        assert {finding.code for finding in check_python(SourceFile("x.py", text))} <= {"OW903"}

    def test_names_behind_names_are_followed_so_far(self) -> None:
        """
        A chain that doubles at each step would take for ever if every name was followed twice.
        """
        lines = [f"a{number} = a{number + 1} + a{number + 1}" for number in range(200)]
        text = "\n".join([*lines, "a200 = order.id", "pay(idempotency_key=a0)"])

        assert codes_in(text) == []
