"""
The TypeScript client (`clients/typescript`): its own suite, on Node.js's own runner, against a real `onceward serve`.

`make test-ts` runs this folder. Where there is no Node.js, the closing line of the run says so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward import Client, derive
from onceward.client import NewDelta, Reference
from onceward.client.responses import _CLASSES
from servers.node import CLIENT, built_client, compile_typescript, why_no_node
from service.service_support import Served

SECONDS_MAX = 250
FILES = sorted(path.name for path in (CLIENT / "test").glob("*.test.js"))
SHARED = CLIENT.parents[1] / "tests" / "core" / "golden" / "shared.json"


FAILED = re.compile(r"^ *not ok \d+ - (.*)$", re.MULTILINE)
PASSED = re.compile(r"^ *ok \d+ - (.*)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))


def run_suite(name: str, served: Served) -> tuple[list[str], list[str], str]:
    """What passed, what failed, and all that was printed."""
    folder = built_client()
    ran = subprocess.run(
        ["node", "--test", "--test-reporter=tap", f"test/{name}"],
        cwd=folder,
        env={**os.environ, "ONCEWARD_TEST_ADDRESS": served.address, "ONCEWARD_TEST_TOKEN": served.token},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    printed = ran.stdout + ran.stderr
    failed = FAILED.findall(ran.stdout)
    if ran.returncode != 0 and all(one.endswith(name) for one in failed):  # The file itself, and no test of it.
        raise RuntimeError(f"{name} did not run:\n{printed[-3000:]}")
    return PASSED.findall(ran.stdout), failed, printed


def expect_all_pass(name: str, served: Served, least: int) -> None:
    """Run a file of the suite: every test of it passes, and there are so many at least."""
    passed, failed, printed = run_suite(name, served)
    complaints = "\n".join(line for line in printed.splitlines() if re.match(r" *(not ok|error:|.*Error)", line))

    assert failed == [], complaints[:3000]
    assert len(passed) >= least


@pytest.mark.slow
@pytest.mark.requirement("B07", "B08", "B09", "C21")
@pytest.mark.fault("ts-numbers-are-not-canonical", "ts-strings-are-not-canonical", "ts-names-are-in-another-order")
@pytest.mark.fault("ts-sets-are-in-another-order", "ts-derived-keys-have-no-lengths")
def test_bytes_and_keys_are_those_of_python(served: Served) -> None:
    """
    Canonical form, derived keys, amounts, waits, verdicts and errors: the vectors that both languages read.
    """
    expect_all_pass("golden.test.js", served, 20)


@pytest.mark.slow
@pytest.mark.requirement("A02", "C26", "C27", "C22")
@pytest.mark.fault("ts-retries-without-a-key", "ts-the-key-changes-between-attempts", "ts-the-servers-wait-is-ignored")
@pytest.mark.fault("ts-half-an-answer-is-an-answer", "ts-the-whole-call-has-no-limit", "ts-doubt-is-forgotten")
@pytest.mark.fault("ts-a-request-under-way-is-a-success")
def test_whatever_is_lost_on_the_way_one_effect(served: Served) -> None:
    """
    Somebody in between loses answers, cuts lines and sends refusals: the same bytes again, or not at all.
    """
    expect_all_pass("retries.test.js", served, 40)


@pytest.mark.slow
@pytest.mark.requirement("A02", "A19", "A22", "A23", "A24", "C09", "C12", "C13")
@pytest.mark.fault("ts-steps-of-a-plan-are-one")
def test_the_documents_own_samples_work(served: Served) -> None:
    """
    The samples of the first and the third document, word for word.
    """
    expect_all_pass("documents.test.js", served, 7)


@pytest.mark.slow
@pytest.mark.fault("ts-large-whole-numbers-are-rounded")
def test_values_results_and_the_ledger(served: Served) -> None:
    """
    Whatever goes into a database or a ledger comes back as it was.
    """
    expect_all_pass("client.test.js", served, 12)


@pytest.mark.slow
@pytest.mark.fault(
    "ts-jitter-is-not-full", "ts-a-missing-key-is-no-key", "ts-the-key-is-printed", "ts-the-token-is-printed"
)
def test_what_is_decided_before_anything_is_sent(served: Served) -> None:
    """
    Waits, refusals, secrets.
    """
    expect_all_pass("units.test.js", served, 35)


@pytest.mark.slow
def test_the_package_has_what_it_needs_and_nothing_else(served: Served) -> None:
    """
    `npm pack`: built code, types, licence, one page. No dependencies, and a lock file without addresses.
    """
    expect_all_pass("package.test.js", served, 4)


def test_every_file_of_the_suite_is_run() -> None:
    """
    No file of the suite can be forgotten here.
    """
    text = Path(__file__).read_text(encoding="utf-8")

    assert [name for name in FILES if f'expect_all_pass("{name}"' not in text] == []


@pytest.mark.slow
@pytest.mark.fault("ts-a-plan-without-a-step-compiles")
def test_what_may_be_written_compiles_and_what_must_not_does_not() -> None:
    """
    `test/types`: right.ts compiles; each marked line of wrong.ts does not.
    """
    project = built_client() / "test" / "types" / "tsconfig.json"

    assert compile_typescript(project) == ""


@pytest.mark.slow
def test_it_is_tidy() -> None:
    """
    As the formatter writes it: `npm run format` in its folder.
    """
    tidy = built_client() / "node_modules" / "prettier" / "bin" / "prettier.cjs"
    command = ["node", str(tidy), "--check", "--log-level=warn", "."]
    ran = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)

    assert ran.stdout + ran.stderr == ""


def test_the_client_knows_every_error_of_the_service(served: Served) -> None:
    """
    What the service publishes as refusals of SQL and of the ledger, both clients have a class for.
    """
    contract: dict[str, Any] = served.contract()
    apps = [app for app in contract["apps"] if app["name"] in ("SQL", "Balance")]
    published = {one["code"] for some in (contract, *apps) for one in some["refusals"]}
    known = {vector["code"] for vector in json.loads(SHARED.read_text(encoding="utf-8"))["error"]}

    assert len(apps) == 2
    assert (published & set(_CLASSES)) - known == set()


@pytest.mark.slow
@pytest.mark.requirement("C21")
@pytest.mark.fault("ts-derived-keys-have-no-lengths")
def test_what_python_began_typescript_finishes(served: Served) -> None:
    """
    The same calls under the same derived keys, first from Python, then from TypeScript: each of them is replayed.
    """
    folder, name = built_client(), "both"
    derived = partial(derive, worker="w-1", run=name, tool="note", input={"a": "é", "b": [1, 2.5]})
    values = ["zoë 😀", 17, 1.5, 100, None, True, 2**53 + 1, -(2**63), bytes((0, 255, 128))]
    reference = Reference("acme", "call:x", "2026-11").of(name)
    metadata = {"z": 1, "a": [1.5, None, "é"], "big": 12345678901234567890}
    with Client(served.address, token=served.token) as client:
        db = client.db("demo", name)
        db.create()
        db.query(f"CREATE TABLE kept ({', '.join('abcdefghi')})")
        first = [
            db.query(f"INSERT INTO kept VALUES ({', '.join('?' * 9)})", values, idempotency_key=derived(turn=1)),
            db.query("INSERT INTO kept (a, b) VALUES (:a, :b)", {"b": 2, "a": "x"}, idempotency_key=derived(turn=2)),
            db.query("INSERT INTO kept (a) VALUES ('y')", plan_key=f"plan-{name}", plan_step="first"),
            db.batch(
                ["INSERT INTO kept (a) VALUES ('z')", ("INSERT INTO kept (a) VALUES (?)", [1e21])],
                idempotency_key=derived(turn=3),
            ),
            client.balance.emit(
                "cus_both",
                Decimal("-12.5"),
                "api call",
                reference_id=reference,
                idempotency_key=derived(turn=4),
                metadata=metadata,
            ),
            client.balance.emit_many(
                [NewDelta(customer="cus_both", delta=1, reason="a", reference_id=f"{name}-1")],
                idempotency_key=derived(turn=5),
            ),
        ]
        ran = subprocess.run(
            ["node", "test/support/finish.js", name],
            cwd=folder,
            env={**os.environ, "ONCEWARD_TEST_ADDRESS": served.address, "ONCEWARD_TEST_TOKEN": served.token},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout) == {"replayed": [True] * len(first), "reference": reference}
        assert [one.replayed for one in first] == [False] * len(first)
        assert db.query("SELECT count(*) FROM kept").rows == [[5]]
