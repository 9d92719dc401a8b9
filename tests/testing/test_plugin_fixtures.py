"""The plugin's fixtures and marker, in real runs of pytest: with every plugin that others have, and without ours."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

UNUSED = ("randomly", "cacheprovider", "schemathesis", "faker", "langsmith_plugin", "hypothesispytest")
"""Plug-ins that are no subject here; importing them takes longer than most of these tests."""
PLUGINS = tuple(word for name in UNUSED for word in ("-p", f"no:{name}"))
QUIET = (*PLUGINS, "-p", "no:xdist")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "testing"

FIXTURES = """
import sys

def test_everything_belongs_together(
    onceward_clock, onceward_store, onceward_async_store, onceward_gate, onceward_async_gate, onceward_effects,
    assert_once,
):
    assert onceward_gate.store is onceward_store and onceward_async_gate.store is onceward_async_store
    assert onceward_gate.environment is onceward_clock is onceward_async_gate.environment
    assert assert_once(lambda: onceward_gate.run("k", onceward_effects.record)).crashes == 8

def test_every_test_has_its_own(onceward_gate):
    assert onceward_gate.run("k", lambda: "mine") == "mine"
"""

MARKED = """
import pytest
from onceward import InDoubt

@pytest.mark.onceward_crash("effect.after", "settle.before")
def test_doubt(onceward_crash, onceward_gate, onceward_clock, onceward_effects):
    with onceward_crash():
        onceward_gate.run("k", onceward_effects.record)
    onceward_clock.advance(61)
    with pytest.raises(InDoubt):
        onceward_gate.run("k", onceward_effects.record)
    assert onceward_effects.count() == 1
"""

ASYNC = """
import asyncio
import pytest

MARK

@pytest.mark.NAME
async def test_it(assert_once, onceward_async_gate, onceward_effects, onceward_crash, onceward_clock):
    here = asyncio.get_running_loop()

    async def charge():
        await asyncio.sleep(0)
        onceward_effects.record("charge")
        return asyncio.get_running_loop() is here

    async def call():
        return await onceward_async_gate.run("k", charge)

    report = await assert_once.in_loop(call, in_flight=False, stalls=False)
    assert report.crashes == 8
    assert await call() is True
    assert assert_once(lambda: onceward_async_gate.run("j", charge)).crashes == 8   # Threads with loops of their own.
    with onceward_crash("settle.before"):
        await onceward_async_gate.run("l", charge)
"""


def test_the_fixtures_are_parts_of_one_world(pytester: pytest.Pytester) -> None:
    """
    Still clock, store and gate in both colours, effects; a new one for every test.
    """
    pytester.makepyfile(FIXTURES)

    pytester.runpytest_inprocess(*QUIET).assert_outcomes(passed=2)


def test_the_fixtures_work_in_several_processes(pytester: pytest.Pytester) -> None:
    """
    pytest-xdist: each worker has its own failpoints.
    """
    pytest.importorskip("xdist")
    pytester.makepyfile(FIXTURES, test_more=MARKED)

    pytester.runpytest_subprocess("-n", "2", *PLUGINS).assert_outcomes(passed=4)


@pytest.mark.fault("plugin-marks-run-once")
def test_a_marked_test_runs_once_for_each_failpoint(pytester: pytest.Pytester) -> None:
    """
    Its id says which.
    """
    pytester.makepyfile(MARKED)

    done = pytester.runpytest_inprocess("-v", "--strict-markers", *QUIET)
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*::test_doubt[[]effect.after[]]*", "*::test_doubt[[]settle.before[]]*"])


@pytest.mark.parametrize(
    ("mark", "takes", "words"),
    [
        ("('call.after')", "", "*the test does not use the fixture onceward_crash, so nothing would crash*"),
        ("()", "onceward_crash", '*name at least one failpoint: @pytest.mark.onceward_crash("call.after")*'),
        ("('call.afte')", "onceward_crash", "*no failpoint is called 'call.afte'. Did you mean call.after*"),
        ("(7)", "onceward_crash", "*no failpoint is called '7'.*"),
    ],
)
def test_a_mark_that_would_crash_nothing_is_refused(
    pytester: pytest.Pytester, mark: str, takes: str, words: str
) -> None:
    """
    A test that passes because nothing died is worse than none.
    """
    pytester.makepyfile(f"import pytest\n@pytest.mark.onceward_crash{mark}\ndef test_it({takes}): pass")

    done = pytester.runpytest_inprocess(*QUIET)
    assert done.parseoutcomes().get("passed", 0) == 0
    assert done.ret != 0
    done.stdout.fnmatch_lines([words])


def test_a_crash_that_leaves_its_block_is_an_ordinary_failure(pytester: pytest.Pytester) -> None:
    """
    It ends the test, and not the run.
    """
    pytester.makepyfile(
        """
        from onceward.testing.simulated_process import ProcessDied

        def test_dies():
            raise ProcessDied

        def test_lives():
            pass
        """
    )

    pytester.runpytest_inprocess(*QUIET).assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("plugin", ["anyio", "pytest_asyncio"])
def test_async_tests_of_either_plugin_use_it(pytester: pytest.Pytester, plugin: str) -> None:
    """
    In the loop of the test, and beside it.
    """
    if importlib.util.find_spec(plugin) is None:
        pytest.skip(f"{plugin} is not installed here")
    backend = "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'" if plugin == "anyio" else ""
    mark = "anyio" if plugin == "anyio" else "asyncio"
    pytester.makepyfile(ASYNC.replace("MARK", backend, 1).replace("NAME", mark))

    pytester.runpytest_subprocess(*QUIET).assert_outcomes(passed=1)


def test_without_the_plugin_its_fixtures_are_missing_and_nothing_else(pytester: pytest.Pytester) -> None:
    """
    `-p no:onceward`: other tests run; one that wants a fixture is told; `Sandbox` is there all the same.
    """
    pytester.makepyfile(
        """
        from onceward.testing.sandbox import Sandbox

        def test_wants(onceward_gate):
            pass

        def test_does_without():
            sandbox = Sandbox()
            gate = sandbox.gate()
            sandbox.assert_once(lambda: gate.run("k", sandbox.effects.record))
        """
    )

    done = pytester.runpytest_subprocess("-p", "no:onceward", *QUIET)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*fixture 'onceward_gate' not found*"])


@pytest.mark.fault("plugin-imports-at-once")
def test_a_fixture_imports_what_it_needs_when_it_is_used(pytester: pytest.Pytester) -> None:
    """
    Until then three modules of ours are there: the package, its `testing`, and the plugin. With the entry point, as
    installed; measured in modules.
    """
    pytester.makepyfile(
        """
        import sys

        def ours():
            return sorted(name for name in sys.modules if name.partition(".")[0] == "onceward")

        def test_before():
            assert ours() == ["onceward", "onceward.testing", "onceward.testing.plugin"]

        def test_then(onceward_gate):
            assert "onceward.gate.gate" in ours() and "onceward.testing.strategies" not in ours()
        """
    )

    pytester.runpytest_subprocess(*QUIET).assert_outcomes(passed=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("test_*.py")))
def test_the_examples_of_the_docs_pass(name: str, tmp_path: Path) -> None:
    """
    Each with its control: the same handler without the gate, which is reported.
    """
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert "pytest.raises(DoubledEffect" in text
    if "celery" in name:
        pytest.importorskip("celery", reason="in make test-agents")
    command = [sys.executable, "-m", "pytest", "-q", *QUIET, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_page_shows_the_celery_example_as_it_is() -> None:
    """
    It cannot be run with the other blocks of the page, so it is held to the file that is.
    """
    page = (EXAMPLES.parents[1] / "docs" / "how-to" / "test-your-code.md").read_text(encoding="utf-8")
    shown = page.partition("## A Celery task")[2].partition("```text\n")[2].partition("```")[0]

    assert "assert_once(deliver, " in shown
    assert shown in (EXAMPLES / "test_celery_task.py").read_text(encoding="utf-8")
