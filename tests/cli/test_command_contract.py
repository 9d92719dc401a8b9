"""`onceward contract`: what is published."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

import onceward
from onceward import AsyncGate, OncewardError, Retry
from onceward._core import errors, terms
from onceward._core.terms import DEFAULT_TERMS, Terms
from onceward.cli.contract import _under, field_docs
from onceward.gate import Guarantee
from onceward.http import PROFILES, Profile
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.server import profile as profile_source


@pytest.mark.requirement("E32")
@pytest.mark.fault("contract-prints-microseconds")
def test_retention_is_published_in_seconds_for_programs(run: Any) -> None:
    """
    A program reads how long a result replays, and how long after that a late retry is refused.
    """
    ran = run("contract", "--json")

    assert ran.code == 0
    assert ran.document["retention"] == {
        "retainSeconds": 86_400,
        "tombstoneSeconds": 2_592_000,
        "forgetSeconds": 2_678_400,
        "afterExpiry": "refuse",
    }


def test_every_choice_has_its_value_and_reason(run: Any) -> None:
    """
    Each of the terms, in the unit in which it is given, with the text that stands beside it in the source.
    """
    choices = {one["name"]: one for one in run("contract", "--json").document["choices"]}

    assert [field.name for field in fields(Terms)] == list(choices)
    assert [name for name, one in choices.items() if not one["reason"]] == []
    assert (choices["lease"]["value"], choices["lease"]["unit"]) == (60, "seconds")
    assert (choices["result_bytes_max"]["value"], choices["result_bytes_max"]["unit"]) == (1_048_576, "bytes")
    source = Path(terms.__file__).read_text(encoding="utf-8")
    texts = {" ".join(node.value.split()) for node in ast.walk(ast.parse(source)) if _is_text(node)}
    assert {one["reason"] for one in choices.values()} <= texts


def test_durations_are_seconds_that_a_gate_takes_back(run: Any) -> None:
    """
    What is printed can be given to a gate, and means the same there.
    """
    durations = {
        one["name"]: one["value"] for one in run("contract", "--json").document["choices"] if one["unit"] == "seconds"
    }

    assert terms.apply_options(DEFAULT_TERMS, durations) == DEFAULT_TERMS
    assert set(durations) == {"lease", "lease_max", "wait", "keyed_for", "retain", "tombstone"}


def test_limits_are_published(run: Any) -> None:
    """
    How long a key may be, and how large a result.
    """
    limits = run("contract", "--json").document["limits"]

    assert (
        limits["keyCharactersMin"],
        limits["keyCharactersMax"],
        limits["keyAlphabet"],
    ) == (1, 255, "visible ASCII")
    assert limits["resultBytesMax"] == 1_048_576


def test_every_guarantee_is_explained_and_one_is_the_default(run: Any) -> None:
    """
    The careful one.
    """
    guarantees = run("contract", "--json").document["guarantees"]

    assert [one.value for one in Guarantee] == [one["name"] for one in guarantees]
    assert [one["name"] for one in guarantees if not one["meaning"]] == []
    assert [one["name"] for one in guarantees if one["default"]] == ["blind"]


def test_every_refusal_says_what_a_caller_may_do(run: Any) -> None:
    """
    Each error class with its code, whose fault it is and whether retrying is safe.
    """
    refusals = {one["code"]: one for one in run("contract", "--json").document["refusals"]}
    classes = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
    ]

    assert {one.code: (one.fault.value, one.retry.value) for one in classes} == {
        code: (one["fault"], one["retry"]) for code, one in refusals.items()
    }
    assert [code for code, one in refusals.items() if not one["meaning"]] == []


def test_people_read_the_same_things(run: Any) -> None:
    """
    Nothing that programs are told is kept from people.
    """
    document, text = run("contract", "--json").document, run("contract").out

    names = [one["name"] for one in document["choices"] + document["guarantees"]]
    names += [*document["limits"], *document["retention"], *(one["code"] for one in document["refusals"])]
    assert [name for name in names if name not in text] == []
    assert onceward.__version__ in text


def test_a_contract_without_reasons_is_still_one(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where the source was not shipped, values and codes are printed all the same.
    """

    def not_shipped(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", not_shipped)
    field_docs.cache_clear()
    _under.cache_clear()
    try:
        ran = run("contract", "--json")
    finally:
        field_docs.cache_clear()
        _under.cache_clear()

    assert ran.code == 0
    assert ran.document["retention"]["retainSeconds"] == 86_400


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_the_defaults_of_retries_are_part_of_it(run: Any) -> None:
    """
    What a policy, a breaker and a dead letter do unless told otherwise, each with its reason, as they really do it.
    """
    shown = {one["name"]: one for one in run("contract", "--json").document["retries"]}

    assert tuple(
        shown[name]["value"] for name in ("attempts", "elapsed", "timeout", "backoff_base", "backoff_cap")
    ) == (3, 60.0, 30.0, 0.1, 10.0)
    assert shown["attempts"]["value"] == Retry().max_attempts
    assert shown["dead_letter_keep"]["value"] == 30 * 24 * 3_600
    assert [name for name, one in shown.items() if not one["reason"]] == []


class TestProfiles:
    """`onceward contract --profile`."""

    @pytest.mark.parametrize("name", PROFILES)
    def test_a_program_reads_what_an_app_with_this_profile_serves(self, name: str, run: Any) -> None:
        """
        The same document as `/.well-known/idempotency`, letter by letter.
        """

        async def served() -> Any:
            async with AsyncGate("memory://", scope="test:acme") as gate:
                app = IdempotencyMiddleware(never, gate=gate, scope="test:acme", profile=name)
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
                    return (await client.get("/.well-known/idempotency")).json()

        ran = run("contract", "--profile", name, "--json")

        assert ran.code == 0
        assert asyncio.run(served()) == ran.document

    @pytest.mark.parametrize("name", PROFILES)
    def test_a_person_reads_every_field_with_its_reason(self, name: str, run: Any) -> None:
        """
        The text that stands beside it in the source: every field has one.
        """
        ran = run("contract", "--profile", name)

        reasons = field_docs(profile_source, "Profile")
        assert [field.name for field in fields(Profile) if not reasons.get(field.name)] == []
        for field in fields(Profile):
            assert f"\n{field.name} " in ran.out
        assert reasons["guarantee"] in ran.out
        assert str(PROFILES[name].mismatch_status) in ran.out

    def test_an_unknown_profile_is_refused(self, run: Any) -> None:
        """
        With the names there are.
        """
        ran = run("contract", "--profile", "paypal")

        assert (ran.code, ran.out) == (2, "")
        assert "stripe" in ran.err


async def never(*_: Any) -> None:
    pytest.fail("the application was asked")
