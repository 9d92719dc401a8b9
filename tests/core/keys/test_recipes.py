"""How keys are made from calls, and the warnings about those that are made badly."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onceward._core.errors import ConfigurationError, KeyInvalid
from onceward._core.key_ingredients import why_unstable
from onceward._core.key_lint import KeyFinding, explain_key, lint_key, lint_recipe
from onceward._core.key_recipes import recipe
from onceward._core.keys import check_key, key_digest


class Kind(Enum):
    CARD = "card"
    NUMBER = 7
    NOTHING = None


def codes(findings: list[KeyFinding]) -> list[str]:
    return [finding.code for finding in findings]


class TestTemplates:
    @pytest.mark.parametrize(
        ("template", "values", "expected"),
        [
            ("charge:{order_id}", {"order_id": "o-17", "other": 1}, "charge:o-17"),
            ("evt-{event_id}", {"event_id": 17}, "evt-17"),
            ("order-{id}-charge", {"id": UUID(int=1)}, "order-00000000-0000-0000-0000-000000000001-charge"),
            ("pay:{amount}:{day}", {"amount": Decimal("12.50"), "day": date(2026, 1, 31)}, "pay:12.5:2026-01-31"),
            ("{kind}/{number}", {"kind": Kind.CARD, "number": Kind.NUMBER}, "card/7"),
            ("{a}:{b}", {"a": "x:y", "b": "50%"}, "x%3Ay:50%25"),
            ("to:{name}", {"name": "Zo\u00eb B\n"}, "to:Zo%C3%AB%20B%0A"),
            ("{{{a}}}", {"a": "x"}, "{x}"),
            ("a%{x}%b", {"x": "y"}, "a%y%b"),
        ],
    )
    def test_values_go_where_their_names_stand(self, template: str, values: dict[str, object], expected: str) -> None:
        """
        A value is written as its text; what could be mistaken for a separator is percent-escaped.
        """
        made = recipe(template).key(values)

        assert made == expected
        assert made == check_key(made)

    def test_fields_are_listed_in_order(self) -> None:
        """
        What a recipe takes from a call can be asked for.
        """
        assert recipe("{user_id}:{task_id}:{user_id}").fields == ("user_id", "task_id")

    @pytest.mark.requirement("A16")
    @pytest.mark.parametrize("template", ["evt-{order_id}", "order-{order_id}-charge"])
    def test_five_attempts_make_one_key(self, template: str) -> None:
        """
        The same operation gives the same text on every attempt, also from a recipe declared anew.
        """
        keys = {recipe(template).key({"order_id": "17", "attempt": attempt}) for attempt in range(1, 6)}

        assert {template.replace("{order_id}", "17")} == keys

    @pytest.mark.requirement("D18")
    @pytest.mark.fault("keys-in-the-order-given")
    @given(
        st.dictionaries(
            st.sampled_from(["user_id", "task_id", "step_id"]), st.text(min_size=1, max_size=9), min_size=3
        ),
        st.integers(),
    )
    def test_a_retry_never_changes_the_key(self, values: dict[str, str], attempt: int) -> None:
        """
        Whatever the operation: retried with the same values, in another order and with what counts the attempts
        beside them, the key stays.
        """
        template = "{user_id}:{task_id}:{step_id}"
        try:
            first = recipe(template).key(values)
        except KeyInvalid:
            assume(False)

        assert recipe(template).key({"attempt": attempt, **dict(reversed(values.items()))}) == first

    @pytest.mark.parametrize(
        ("template", "advice"),
        [
            ("charge", "has no field"),
            ("", "has no field"),
            ("{a}{b}", "side by side"),
            ("{a}%{b}", "% between two fields"),
            ("{order.id}", "not a plain name"),
            ("{items[0]}", "not a plain name"),
            ("{}", "not a plain name"),
            ("{0}", "not a plain name"),
            ("{a:>5}", "not a plain name"),
            ("{a!r}", "not a plain name"),
            ("{a", "cannot be read"),
            ("a}", "cannot be read"),
            ("my key {a}", "visible ASCII"),
            ("caf\u00e9:{a}", "visible ASCII"),
            ("x" * 255 + "{a}", "no room"),
        ],
    )
    def test_a_template_that_could_not_work_is_refused_when_declared(self, template: str, advice: str) -> None:
        """
        Mistakes are found before the first call.
        """
        with pytest.raises(ConfigurationError, match=advice):
            recipe(template)

    @pytest.mark.parametrize(
        ("value", "advice"),
        [
            (1.5, "pass a Decimal"),
            (True, "is a bool"),
            (None, "is None,"),
            (Kind.NOTHING, "is None,"),
            ([1], "pass its id"),
            ({"a": 1}, "pass its id"),
            (object(), "pass its id"),
            (datetime(2026, 1, 31, tzinfo=UTC), "pass a date"),
            (Decimal("NaN"), "not a finite number"),
            ("", "is empty"),
            ("\ud800", "half a character"),
            (10**5000, "too long"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_without_one_spelling_is_refused(self, value: object, advice: str) -> None:
        """
        Floats, containers, None and times of day have no place in a key; the error says what to pass.
        """
        with pytest.raises(KeyInvalid, match=f"^order_id .*{advice}"):
            recipe("charge:{order_id}").key({"order_id": value})

    def test_a_missing_value_is_named(self) -> None:
        """
        The error says which value the recipe needs.
        """
        with pytest.raises(KeyInvalid, match="needs order_id"):
            recipe("charge:{order_id}").key({"id": 1})

    def test_a_key_too_long_is_refused_and_not_cut(self) -> None:
        """
        255 characters fit; one more is an error that points to `derive` and does not show the key.
        """
        charge = recipe("charge:{order_id}")

        assert len(charge.key({"order_id": "o" * 248})) == 255
        with pytest.raises(KeyInvalid, match=r"256 characters .*never shortened.*derive\(") as caught:
            charge.key({"order_id": "o" * 249})
        assert "oooo" not in str(caught.value)


class TestInjectivity:
    @pytest.mark.requirement("C19")
    @pytest.mark.fault("keys-separators-pass")
    @pytest.mark.parametrize("template", ["{a}:{b}", "{a}-{b}", "{a}5{b}", "{a}3A{b}", "%{a}A{b}%"])
    def test_no_two_operations_share_a_key_among_all_short_ones(self, template: str) -> None:
        """
        Every pair of short texts over the most dangerous characters, each with a key of its own.
        """
        texts = ["".join(text) for length in (1, 2, 3) for text in product(":%35A-", repeat=length)]
        chosen = texts[:42] + texts[42::7]
        made = recipe(template)
        keys = {made.key({"a": a, "b": b}) for a in chosen for b in chosen}

        assert len(chosen) ** 2 == len(keys)

    @pytest.mark.requirement("C19")
    @given(
        st.sampled_from(["{a}:{b}:{c}", "{a}-to-{b}/{c}", "order-{a}-{b}.{c}-charge", "{a}2{b}0{c}"]),
        st.tuples(*[st.text(min_size=1, max_size=8)] * 3),
        st.tuples(*[st.text(":-%20./toe\u00e9", min_size=1, max_size=8)] * 3),
    )
    def test_different_values_never_give_equal_keys(
        self, template: str, one: tuple[str, ...], other: tuple[str, ...]
    ) -> None:
        """
        Two operations never produce equal keys, whatever their values hold.
        """
        made = recipe(template)
        try:
            keys = [made.key(dict(zip("abc", values, strict=True))) for values in (one, other)]
        except KeyInvalid:
            assume(False)

        assert (one == other) is (keys[0] == keys[1])

    @given(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)] * 3))
    def test_the_values_can_be_read_back(self, values: tuple[str, ...]) -> None:
        """
        A key with separators can be taken apart again, which is why no two meet.
        """
        key = recipe("pay:{a}:{b}:{c}").key(dict(zip("abc", values, strict=True)))

        assert values == tuple(map(unquote, key.removeprefix("pay:").split(":")))


class TestFunctions:
    def test_is_called_with_the_values_it_names(self) -> None:
        """
        A function takes what it names from the call, by keyword, and its text is the key.
        """

        def by_order(order_id: str, kind: str = "charge") -> str:
            return f"{kind}:{order_id}"

        made = recipe(by_order)

        assert made.fields == ("order_id", "kind")
        assert made.key({"order_id": "17", "amount": 5}) == "charge:17"
        assert made.key({"order_id": "17", "kind": "refund"}) == "refund:17"
        with pytest.raises(KeyInvalid, match="needs order_id"):
            made.key({"kind": "refund"})

    def test_may_take_everything(self) -> None:
        """
        A function with ** sees the whole call.
        """
        assert recipe(lambda **values: ",".join(values)).key({"a": 1, "b": 2}) == "a,b"

    def test_must_give_a_key(self) -> None:
        """
        What it returns keeps the rules of keys.
        """
        with pytest.raises(KeyInvalid, match="is a int"):
            recipe(lambda a: a).key({"a": 1})
        with pytest.raises(KeyInvalid, match="spaces"):
            recipe(lambda a: a).key({"a": "x y"})

    @pytest.mark.parametrize("function", [lambda *a: "k", lambda a, /: "k", lambda timestamp: "k"])
    def test_one_that_cannot_be_called_by_name_is_refused(self, function: Any) -> None:
        """
        Found when declared, like every other mistake.
        """
        with pytest.raises(ConfigurationError):
            recipe(function)

    def test_something_else_is_refused(self) -> None:
        """
        A recipe is text or a function.
        """
        with pytest.raises(ConfigurationError, match="not a int"):
            recipe(17)  # type: ignore[arg-type]


class TestIngredients:
    @pytest.mark.requirement("D16")
    @pytest.mark.fault("keys-references-are-refused")
    @pytest.mark.parametrize("name", ["user_id", "task_id", "step_id", "operation_type", "external_reference"])
    def test_stable_ingredients_are_accepted(self, name: str) -> None:
        """
        The names that belong into keys.
        """
        assert why_unstable(name) is None
        assert recipe(f"op:{{{name}}}").key({name: "x"}) == "op:x"

    @pytest.mark.requirement("D17")
    @pytest.mark.fault("keys-attempts-are-fine")
    @pytest.mark.parametrize("name", ["timestamp", "retry_count", "random", "request_id"])
    def test_ingredients_that_change_are_refused(self, name: str) -> None:
        """
        The names that never belong into keys, refused when declared, with advice.
        """
        with pytest.raises(ConfigurationError, match=f"{name} cannot be part of a key: .*; use "):
            recipe(f"op:{{{name}}}")

    @pytest.mark.parametrize(
        "name",
        [
            *["now", "time", "today", "attempt", "attempts", "retry", "retries"],
            *["rand", "nonce", "uuid", "uuid4", "trace_id", "span_id"],
        ],
    )
    def test_so_are_their_like(self, name: str) -> None:
        """
        The same for every other name on the list, and for every way to spell it.
        """
        first, *rest = name.split("_")
        for spelling in (name, name.upper(), name.title(), first + "".join(map(str.title, rest))):
            with pytest.raises(ConfigurationError, match="cannot be part of a key"):
                recipe(f"op:{{{spelling}}}")

    @pytest.mark.parametrize("name", ["requestId", "RequestID", "retryCount", "traceID"])
    def test_camel_case_is_seen_through(self, name: str) -> None:
        """
        Names from other languages are recognised.
        """
        with pytest.raises(ConfigurationError, match="cannot be part of a key"):
            recipe(f"op:{{{name}}}")

    @pytest.mark.parametrize(
        "name", ["order_uuid", "date", "created_at", "timestamp_of_order", "retry_policy", "uuid_of"]
    )
    def test_names_that_only_contain_one_are_fine(self, name: str) -> None:
        """
        An order's UUID is stored with the order, and so stays the same.
        """
        assert recipe(f"op:{{{name}}}").fields == (name,)


class TestLintRecipe:
    @pytest.mark.requirement("D15")
    @pytest.mark.fault("keys-attempts-are-fine")
    @pytest.mark.parametrize(
        ("template", "verdict"),
        [
            ("{user_id}:{task_id}:{step_id}", []),
            ("{user_id}:{timestamp}", ["K1"]),
            ("{user_id}:{retry_count}", ["K1"]),
        ],
    )
    def test_the_three_samples(self, template: str, verdict: list[str]) -> None:
        """
        User, task and step is a good recipe; a time or a retry count makes a bad one.
        """
        found = codes(lint_recipe(template))

        assert verdict == [code for code in found if code == "K1"]
        assert bool(verdict) is bool(found)

    @pytest.mark.requirement("B05", "C18")
    @pytest.mark.parametrize(
        ("template", "code"),
        [
            ("op:{now()}", "K1"),
            ("op:{datetime.now()}", "K1"),
            ("op:{time.time()}", "K1"),
            ("{timestamp}", "K1"),
            ("op:{attempt}", "K1"),
            ("op:{uuid}", "K3"),
            ("op:{uuid.uuid4()}", "K3"),
            ("op:{random}", "K3"),
            ("op:{random.random()}", "K3"),
            ("op:{requestId}", "K3"),
        ],
    )
    def test_what_cannot_be_made_again_is_flagged(self, template: str, code: str) -> None:
        """
        The clock, dice and counters are flagged, by name or as a call.
        """
        assert code in codes(lint_recipe(template))

    @pytest.mark.requirement("D78")
    @pytest.mark.parametrize(
        ("template", "code"),
        [
            ("charge:{timestamp}", "K1"),
            ("{user_id}", "K2"),
            ("{order_id}", "K2"),
            ("charge:{user_id}", "K2"),
            ("charge:{order_id}:{request_id}", "K3"),
            ("charge:{order_id}:{hostname}", "K3"),
        ],
    )
    def test_the_three_gotchas(self, template: str, code: str) -> None:
        """
        K1 time in the key, K2 too broad, K3 too narrow; each with advice.
        """
        findings = lint_recipe(template)

        assert [code] == codes(findings)
        assert findings[0].advice

    def test_personal_data_is_flagged(self) -> None:
        """
        An address or a number belongs behind an opaque id.
        """
        assert codes(lint_recipe("welcome:{email}")) == ["K4"]

    @pytest.mark.parametrize(
        "template", ["charge:{order_id}", "evt-{id}", "order-{id}-charge", "{user_id}:{operation_type}:{ref}"]
    )
    def test_good_recipes_pass(self, template: str) -> None:
        """
        Nothing is said about a recipe that names the operation and what it is about.
        """
        assert lint_recipe(template) == []


class TestLintKey:
    @pytest.mark.parametrize(
        ("key", "code"),
        [
            ("u-1:1700000000", "K1"),
            ("u-1:1700000000123", "K1"),
            ("u-1:1700000000123456789", "K1"),
            ("charge:2026-01-31T09:30:00Z", "K1"),
            ("charge:20260131093000", "K1"),
            ("charge:attempt-3", "K1"),
            ("charge:o-1:retry_count=2", "K1"),
            ("charge:o-1:try2", "K1"),
            ("17", "K2"),
            ("user-17", "K2"),
            ("user_id:17", "K2"),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "K3"),
            ("charge:request_id=77", "K3"),
            ("welcome:someone@example.com", "K4"),
            ("call:+4915112345678", "K4"),
            ("call:555-123-4567", "K4"),
            ("k" * 201, "K5"),
        ],
    )
    def test_each_sign_is_seen(self, key: str, code: str) -> None:
        """
        One key is enough to see the usual mistakes, and each comes with advice.
        """
        findings = lint_key(key)

        assert [code] == codes(findings)
        assert findings[0].message
        assert findings[0].advice

    @pytest.mark.parametrize(
        "key",
        [
            "user:task:step",
            "charge:o-17",
            "evt-17",
            "report:2026-01-31",
            "6f1c2a34-1111-4222-8333-444455556666",
            "order-6f1c2a34-2026-4222-8333-444455556666-charge",
            "0a" * 32,
            "k" * 200,
            "retry-policy:7",
        ],
    )
    def test_good_keys_pass(self, key: str) -> None:
        """
        Nothing is said about a key that is derived, minted or made of an operation and ids.
        """
        assert lint_key(key) == []

    def test_explaining_a_key_tells_all_and_shows_nothing(self) -> None:
        """
        Length, verdict, digest and findings, without the key itself.
        """
        good, bad = explain_key("charge:o-17"), explain_key("someone@example.com 1")

        assert (11, None, key_digest("charge:o-17"), ()) == (good.length, good.problem, good.digest, good.findings)
        assert bad.problem is not None
        assert "spaces" in bad.problem
        assert codes(list(bad.findings)) == ["K4"]
        assert "someone" not in repr(bad)
