"""The canonical form: RFC 8785's own examples, our rules for Python's types, and what is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, StrEnum
from typing import Any

import msgspec
import orjson
import pydantic
import pytest

from onceward._core import canonical as module
from onceward._core.canonical import DEPTH_MAX, canonical, canonical_pure, canonical_texts
from onceward._core.errors import RequestInvalid
from onceward._core.key_derivation import input_hash

WAYS = pytest.mark.parametrize("form", [canonical, canonical_pure], ids=["fast", "plain"])

# RFC 8785, appendix B: the bits of a double, and how it is written.
RFC_NUMBERS = """
0000000000000000 0
8000000000000000 0
0000000000000001 5e-324
8000000000000001 -5e-324
7fefffffffffffff 1.7976931348623157e+308
ffefffffffffffff -1.7976931348623157e+308
4340000000000000 9007199254740992
c340000000000000 -9007199254740992
4430000000000000 295147905179352830000
44b52d02c7e14af5 9.999999999999997e+22
44b52d02c7e14af6 1e+23
44b52d02c7e14af7 1.0000000000000001e+23
444b1ae4d6e2ef4e 999999999999999700000
444b1ae4d6e2ef4f 999999999999999900000
444b1ae4d6e2ef50 1e+21
3eb0c6f7a0b5ed8c 9.999999999999997e-7
3eb0c6f7a0b5ed8d 0.000001
41b3de4355555553 333333333.3333332
41b3de4355555554 333333333.33333325
41b3de4355555555 333333333.3333333
41b3de4355555556 333333333.3333334
41b3de4355555557 333333333.33333343
becbf647612f3696 -0.0000033333333333333333
43143ff3c1cb0959 1424953923781206.2
"""

# RFC 8785, section 3.2.2: the input, and section 3.2.4: the bytes that come out.
RFC_SAMPLE = r"""
{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}
"""
RFC_SAMPLE_BYTES = bytes.fromhex(
    """
    7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 65 72
    73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31 65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32
    2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30 30 66 5c 6e 41 27 42 5c 22 5c 5c
    5c 5c 5c 22 2f 22 7d
    """
)

# RFC 8785, section 3.2.3: names in the order in which they must come out.
RFC_SORTED = {
    "\r": "Carriage Return",
    "1": "One",
    "\u0080": "Control",
    "\u00f6": "Latin Small Letter O With Diaeresis",
    "\u20ac": "Euro Sign",
    "\U0001f600": "Emoji: Grinning Face",
    "\ufb33": "Hebrew Letter Dalet With Dagesh",
}


@WAYS
class TestRfc8785:
    @pytest.mark.parametrize("line", RFC_NUMBERS.split("\n")[1:-1])
    def test_numbers_are_written_as_in_appendix_b(self, form: Any, line: str) -> None:
        """
        Every double of the RFC's table is written as the table says, alone and between others.
        """
        bits, expected = line.split()
        (number,) = struct.unpack(">d", bytes.fromhex(bits))

        assert expected.encode() == form(number)
        assert f"[1,{expected},{expected}]".encode() == form([1, number, number])
        assert f'{{"a":{expected},"b":[{expected}]}}'.encode() == form({"b": [number], "a": number})

    @pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
    def test_numbers_that_are_none_are_refused(self, form: Any, bits: str) -> None:
        """
        NaN and the infinities of the RFC's table have no form, wherever they stand.
        """
        (number,) = struct.unpack(">d", bytes.fromhex(bits))

        for value in (number, [None, number], {"a": {"b": number}}, (Decimal(1), number)):
            with pytest.raises(RequestInvalid, match="not a finite number"):
                form(value)

    def test_the_sample_gives_the_bytes_of_the_rfc(self, form: Any) -> None:
        """
        The RFC's example document comes out byte for byte.
        """
        actual = form(json.loads(RFC_SAMPLE))

        assert actual == RFC_SAMPLE_BYTES

    def test_names_are_sorted_by_utf16_code_units(self, form: Any) -> None:
        """
        The RFC's sorting example: the emoji comes before the Hebrew letter, although its code point is higher.
        """
        shuffled = {name: RFC_SORTED[name] for name in sorted(RFC_SORTED, key=RFC_SORTED.__getitem__)}

        assert list(RFC_SORTED.items()) == json.loads(form(shuffled), object_pairs_hook=list)

    def test_only_what_must_be_escaped_is(self, form: Any) -> None:
        """
        Control characters, quotes and backslashes are escaped in the shortest way; nothing else is.
        """
        expected = r'"\u0000\u001f\b\t\n\f\r\"\\/' + "\x7f\u2028\U0001f600" + '"'

        assert expected.encode() == form('\x00\x1f\b\t\n\f\r"\\/\x7f\u2028\U0001f600')


@WAYS
class TestStringsThatLookLikeNumbers:
    @pytest.mark.parametrize(
        "text",
        [
            "1.0,",
            "a:1.0]",
            "[-0.0}",
            ",1e16,",
            ",null,",
            '":1.0,',
            "\\",
            '\\"',
            '\\\\":1.0,"',
            '"',
            "1.0",
            "e-6",
            "1e+20,",
        ],
    )
    def test_stay_as_they_are(self, form: Any, text: str) -> None:
        """
        Numbers are spelled anew and strings never, even where a string holds the very same characters.
        """
        value = {text: [text, 1.0, text, -0.0], "z": [1e16, {text: 1e-6}]}

        assert value == json.loads(form(value))
        assert canonical_pure(value) == form(value)
        assert b"1.0" not in form([1.0, text]).replace(json.dumps(text).encode(), b"")


@WAYS
class TestNumbers:
    @pytest.mark.requirement("B09")
    def test_equal_numbers_have_one_form(self, form: Any) -> None:
        """
        1 and 1.0 are the same number, and so are 0 and -0.0; True is no number.
        """
        assert form([1, 0]) == form([1.0, -0.0])
        assert form([True]) != form([1])

    def test_large_integers_keep_every_digit(self, form: Any) -> None:
        """
        Two different integers never share a form, also where a double could not tell them apart.
        """
        numbers = [2**53, 2**53 + 1, 2**63, 2**64, 2**64 + 1, -(2**64), 10**3999]

        assert numbers == json.loads(form(numbers))

    def test_absurdly_long_integers_are_refused(self, form: Any) -> None:
        """
        More than 4000 digits is refused before Python's own limit is met.
        """
        assert len(form(10**4000 - 1)) == 4000
        for value in (10**4000, -(10**4000), [10**5000]):
            with pytest.raises(RequestInvalid, match="4000 digits"):
                form(value)

    @pytest.mark.requirement("B09")
    def test_equal_decimals_have_one_form(self, form: Any) -> None:
        """
        A Decimal is the text of its plain digits, without trailing zeros and whatever the context's precision.
        """
        with localcontext() as context:
            context.prec = 3

            assert b'"12.5"' == form(Decimal("12.50")) == form(Decimal("0.125E+2"))
            assert b'"0"' == form(Decimal("-0.00")) == form(Decimal("0E+999999"))
            assert form(Decimal("1.2E+3")) == b'"1200"'
            assert form(Decimal("1234567.890")) == b'"1234567.89"'

    @pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "1E+1000", "1E-1000"])
    def test_decimals_without_plain_digits_are_refused(self, form: Any, text: str) -> None:
        """
        NaN, infinities and exponents beyond 999 have no form.
        """
        with pytest.raises(RequestInvalid, match=r"^\$\.price "):
            form({"price": Decimal(text)})


class Plan(Enum):
    FREE = "free"
    PAIR = ("a", Decimal("1.50"))


class Hidden(Enum):
    NAN = float("nan")
    WHOLE = 2.0
    NESTED = (1.0, (float("inf"),))


class Mixed(StrEnum):
    """An Enum whose text is not its value."""

    def __new__(cls, text: str, value: str) -> Mixed:
        made = str.__new__(cls, text)
        made._value_ = value
        return made

    ONE = ("text", "value")


class Text(str):
    __slots__ = ()


class Number(int):
    def __repr__(self) -> str:
        return "no"


class Real(float):
    def __repr__(self) -> str:
        return "no"


class Names(dict):  # type: ignore[type-arg]
    pass


class Things(list):  # type: ignore[type-arg]
    pass


class Bag(set):  # type: ignore[type-arg]
    pass


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@dataclass(frozen=True)
class Cart:
    lines: list[Line]
    at: datetime


class Item(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=str.upper, populate_by_name=True, serialize_by_alias=True)
    sku: str
    price: Decimal


class Basket(pydantic.BaseModel):
    items: list[Item]
    tags: set[str]


class Tree(pydantic.BaseModel):
    children: list[Tree]


class Wire(msgspec.Struct, rename="camel"):
    order_id: str
    inner: Item


@WAYS
class TestPythonTypes:
    def test_a_class_of_fields_is_an_object_of_its_fields(self, form: Any) -> None:
        """
        Dataclass, pydantic model and msgspec struct are written like a dict of the same fields, names as declared.
        """
        at = datetime(2026, 1, 31, 10, 30, tzinfo=timezone(timedelta(hours=1)))
        item = {"sku": "s", "price": "1.5"}

        assert form({"lines": [item], "at": "2026-01-31T09:30:00Z"}) == form(Cart([Line("s", Decimal("1.50"))], at))
        assert form({"items": [item], "tags": ["a", "b"]}) == form(
            Basket(items=[Item(sku="s", price=Decimal("1.50"))], tags={"b", "a"})
        )
        assert form({"order_id": "o", "inner": item}) == form(Wire("o", Item(sku="s", price=Decimal("1.50"))))

    def test_subclasses_are_written_like_their_base(self, form: Any) -> None:
        """
        A subclass of str, int, float, dict, list or set counts as its base, whatever its own repr says.
        """
        assert (
            form([Text("a"), Number(1), Real(1.5), Names({Text("a"): Number(2)}), Things([3]), Bag({4})])
            == b'["a",1,1.5,{"a":2},[3],[4]]'
        )

    def test_an_enum_is_written_as_its_value(self, form: Any) -> None:
        """
        The value counts, also when the Enum is a str with other text, and also as a member's name.
        """
        assert form([Plan.FREE, Plan.PAIR, Mixed.ONE, {Mixed.ONE: 1}]) == b'["free",["a","1.5"],"value",{"value":1}]'

    def test_an_enum_hides_nothing(self, form: Any) -> None:
        """
        A number inside an Enum is spelled, and refused, like any other.
        """
        assert form([Hidden.WHOLE]) == b"[2]"
        for value in (Hidden.NAN, Hidden.NESTED):
            with pytest.raises(RequestInvalid, match="not a finite number"):
                form({"a": [value]})

    def test_sets_are_sorted_by_their_elements_forms(self, form: Any) -> None:
        """
        A set has no order, so its form has one: that of the elements' bytes.
        """
        assert form({10, 2, True, "b", "a", (1, "x")}) == b'["a","b",10,2,[1,"x"],true]'

    @pytest.mark.requirement("B09")
    def test_unicode_normal_forms_stay_different(self, form: Any) -> None:
        """
        Text is compared as it is: the composed and the decomposed letter are two texts.
        """
        assert form(["\u00e9"]) != form(["e\u0301"])

    def test_datetimes_are_one_instant_whatever_the_zone(self, form: Any) -> None:
        """
        The same instant in another zone is the same form; the fraction appears only if there is one.
        """
        here = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)

        assert form([here]) == form([here.astimezone(timezone(timedelta(hours=-7)))])
        assert form(here.replace(microsecond=1)) == b'"2026-01-31T09:30:00.000001Z"'

    @pytest.mark.parametrize(
        ("value", "advice"),
        [
            (datetime(2026, 1, 31), "tzinfo=UTC"),
            (time(9, tzinfo=UTC), "pass a datetime"),
            (object(), "identifying fields"),
            (len, "not code"),
            (Line, "not code"),
            (iter([1]), "a list of its items"),
            (1j, "identifying fields"),
            ("\ud800", "lone surrogate"),
            ({"\udfff": 1}, "lone surrogate"),
            ({1: 2}, r"use str\(...\)"),
            ({None: 2}, r"use str\(...\)"),
            ({Plan.PAIR: 2}, r"use str\(...\)"),
            ({Mixed.ONE: 1, "value": 2}, "rename one"),
            (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))), "OverflowError"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_refusal_names_the_path_and_says_what_to_do(self, form: Any, value: object, advice: str) -> None:
        """
        What has no form is refused with the place where it stands and advice.
        """
        with pytest.raises(RequestInvalid, match=advice) as caught:
            form({"items": [0, 1, 2, {"price": value}]})

        assert str(caught.value).startswith("$.items[3].price ")

    def test_a_refusal_never_runs_the_values_own_text(self, form: Any) -> None:
        """
        An object that cannot even be printed is refused like any other.
        """

        class Hostile:
            def __repr__(self) -> str:
                raise ZeroDivisionError

            __str__ = __repr__

        with pytest.raises(RequestInvalid, match="Hostile"):
            form([Hostile()])

    def test_code_of_the_value_that_raises_is_a_refusal(self, form: Any) -> None:
        """
        A lazy object that fails when it is read gives a refusal with the error's name, not the error.
        """

        class Lazy:
            @property
            def __class__(self) -> Any:  # type: ignore[override]
                raise ZeroDivisionError

        with pytest.raises(RequestInvalid, match=r"^\$\[0\] is a Lazy .* ZeroDivisionError"):
            form([Lazy()])

    def test_odd_names_in_a_path_are_quoted_and_cut(self, form: Any) -> None:
        """
        A path stays one readable line, whatever the names in it.
        """
        with pytest.raises(RequestInvalid) as caught:
            form({"a b\n" + "x" * 500: [1j]})

        assert str(caught.value).startswith(r"$['a b\nxxx")
        assert len(str(caught.value)) < 200

    def test_refusals_inside_a_set_say_so(self, form: Any) -> None:
        """
        A set's elements have no number, so the path shows a star.
        """
        with pytest.raises(RequestInvalid, match=r"^\$\.tags\[\*\] is a complex"):
            form({"tags": {1j}})


@WAYS
class TestDepth:
    @pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
    def test_the_limit_is_the_same_on_both_ways(self, form: Any, wrap: Any) -> None:
        """
        256 levels are written, 257 are refused, with and without orjson.
        """
        value: object = 1
        for _ in range(DEPTH_MAX):
            value = wrap(value)

        assert form(value)
        with pytest.raises(RequestInvalid, match="256 levels deep"):
            form(wrap(value))

    def test_very_deep_tuples_are_refused(self, form: Any) -> None:
        """
        Nested tuples are counted like lists: orjson alone would follow them until the process dies.
        """
        value: object = 1
        for _ in range(100_000):
            value = (value,)

        with pytest.raises(RequestInvalid, match="256 levels deep"):
            form({"a": value})

    def test_cycles_are_refused(self, form: Any) -> None:
        """
        A value that contains itself is refused, not followed for ever; the path shown stays short.
        """
        loop: dict[str, object] = {}
        loop["me"] = [loop]

        with pytest.raises(RequestInvalid, match="contains itself") as caught:
            form(loop)
        assert str(caught.value).startswith("$.me[0].me[0]")
        assert len(str(caught.value)) < 250

    def test_cycles_with_many_ways_round_are_refused_at_once(self, form: Any) -> None:
        """
        Parents that know their children and children that know their parents: refused at the first way down.
        """
        parent: dict[str, object] = {"name": "p"}
        parent["children"] = [{"name": name, "parent": parent} for name in "abcdef"]
        twice: list[object] = []
        twice += [twice, (twice, twice)]

        for value in (parent, twice):
            with pytest.raises(RequestInvalid, match="contains itself"):
                form(value)

    def test_cycles_through_objects_are_refused(self, form: Any) -> None:
        """
        A dataclass or a pydantic model that contains itself is refused as well.
        """
        line = Line("s", Decimal(1))
        object.__setattr__(line, "price", [line])
        tree = Tree(children=[])
        tree.children.append(tree)

        for value in (line, tree):
            with pytest.raises(RequestInvalid):
                form(value)


class TestTheFastWay:
    def test_hands_over_only_when_it_must(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Common requests, floats, dates and dataclasses included, never need the plain way.
        """
        monkeypatch.setattr(module, "canonical_pure", None)
        at = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)

        assert (
            canonical({"b": Cart([], at), "a": [1.0, 1e-6, 1e-7], "c": {"x"}})
            == b'{"a":[1,0.000001,1e-7],"b":{"at":"2026-01-31T09:30:00Z","lines":[]},"c":["x"]}'
        )
        assert canonical({"b": [1.0, None], "a": None}) == b'{"a":null,"b":[1,null]}'

    def test_without_orjson_the_plain_way_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Nothing but speed depends on the extra.
        """
        monkeypatch.setattr(module, "_dumps", None)

        assert canonical({"b": [1e21], "a": 1.0}) == b'{"a":1,"b":[1e+21]}'

    def test_bytes_that_orjson_would_copy_are_refused(self) -> None:
        """
        orjson's own Fragment goes into its output unread, so it has no canonical form.
        """
        for value in (orjson.Fragment(b"1"), [orjson.Fragment(b"1")], Line("s", orjson.Fragment(b"1"))):
            with pytest.raises(RequestInvalid, match="Fragment"):
                canonical(value)

    def test_orjson_nests_no_deeper_than_our_limit(self) -> None:
        """
        The limit is not below orjson's own: a release of it that goes deeper would make the two ways differ.
        """
        value: object = 1
        for _ in range(DEPTH_MAX + 1):
            value = [value]

        with pytest.raises(TypeError):
            orjson.dumps(value)


@pytest.mark.requirement("B09")
def test_the_order_of_members_does_not_count() -> None:
    """
    The same input hashes the same whatever the order of its members, at every level.
    """
    assert input_hash({"a": 1, "b": 2}) == input_hash({"b": 2, "a": 1})
    assert input_hash([{"x": {"p": 1, "q": 2}}]) == input_hash([{"x": {"q": 2, "p": 1}}])
    assert input_hash([1, 2]) != input_hash([2, 1])


@pytest.mark.parametrize(
    "texts",
    [[], ["entry", None, "1"], ['"quoted" \\ and\n\x7f\x00', "é€😀\u2028"], ["\ud800"]],
    ids=["none", "plain", "escapes", "half-a-character"],
)
def test_texts_alone_have_the_same_form_by_the_short_way(texts: list[str | None]) -> None:
    """
    `canonical_texts` is `canonical` for a list of texts, and refuses what that refuses.
    """

    def form(write: Callable[[Any], bytes]) -> bytes | str:
        try:
            return write(texts)
        except RequestInvalid as error:
            return str(error)

    assert form(canonical_texts) == form(canonical) == form(canonical_pure)
