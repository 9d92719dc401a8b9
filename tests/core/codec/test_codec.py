"""What is stored is data, the same bytes everywhere, and a value without a stored form is refused by name."""

import dataclasses
import enum
import importlib.util
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward._core import codec
from onceward._core.codec import (
    INT_DIGITS_MAX,
    JSON,
    MESSAGE_BYTES_MAX,
    NESTING_MAX,
    NOT_COPIED,
    Encoded,
    NotEncodable,
    decode,
    decode_failure,
    encode,
    encode_failure,
    given_back,
    json_text,
    keep,
)
from onceward._core.errors import NotReplayable, RecordedFailure, ResultInvalid, SchemaMismatch
from onceward._core.reply import Reply


class Colour(enum.Enum):
    RED = "red"
    DEEP = (1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Named(enum.StrEnum):
    """A str whose value is not its text."""

    ODD = "text", 7

    def __new__(cls, text: str, number: int) -> "Named":
        member = str.__new__(cls, text)
        member._value_ = number
        return member


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal


class Model(pydantic.BaseModel):
    price: Decimal
    when: datetime = datetime(2024, 1, 2, tzinfo=UTC)

    @pydantic.computed_field
    def doubled(self) -> Decimal:
        return self.price * 2


class Struct(msgspec.Struct, rename="camel", tag="struct"):
    unit_price: Decimal
    parts: set[int]


class Hostile:
    """Raises whatever is asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Text(str):
    """A text that calls itself something else."""

    def __str__(self) -> str:
        return "something else"


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def stored(value: object) -> bytes | None:
    return encode(value).data


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


class TestKept:
    """What the first caller is given equals every replay, whether it was decoded or copied."""

    @settings(max_examples=200, deadline=None)
    @given(PLAIN | st.tuples(PLAIN) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.decimals()))
    def test_it_is_what_decoding_gives(self, value):
        """
        The same bytes, the same value, the same types, the same order.
        """
        try:
            stored = encode(value)
        except NotEncodable as refused:
            with pytest.raises(NotEncodable, match="result"):
                keep(value)
            assert str(refused)
            return
        kept = keep(value)

        assert (kept.codec, kept.data) == stored
        assert repr(given_back(kept, None)) == repr(decode(stored))
        assert repr(given_back(kept, lambda plain: [plain])) == repr([decode(stored)])

    @pytest.mark.parametrize("value", [True, 7, -0.0, "é\u2028\x7f", None, {"a": 1.5, "b": None}, ["x", 2], {}, []])
    def test_a_flat_value_is_copied(self, value):
        """
        And so nothing is decoded.
        """
        assert repr(keep(value).copy) == repr(value)

    @pytest.mark.parametrize("fast", [True, False], ids=["orjson", "json"])
    @pytest.mark.parametrize("value", [{"a": 1 << 64}, {"a": -1 << 63, "é": 'x"\n\x00\x1f/\x7f\u2028'}, {"": None}])
    def test_with_orjson_and_without_it_is_the_same(self, value, fast, monkeypatch):
        """
        Byte by byte: the one reads what the other wrote, and compares it.
        """
        if not fast:
            monkeypatch.setattr("onceward._core.codec.fast_dumps", None)

        assert keep(value) == (JSON, json_text(value).encode(), value)

    @pytest.mark.fault("what-is-nested-is-copied")
    @pytest.mark.parametrize("value", [{"a": [1]}, [{}], (1,), {"n": Level.HIGH}, Text("x"), {Text("k"): 1}, b"raw"])
    def test_any_other_is_decoded(self, value):
        """
        What is in it may be changed, or be of a type that does not come back.
        """
        assert keep(value).copy is NOT_COPIED

    @pytest.mark.fault("a-result-is-not-copied")
    @pytest.mark.parametrize("value", [{"paid": 1}, ["paid"]], ids=["dict", "list"])
    def test_what_becomes_of_the_value_later_is_not_seen(self, value):
        """
        The function may still have it, and change it: what was stored is what is given.
        """
        kept = keep(value)
        value.clear()

        assert given_back(kept, None) == decode(Encoded(kept.codec, kept.data)) != value

    @pytest.mark.fault("a-known-head-gives-back-what-only-equals-it")
    def test_a_response_comes_back_as_it_is_read(self):
        """
        The first time it is read; behind a head that is known it is not, and has the same types all the same.
        """
        plain = Reply(201, (("content-type", "text/plain"), ("etag", "kept")), b"x")
        odd = Reply(201, ((Text("content-type"), "text/plain"), ("etag", Text("kept"))), b"y")
        for reply in (plain, plain, odd, odd):
            kept = keep(reply)
            read = decode(Encoded(kept.codec, kept.data))
            same = given_back(kept, None)

            assert same == read == reply
            assert [type(part) for pair in same.headers for part in pair] == [str] * 4
        assert type(keep(odd).copy) is Reply

    @pytest.mark.fault("orjson-writes-nan-as-null")
    @pytest.mark.parametrize(
        "value", [{"a": float("nan")}, {"a": "\ud800"}, ["\ud800"], 10 ** (INT_DIGITS_MAX + 1)], ids=ascii
    )
    def test_what_cannot_be_stored_is_refused_all_the_same(self, value):
        """
        A flat value may have no stored form.
        """
        with pytest.raises(NotEncodable):
            keep(value)


class TestPlainValues:
    @settings(max_examples=50, deadline=None)
    @given(PLAIN)
    def test_plain_values_come_back_as_they_were(self, value):
        """
        What JSON can say comes back equal, and of the same types.
        """
        again = decode(encode(value))

        assert repr(value) == repr(again)

    @settings(max_examples=50, deadline=None)
    @given(PLAIN)
    def test_the_fast_path_and_the_careful_one_write_the_same_bytes(self, value):
        """
        The stored form does not depend on which path wrote it.
        """
        assert encode(value) == codec._encode_with_care(value)

    @settings(max_examples=50, deadline=None)
    @given(PLAIN)
    def test_bytes_are_those_of_the_standard_library(self, value):
        """
        Anyone with a JSON library can write and read what is stored.
        """
        expected = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

        assert stored(value) == expected

    def test_bytes_are_the_same_without_the_c_encoder(self):
        """
        A Python whose json module has no C part stores the same bytes.
        """
        module = importlib.util.module_from_spec(importlib.util.find_spec(codec.__name__))
        value = {"a": [1, 1e16, -0.5, True, None], "é\n": {"漢": "\x7f\x1f\u2028"}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("json.encoder.c_make_encoder", None)
            module.__spec__.loader.exec_module(module)

        assert stored(value) == module.encode(value).data

    @pytest.mark.parametrize("value", [0, None, "", [], False, {}, 0.0, -0.0])
    def test_nothing_much_is_still_something(self, value):
        """
        A falsy result is a result: it is stored and comes back, unlike one that was not kept.
        """
        encoded = encode(value)

        assert encoded.codec == "json/1"
        assert repr(value) == repr(decode(encoded))

    def test_bytes_are_stored_verbatim(self):
        """
        A bytes result is kept byte for byte under a codec of its own.
        """
        assert Encoded("bytes/1", b"\x00\xff{") == encode(b"\x00\xff{")
        assert Encoded("bytes/1", b"\x00") == encode(bytearray(b"\x00"))
        assert decode(Encoded("bytes/1", b"\x00\xff{")) == b"\x00\xff{"

    def test_integers_are_exact_up_to_the_limit(self):
        """
        An integer keeps all its digits, up to the named limit in either direction.
        """
        largest = 10**INT_DIGITS_MAX - 1

        assert largest == decode(encode(largest))
        assert -largest == decode(encode(-largest))
        for excess in (largest + 1, -largest - 1, 10**5000):
            with pytest.raises(NotEncodable, match=r"^result\[0\]: an integer of more than 4000 digits"):
                encode([excess])

    def test_a_long_text_of_digits_is_no_long_integer(self):
        """
        The limit on integers does not touch texts.
        """
        assert decode(encode("7" * 9_000)) == "7" * 9_000

    def test_ten_megabytes_are_encoded(self):
        """
        How large a result may be is the gate's decision, not the codec's.
        """
        value = {"text": "x" * 5_000_000, "rows": [{"identifier": 1}] * 300_000}

        assert value == decode(encode(value))


class TestRicherValues:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ((1, "a"), b'[1,"a"]'),
            (Point(1, 2), b"[1,2]"),
            ({3, 10, 1}, b"[1,10,3]"),
            (frozenset({"b", "a"}), b'["a","b"]'),
            (Decimal("12.50"), b'"12.50"'),
            (Decimal("1E+3"), b'"1E+3"'),
            (datetime(2024, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2))), b'"2024-01-02T03:04:05.000006+02:00"'),
            (date(2024, 1, 2), b'"2024-01-02"'),
            (time(3, 4), b'"03:04:00"'),
            (timedelta(minutes=1, seconds=30, milliseconds=500), b'"PT90.5S"'),
            (timedelta(microseconds=-1), b'"-PT0.000001S"'),
            (timedelta(0), b'"PT0S"'),
            (UUID(int=5), b'"00000000-0000-0000-0000-000000000005"'),
            ([b"\xff"], b'["/w=="]'),
            ([bytearray(b"\xff")], b'["/w=="]'),
            (Colour.RED, b'"red"'),
            (Colour.DEEP, b"[1,2]"),
            (Level.HIGH, b"3"),
            (Named.ODD, b"7"),
            (Text("itself"), b'"itself"'),
            ({Text("key"): 1}, b'{"key":1}'),
            (Line("a", Decimal("1.0")), b'{"sku":"a","price":"1.0"}'),
            (MappingProxyType({"a": {1}}), b'{"a":[1]}'),
            (Model(price=Decimal("1.20")), b'{"price":"1.20","when":"2024-01-02T00:00:00Z"}'),
            (Struct(Decimal("1.20"), {2, 1}), b'{"type":"struct","unitPrice":"1.20","parts":[1,2]}'),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_each_type_has_one_stored_form(self, value, expected):
        """
        The table in the codec's docstring is what is stored.
        """
        assert Encoded("json/1", expected) == encode(value)

    def test_equal_sets_have_equal_bytes(self):
        """
        The order in which a set was filled leaves no trace.
        """
        upwards, downwards = set(range(0, 800, 8)), set(range(792, -1, -8))

        assert list(upwards) != list(downwards)
        assert stored(upwards) == stored(downwards)

    def test_the_same_object_twice_is_no_cycle(self):
        """
        Sharing is allowed; only containing oneself is not.
        """
        shared = (1,)

        assert stored([shared, shared]) == b"[[1],[1]]"


class TestRefusals:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (math.nan, "result: NaN"),
            ({"a": [1, math.inf]}, "result.a[1]: NaN"),
            ((math.nan,), "result[0]: NaN"),
            (Decimal("NaN"), "result: a Decimal that is not a finite number"),
            ([Decimal("-Infinity")], "result[0]: a Decimal"),
            ({"a": "\ud800"}, "result.a: a text with a lone surrogate"),
            ({"\ud800": 1}, r"result.\ud800: a text with a lone surrogate"),
            ({"a": {1: 2}}, "result.a: the keys of an object must be str, and one is a int"),
            ({None: 2}, "result: the keys of an object must be str"),
            ((number for number in ()), "result: a generator cannot be stored"),
            ([object()], "result[0]: a object cannot be stored"),
            ({"a": Hostile()}, "result.a: reading the value raised RuntimeError"),
            (Line("a", Hostile()), "result.price: reading the value raised RuntimeError"),
            (Line, "result: a type cannot be stored"),
            (Struct(Decimal(1), {Hostile()}), "result.parts[0]: reading the value raised RuntimeError"),
            (nested(NESTING_MAX + 1), f": the value nests deeper than {NESTING_MAX} levels"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_without_a_stored_form_is_refused_with_its_place(self, value, reason):
        """
        A refusal says where in the result the trouble is, whatever the value does when it is looked at.
        """
        with pytest.raises(NotEncodable) as refusal:
            encode(value)

        assert reason in str(refusal.value)

    def test_cycles_are_refused(self):
        """
        A value that contains itself ends in a refusal, not in an endless loop.
        """
        cycle: dict[str, Any] = {}
        cycle["self"] = [cycle]
        line = Line("a", Decimal(1))
        line.price = line  # type: ignore[assignment]

        for value in (cycle, line):
            with pytest.raises(NotEncodable, match="contains itself"):
                encode(value)

    def test_a_mapping_that_fails_while_read_is_refused(self):
        """
        Whatever user code raises while it is read, the answer is that the result cannot be kept.
        """

        class Broken(Mapping[str, int]):
            def __getitem__(self, key: str) -> int:
                raise OSError("gone")

            def __iter__(self) -> Any:
                return iter(["a"])

            def __len__(self) -> int:
                return 1

        with pytest.raises(NotEncodable, match="reading the value raised OSError"):
            encode({"rows": Broken()})

    def test_the_deepest_value_allowed_is_stored_and_read(self):
        """
        The limit is the same in both directions, so that what is stored can be read.
        """
        deepest = nested(NESTING_MAX)

        assert deepest == decode(encode(deepest))
        assert encode(deepest) == codec._encode_with_care(deepest)


class TestStoredData:
    @pytest.mark.parametrize("name", ["pickle/1", "json/2", "", "JSON/1"])
    def test_unknown_codecs_are_refused(self, name):
        """
        What this version does not know it does not guess at.
        """
        with pytest.raises(SchemaMismatch, match="upgrade Onceward"):
            decode(Encoded(name, b"1"))

    def test_a_result_that_was_not_kept_is_not_a_null(self):
        """
        No codec means that it ran and its result was not kept; a stored null is a result.
        """
        assert None is decode(Encoded("json/1", b"null"))
        with pytest.raises(NotReplayable):
            decode(Encoded(None, None))

    @pytest.mark.parametrize(
        "data",
        [
            None,
            b"",
            b'{"a":1',
            b'{"a":1}}',
            b"NaN",
            b"[-Infinity]",
            b"1e999",
            b"\xff",
            b"\xef\xbb\xbf1",
            b'"\\ud800"',
            b'{"a":"\\uDFFF"}',
            b"'a'",
            b"1" * 5_000,
            b"[" * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"a":' * 200 + b"1" + b"}" * 200,
        ],
        ids=lambda data: repr(data)[:16],
    )
    def test_malformed_data_is_refused(self, data):
        """
        Damaged, truncated or hostile bytes end in one typed error, never in a crash or a half-read value.
        """
        with pytest.raises(ResultInvalid, match="look at the record"):
            decode(Encoded("json/1", data))

    def test_many_brackets_are_not_deep_nesting(self):
        """
        Only depth counts: a wide result, or a text full of brackets, is read.
        """
        wide = [[{}] for _ in range(NESTING_MAX)]

        assert wide == decode(encode(wide))
        assert decode(encode("[{" * NESTING_MAX)) == "[{" * NESTING_MAX

    @pytest.mark.parametrize(
        "planted",
        [
            {"__reduce__": ["os.system", ["touch /tmp/owned"]]},
            {"py/object": "subprocess.Popen", "args": ["id"]},
            {"__class__": "os.system", "__init__": {"command": "id"}},
            "cos\nsystem\n(S'id'\ntR.",
        ],
        ids=["reduce", "jsonpickle", "class", "pickle"],
    )
    def test_planted_gadgets_are_only_data(self, planted):
        """
        Stored data cannot name code: whatever it spells, it comes back as the text and objects it is.
        """
        assert planted == decode(Encoded("json/1", json.dumps(planted).encode()))

    def test_an_escaped_pair_of_surrogates_is_a_character(self):
        """
        Other JSON writers escape what lies outside the basic plane; that is read, too.
        """
        assert decode(Encoded("json/1", b'"\\ud83d\\ude00"')) == "😀"


class Refused(Exception):
    code = "card_declined"


class TestFailures:
    def test_a_failure_is_remembered_as_type_message_and_code(self):
        """
        A remembered failure says what it was, and is no instance of what it was.
        """
        failure = decode_failure(encode_failure(Refused("no funds")))

        assert type(failure) is RecordedFailure
        assert (
            failure.type,
            failure.message,
            failure.failure_code,
        ) == (f"{__name__}.Refused", "no funds", "card_declined")

    def test_a_failure_without_a_code_has_none(self):
        """
        Only a text or a number is a code; a built-in exception goes by its bare name.
        """
        failure = decode_failure(encode_failure(ValueError("odd")))
        exiting = decode_failure(encode_failure(SystemExit(3)))

        assert (failure.type, failure.failure_code) == ("ValueError", None)
        assert exiting.failure_code == "3"

    def test_an_exception_that_cannot_speak_is_remembered_all_the_same(self):
        """
        Neither a raising `__str__` nor a raising `code` loses the failure.
        """

        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("mute")

            @property
            def code(self) -> str:
                raise RuntimeError("mute")

        failure = decode_failure(encode_failure(Mute()))

        assert failure.message == "(the exception could not be turned into text)"
        assert None is failure.failure_code

    def test_an_exception_that_holds_itself_is_remembered(self):
        """
        Cyclic arguments end in some text, not in endless recursion.
        """
        exc = ValueError()
        exc.args = ([exc], exc)

        assert decode_failure(encode_failure(exc)).type == "ValueError"

    @pytest.mark.parametrize("letter", ["x", "é", "漢", "😀"])
    @pytest.mark.parametrize("shift", range(4))
    def test_a_huge_message_is_cut_between_characters(self, letter, shift):
        """
        A message of any size fits the limit, ends in an ellipsis, and holds no half character.
        """
        message = decode_failure(encode_failure(ValueError("." * shift + letter * 50_000))).message

        assert message.endswith(letter + "…")
        assert MESSAGE_BYTES_MAX - 4 < len(message.encode()) <= MESSAGE_BYTES_MAX

    def test_a_message_with_a_lone_surrogate_is_kept_readable(self):
        """
        Text without a UTF-8 form is escaped, not lost.
        """
        assert decode_failure(encode_failure(ValueError("bad \udcff"))).message == r"bad \udcff"

    @settings(max_examples=50, deadline=None)
    @given(st.text())
    def test_any_message_is_remembered(self, message):
        """
        No text makes a failure impossible to remember.
        """
        assert isinstance(decode_failure(encode_failure(ValueError(message))), RecordedFailure)

    @pytest.mark.parametrize(
        "data", [b"", b"null", b"[]", b"{}", b'{"type":1,"message":"","code":null}', b'{"type":"a","message":"b"}']
    )
    def test_a_malformed_failure_is_refused(self, data):
        """
        Stored failures are held to their form like stored results.
        """
        with pytest.raises(ResultInvalid, match="look at the record"):
            decode_failure(data)
