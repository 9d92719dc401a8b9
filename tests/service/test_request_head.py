"""The head of a request: looked through once, and a field that is sent twice is seen twice."""

from __future__ import annotations

import pytest

from onceward.service.web.endpoints import _check_media_type, _is_ambiguous
from onceward.service.web.problems import MediaTypeUnsupported, RequestMalformed
from onceward.service.web.request_head import RequestHead, head_of

JSON = (b"content-type", b"application/json")


def test_a_head_is_read_once() -> None:
    """
    Whoever asks for it: it is kept with the request. Names are in lower case, whatever the server hands over.
    """
    scope = {"headers": [(b"Content-Type", b"a/b"), (b"X-A", b"1")]}
    head = head_of(scope)

    assert head_of(scope) is head
    assert (head.first(b"x-a"), head.all(b"x-a"), b"x-a" in head) == (b"1", [b"1"], True)
    assert (head.first(b"x-b"), head.all(b"x-b"), b"x-b" in head) == (None, [], False)
    assert head.single == {b"content-type": b"a/b", b"x-a": b"1"}


@pytest.mark.fault("a-field-that-is-repeated-hides-the-first")
def test_a_field_that_is_repeated_is_not_hidden() -> None:
    """
    Both values are there, in their order; the first is the first; and nobody is told that there is one of each.
    """
    head = RequestHead([(b"x-a", b"1"), JSON, (b"x-a", b"2")])

    assert (head.first(b"x-a"), head.all(b"x-a"), head.single) == (b"1", [b"1", b"2"], None)
    with pytest.raises(RequestMalformed, match="content-type was sent more than once"):
        _check_media_type(RequestHead([JSON, JSON]))


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ([JSON], None),
        ([(b"content-type", b'Application/JSON; charset="UTF-8"')], None),
        ([JSON, (b"content-encoding", b"identity")], None),
        ([], MediaTypeUnsupported),
        ([(b"content-type", b"text/plain")], MediaTypeUnsupported),
        ([(b"content-type", b"application/json; charset=latin-1")], MediaTypeUnsupported),
        ([JSON, (b"content-encoding", b"gzip")], MediaTypeUnsupported),
    ],
)
def test_only_plain_json_is_taken(
    fields: list[tuple[bytes, bytes]], refusal: type[MediaTypeUnsupported] | None
) -> None:
    """
    By what the headers say, before anything of the body is read.
    """
    if refusal is None:
        _check_media_type(RequestHead(fields))
        return
    with pytest.raises(refusal):
        _check_media_type(RequestHead(fields))


def test_a_length_and_chunks_are_one_too_many() -> None:
    """
    Where the request ends could be read in two ways.
    """
    length, chunks = (b"content-length", b"1"), (b"transfer-encoding", b"chunked")

    assert [_is_ambiguous(RequestHead(one)) for one in ([length], [chunks], [length, chunks])] == [False, False, True]
