"""A return annotation brings types back, the same on the first run and on every replay, or is refused at once."""

import collections
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from onceward._core.codec import Encoded, decode, encode
from onceward._core.errors import ConfigurationError, ResultInvalid
from onceward._core.result_restorer import restorer, return_annotation

T = TypeVar("T")
OrderId = NewType("OrderId", UUID)
Prices = TypeAliasType("Prices", list[Decimal] | dict[str, list[Decimal]])
Pairs = TypeAliasType("Pairs", list[tuple[T, T]], type_params=(T,))
Plain = collections.namedtuple("Plain", ["first", "second"])


class Colour(enum.Enum):
    RED = "red"
    CRIMSON = "red"  # noqa: PIE796
    RAW = b"\xff"
    PAIR = (1, 2)
    PRICE = Decimal("1.0")


class Size(enum.StrEnum):
    S = "s"
    L = "l"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Decimal = Decimal("0.5")


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Decimal
    shipped: date | None = None
    tags: frozenset[Size] = frozenset()


@dataclasses.dataclass
class Order:
    currency: ClassVar[str] = "eur"
    lines: list[Line]
    by_size: dict[Size, Line] = dataclasses.field(default_factory=dict)
    total: Decimal = dataclasses.field(init=False)
    note: str = ""

    def __post_init__(self) -> None:
        self.total = sum((line.price for line in self.lines), Decimal("0"))
        self.note = self.note + "!"


@dataclasses.dataclass
class Tree:
    value: Decimal
    branches: "list[Tree]"


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    next: "Page[T] | None" = None


class DecimalPage(Page[Decimal]):
    pass


class Base(TypedDict):
    price: Decimal


class Receipt(Base, total=False):
    paid: date
    id: Required[UUID]


class Refund(TypedDict):
    price: Decimal
    reason: NotRequired[str]


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    price: Decimal = pydantic.Field(alias="unitPrice")
    when: datetime
    sizes: set[Size] = set()

    @pydantic.computed_field
    def doubled(self) -> Decimal:
        return self.price * 2


class Other(pydantic.BaseModel):
    price: Decimal
    name: str


class Roots(pydantic.RootModel[list[Decimal]]):
    pass


class Struct(msgspec.Struct, rename="camel", tag=True):
    unit_price: Decimal
    wait: timedelta
    raw: bytes = b""
    at: datetime | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    id: UUID
    sizes: list[Size]


decimals = st.decimals(allow_nan=False, allow_infinity=False)
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
datetimes = st.datetimes(timezones=st.none() | st.just(UTC) | offsets)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
lines = st.builds(Line, texts, decimals, st.none() | st.dates(), st.frozensets(st.sampled_from(Size)))
orders = st.builds(Order, st.lists(lines, max_size=3), st.dictionaries(st.sampled_from(Size), lines), note=texts)
trees = st.recursive(
    st.builds(Tree, decimals, st.just([])),
    lambda inner: st.builds(Tree, decimals, st.lists(inner, max_size=3)),
    max_leaves=5,
)
pages = st.builds(Page, st.lists(decimals, max_size=2), st.none() | st.builds(Page, st.lists(decimals, max_size=2)))
receipts = st.fixed_dictionaries({"price": decimals, "id": st.uuids()}, optional={"paid": st.dates()})
# Pydantic itself writes offsets in whole minutes.
minutes = st.integers(-1400, 1400).map(lambda count: timezone(timedelta(minutes=count)))
models = st.builds(
    Model, unitPrice=decimals, when=st.datetimes(timezones=minutes), sizes=st.sets(st.sampled_from(Size))
)
structs = st.builds(
    Struct, decimals, st.timedeltas(), st.binary(), at=st.just(msgspec.UNSET) | st.datetimes(timezones=st.just(UTC))
)
rows = st.builds(Row, st.uuids(), st.lists(st.sampled_from(Size)))

SUPPORTED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Decimal, decimals),
    (datetime, datetimes),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (OrderId, st.uuids()),
    (bytes, st.binary()),
    (bytearray, st.binary().map(bytearray)),
    (list[bytes], st.lists(st.binary())),
    (Colour, st.sampled_from(Colour)),
    (Right, st.sampled_from([Right(0), Right.READ, Right.READ | Right.WRITE])),
    (Literal[Colour.RAW, "red", 7], st.sampled_from([Colour.RAW, "red", 7])),
    (Literal[b"a", b"b"], st.sampled_from([b"a", b"b"])),
    (list[Decimal], st.lists(decimals)),
    (tuple[Decimal, ...], st.lists(decimals).map(tuple)),
    (tuple[int, Decimal], st.tuples(st.integers(), decimals)),
    (tuple, st.tuples(st.integers(), texts)),
    (set[tuple[int, date]], st.sets(st.tuples(st.integers(), st.dates()))),
    (frozenset[UUID], st.frozensets(st.uuids())),
    (dict[str, Decimal], st.dictionaries(texts, decimals)),
    (dict[Size, Line], st.dictionaries(st.sampled_from(Size), lines)),
    (Mapping[str, Sequence[date]], st.dictionaries(texts, st.lists(st.dates()))),
    (Decimal | None, st.none() | decimals),
    (Optional[list[Line]], st.none() | st.lists(lines)),  # noqa: UP045
    (Union[int, float, Decimal, None], st.none() | st.integers() | decimals),  # noqa: UP007
    (datetime | date | UUID | int, datetimes | st.dates() | st.uuids() | st.integers()),
    (Line | Tree | list[Decimal], lines | trees | st.lists(decimals)),
    (Receipt | Refund, receipts | st.fixed_dictionaries({"price": decimals}, optional={"reason": texts})),
    (Annotated[Decimal, {"unhashable": []}], decimals),
    (Line, lines),
    (Order, orders),
    (Tree, trees),
    (Page[Decimal], pages),
    (Receipt, receipts),
    (Point, st.builds(Point, st.integers(), decimals)),
    (Plain, st.builds(Plain, st.integers(), texts)),
    (Prices, st.lists(decimals) | st.dictionaries(texts, st.lists(decimals))),
    (Pairs[Decimal], st.lists(st.tuples(decimals, decimals))),
    (Model, models),
    (list[Model | Other], st.lists(models | st.builds(Other, price=decimals, name=texts), max_size=3)),
    (Roots, st.builds(Roots, st.lists(decimals))),
    (Struct, structs),
    (Row, rows),
    (dict[str, Struct | Row | None], st.dictionaries(texts, st.none() | structs | rows, max_size=3)),
]


def replayed(value: object, annotation: Any) -> object:
    return decode(encode(value), restorer(annotation))


def read(annotation: Any, data: bytes) -> object:
    return decode(Encoded("json/1", data), restorer(annotation))


class TestThePromise:
    @pytest.mark.parametrize(("annotation", "values"), SUPPORTED, ids=[str(annotation) for annotation, _ in SUPPORTED])
    def test_a_result_comes_back_equal_and_of_its_type(self, annotation, values):
        """
        Of every supported type, what is returned comes back equal and of the same type, however often it passes.
        """
        restore = restorer(annotation)

        @settings(max_examples=40, deadline=None)
        @given(values)
        def check(value: object) -> None:
            first = decode(encode(value), restore)
            again = decode(encode(first), restore)

            assert value == first
            assert type(value) is type(first)
            assert first == again

        check()

    @settings(deadline=None)
    @given(decimals)
    def test_decimals_keep_their_digits(self, value):
        """
        12.50 does not become 12.5, whatever the decimal context of the one who reads.
        """
        with localcontext(prec=1):
            again = replayed(value, Decimal)

        assert str(value) == str(again)

    def test_what_post_init_did_is_not_done_twice(self):
        """
        Fields come back as they were stored, also those that `__post_init__` computes or changes.
        """
        order = Order([Line("a", Decimal("1.50"))], note="thanks")
        order.total = Decimal("1.40")

        again = replayed(order, Order)

        assert (again.note, again.total) == ("thanks!", Decimal("1.40"))
        assert order == again

    def test_a_field_added_since_takes_its_default(self):
        """
        A result stored before a field existed is still read.
        """
        assert Line("a", Decimal("1.50")) == read(Line, b'{"sku":"a","price":"1.50"}')
        assert Point(1, Decimal("0.5")) == read(Point, b"[1]")

    def test_an_empty_sum_of_decimals_is_a_decimal(self):
        """
        `sum([])` is the int 0 even where Decimals were meant, so an int is taken for a Decimal.
        """
        assert Decimal is type(replayed(0, Decimal))
        assert Decimal is type(replayed(0, Decimal | None))

    def test_a_time_zone_comes_back_as_its_offset(self):
        """
        The instant is kept; the name of the zone is not.
        """
        from zoneinfo import ZoneInfo

        again = replayed(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Vienna")), datetime)

        assert again.isoformat() == "2024-07-01T12:00:00+02:00"

    @pytest.mark.parametrize(
        ("annotation", "kind"), [(Decimal | str, Decimal), (str | Decimal, str), (str | UUID | None, str)]
    )
    def test_the_leftmost_member_that_fits_a_union_is_taken(self, annotation, kind):
        """
        Where JSON cannot tell the members of a union apart, their order decides, on the first run and on replays.
        """
        assert kind is type(replayed(Decimal("12.50"), annotation))

    def test_a_function_without_annotation_returns_plain_data(self):
        """
        With nothing to go by, the JSON form is the result.
        """
        line = Line("a", Decimal("1.50"), date(2024, 1, 2))

        expected = {"sku": "a", "price": "1.50", "shipped": "2024-01-02", "tags": []}
        assert replayed(line, inspect.Signature.empty) == expected
        assert replayed(line, Any) == expected


class TestPlainAnnotations:
    @pytest.mark.parametrize(
        "annotation",
        [
            inspect.Signature.empty,
            Any,
            object,
            None,
            type(None),
            bool,
            int,
            float,
            str,
            int | str | None,
            list,
            dict,
            list[int],
            list[dict[str, Any]],
            dict[str, list[float | None]],
            Mapping[str, object],
            Iterable[int],
            Literal["a", 1, None],
            TypedDict("Answer", {"ok": bool}),
            NewType("Name", str),
            T,
            list[T],
        ],
        ids=str,
    )
    def test_plain_json_costs_nothing(self, annotation):
        """
        Where JSON already is the annotated type, there is nothing to restore.
        """
        assert None is restorer(annotation)


class Unknown:
    pass


@dataclasses.dataclass
class Lost:
    field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class LostDict(TypedDict):
    field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class Seeded:
    seed: dataclasses.InitVar[int]
    value: int = 0


class Twins(enum.Enum):
    NUMBER = Decimal("1")
    TEXT = "1"


class Opaque(enum.Enum):
    THING = object()


class TestRefusedDeclarations:
    @pytest.mark.parametrize(
        ("annotation", "reason"),
        [
            (Unknown, "Unknown cannot be restored: no rule is known for it"),
            (list[Unknown | None], "Unknown cannot be restored"),
            (Iterator[int], "no rule is known"),
            (Callable[[], int], "no rule is known"),
            (type[int], "no rule is known"),
            (collections.OrderedDict[str, int], "no rule is known"),
            (dict[int, str], "a key of a stored object is a str"),
            (dict[UUID, str], "a key of a stored object is a str"),
            (Page, "needs its parameter"),
            (DecimalPage, "needs its parameter"),
            (Lost, "a field's type cannot be resolved"),
            (LostDict, "a field's type cannot be resolved"),
            (Seeded, "its constructor does not take its fields"),
            (Twins, "two of its values look the same in JSON"),
            (Opaque, "one of its values cannot be stored"),
            ("Line", "it is not a type"),
            ([int], "it is not a type"),
        ],
        ids=str,
    )
    def test_what_cannot_be_restored_is_refused_at_declaration(self, annotation, reason):
        """
        A type without a rule is refused before anything runs, with advice, instead of after the effect.
        """
        with pytest.raises(ConfigurationError, match="or annotate the function with Any") as refusal:
            restorer(annotation)

        assert reason in str(refusal.value)


class TestStoredDataThatDoesNotFit:
    @pytest.mark.parametrize(
        ("annotation", "data", "reason"),
        [
            (Decimal, b'"NaN"', "result: Decimal refused it"),
            (Decimal, b'"1_000"', "result: a text stands where Decimal should"),
            (Decimal, b"1.5", "result: a number stands where Decimal should"),
            (Decimal, b"true", "result: a boolean stands where Decimal should"),
            (datetime, b'"2024-01-02"', "result: a text stands where datetime should"),
            (date, b'"20240102"', "result: a text stands where date should"),
            (timedelta, b'"P1D"', "result: timedelta refused it"),
            (UUID, b'"{00000000000000000000000000000005}"', "result: a text stands where UUID should"),
            (list[bytes], b'["?"]', "result[0]: bytes refused it"),
            (Colour, b'"blue"', "result: a text is none of the values of Colour"),
            (Right, b"99", "result: Right refused it"),
            (Order, b"[]", "result: an array was found where an object was expected"),
            (Order, b'{"lines":[{"sku":"a","price":{}}]}', "result.lines[0].price: an object stands where Decimal"),
            (Order, b'{"lines":[{"sku":"a","price":"1","owner":1}]}', "result.lines[0]: Line has no field 'owner'"),
            (Line, b'{"sku":"a"}', "result: Line refused it (TypeError)"),
            (Point, b"[1,2,3]", "result: an array of 3 stands where one of 2 should"),
            (tuple[int, Decimal], b"[1]", "result: an array of 1 stands where one of 2 should"),
            (set[Any], b"[[1]]", "result: set refused it"),
            (dict[Size, int], b'{"xl":1}', "result.xl: a text is none of the values of Size"),
            (Receipt, b'{"price":"x"}', "result.price: Decimal refused it"),
            (Line | Tree, b"5", "result: a number fits no member of the union"),
            (Model, b'{"price":"1.0"}', "result: Model refused it (ValidationError)"),
            (Struct, b'{"type":"Struct"}', "result: Struct refused it (ValidationError)"),
        ],
    )
    def test_a_stored_result_that_does_not_fit_is_refused_with_its_place(self, annotation, data, reason):
        """
        What does not fit the annotation is one typed error that says where, and never a half-restored value.
        """
        with pytest.raises(ResultInvalid) as refusal:
            read(annotation, data)

        assert str(refusal.value).startswith(reason)

    @pytest.mark.parametrize("annotation", [Decimal, Line, Point, Colour, Model, Struct, Line | Tree, list[Decimal]])
    def test_bytes_do_not_fit_a_structure(self, annotation):
        """
        A result stored as bytes is no object, even if its bytes are JSON.
        """
        with pytest.raises(ResultInvalid):
            decode(Encoded("bytes/1", b'{"sku":"a","price":"1"}'), restorer(annotation))

    def test_messages_do_not_show_stored_values(self):
        """
        A result may be secret; what is said about it names places and types.
        """
        for annotation in (Decimal, Line, Model, Struct, Colour, list[Decimal] | Line):
            with pytest.raises(ResultInvalid) as refusal:
                read(annotation, b'{"sku":"s3cret","price":["s3cret"]}')

            assert "s3cret" not in str(refusal.value)

    @pytest.mark.parametrize("annotation", [Any, dict[str, Any], TypedDict("Loose", {"__class__": str}), Refund])
    def test_planted_gadgets_are_only_data(self, annotation):
        """
        Stored data cannot choose a type: names of classes in it are texts like any other.
        """
        planted = {"__class__": "os.system", "__reduce__": ["os.system", ["id"]], "py/object": "subprocess.Popen"}

        assert planted == replayed(planted, annotation)

    def test_a_planted_dunder_is_no_field(self):
        """
        Only declared fields are set on an object.
        """
        with pytest.raises(ResultInvalid, match="has no field '__class__'"):
            read(Line, b'{"sku":"a","price":"1","__class__":"os.system"}')


def resolved() -> Line:
    raise NotImplementedError


def spelled(first: "Nowhere") -> "list[Line]":  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


def unresolvable() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


def silent():  # type: ignore[no-untyped-def]
    raise NotImplementedError


async def awaited() -> "Line":
    raise NotImplementedError


class Caller:
    def __call__(self) -> "Line":
        raise NotImplementedError

    def method(self) -> "Line":
        raise NotImplementedError


class TestReturnAnnotation:
    @pytest.mark.parametrize(
        ("fn", "expected"),
        [
            (resolved, Line),
            (spelled, list[Line]),
            (awaited, Line),
            (functools.partial(functools.partial(spelled), 1), list[Line]),
            (functools.wraps(resolved)(lambda: None), Line),
            (Caller(), Line),
            (Caller().method, Line),
            (unresolvable, inspect.Signature.empty),
            (silent, inspect.Signature.empty),
            (len, inspect.Signature.empty),
            (dict, inspect.Signature.empty),
        ],
    )
    def test_a_functions_return_type_is_found(self, fn, expected):
        """
        However a function is wrapped and its annotation spelled, what it says about its result is found.
        """
        assert return_annotation(fn) == expected

    def test_a_class_of_an_enclosing_function_is_found(self):
        """
        A class that only the enclosing function knows is found if the function itself uses it.
        """

        @dataclasses.dataclass
        class Local:
            price: Decimal

        def make() -> "Local":
            return Local(Decimal(1)) if make else make()

        assert Local is return_annotation(make)

    def test_none_is_an_answer(self):
        """
        A function that says it returns nothing has an annotation, and nothing to restore.
        """

        def act() -> None: ...

        assert type(None) is return_annotation(act)
        assert None is restorer(return_annotation(act))
