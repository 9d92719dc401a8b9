"""How a target is described, and what is said about a description that cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.testing.clock import StillEnvironment
from onceward.testing.http_suite import PROFILES, describe
from onceward.testing.http_suite.target import resolve_pointer
from onceward.testing.http_suite.target_client import TargetClient

URL = {"url": "http://localhost:8000/orders"}


@pytest.mark.parametrize(
    ("description", "says"),
    [
        ({}, "no address is given"),
        ({"url": 17}, "url of the target must be str"),
        (URL | {"pth": "/x"}, "no 'pth'; the names are"),
        (URL | {"profile": "strpe"}, "there is no profile 'strpe'; the profiles are default, ietf"),
        (URL | {"method": "GET /"}, "is not an HTTP method"),
        (URL | {"unique": "id"}, "JSON pointer such as /id"),
        (URL | {"other_path": "refunds"}, "begins with /"),
        (URL | {"well_known": "/a b"}, "no spaces"),
        (URL | {"timeout": 0}, "from 0.1 to 300"),
        (URL | {"timeout": float("nan")}, "from 0.1 to 300"),
        (URL | {"timeout": True}, "timeout of the target"),
        (URL | {"crowd": 1}, "from 2 to 64"),
        (URL | {"slow": "/slow"}, "slow of the target must be dict"),
        (URL | {"slow": {"paht": "/slow"}}, "it has method, path and body"),
        (URL | {"slow": {"path": 3}}, "path of slow must be text"),
        (URL | {"slow": {"path": "slow"}}, "path of slow must be a path"),
        (URL | {"count_pointer": "/n"}, "give both"),
        (URL | {"count_url": "count"}, "http://host:port/path"),
        (URL | {"headers": {"Authorization": "Bearer $TOKEN"}}, "variable TOKEN is not set"),
        (URL | {"headers": {"Authorization": "cost: 5$"}}, "a dollar sign"),
        (URL | {"headers": {"Bad Name": "x"}}, "is not a header"),
        (URL | {"headers": {"X": 3}}, "is not a header"),
        (URL | {"headers": {"X": "a\r\nY: b"}}, "characters that a header cannot have"),
        (URL | {"expect": {"in_flite_status": 409}}, "'in_flite_status'; the names are"),
        (URL | {"expect": {"in_flight_status": "409"}}, "not of the right kind"),
        (URL | {"expect": {"key_required": 1}}, "not of the right kind"),
        (URL | {"expect": {"after_5xx": "rerun"}}, "one of doubt, replay, run"),
        (URL | {"expect": {"in_flight_codes": "busy"}}, "a list of words"),
        (URL | {"expect": {"in_flight_status": 1}}, "from 200 to 599"),
        (URL | {"expect": {"key_length_max": 20}}, "at least 36"),
        (URL | {"expect": {"profile": "mine"}}, "'profile'; the names are"),
    ],
)
def test_what_cannot_be_meant_is_refused(description: dict[str, Any], says: str) -> None:
    """
    The name is said, and what would be understood.
    """
    with pytest.raises(ConfigurationError, match=says):
        describe(description, {})


def test_headers_are_filled_from_the_environment_and_kept_out_of_sight() -> None:
    """
    `$NAME`, `${NAME}`, and `$$` for a dollar sign. A target's representation does not have them.
    """
    headers = {"Authorization": "Bearer $TOKEN", "X-Price": "5$$", "X-Two": "${TOKEN}x"}
    target = describe(URL | {"headers": headers, "other_headers": headers}, {"TOKEN": "s3cret"})

    assert target.headers == (("Authorization", "Bearer s3cret"), ("X-Price", "5$"), ("X-Two", "s3cretx"))
    assert "s3cret" not in repr(target)


def test_another_tenant_has_its_headers_in_place_of_the_first_ones() -> None:
    """
    By name, whatever the case; the others stay.
    """
    target = describe(
        URL | {"headers": {"Authorization": "one", "X": "y"}, "other_headers": {"authorization": "two"}}, {}
    )

    assert target.tenant_headers(other=False) == (("Authorization", "one"), ("X", "y"))
    assert target.tenant_headers(other=True) == (("X", "y"), ("authorization", "two"))


def test_a_request_has_a_fresh_number_and_key_each_time() -> None:
    """
    `{n}` is filled in path and body, and is the same in both; other braces are left alone.
    """
    target = describe({"url": "http://localhost/orders/{n}", "body": '{"n": {n}, "x": {}}'}, {})
    client = TargetClient(target, StillEnvironment())
    one, other = client.new_request(), client.new_request()

    assert (f"/orders/{one.number}", f'{{"n": {one.number}, "x": {{}}}}'.encode()) == (one.path, one.body)
    assert one.number != other.number
    assert one.lines != other.lines


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ('{"amount": 5, "to": "bob"}', b'{"amount": 6, "to": "bob"}'),
        ('{"list": [1], "to": "bob"}', b'{"list": [1], "to": "bobx"}'),
        ('{"list": [1], "sure": true}', b'{"list": [1], "sure": false}'),
    ],
)
def test_a_body_without_a_number_is_changed_in_one_value(body: str, changed: bytes) -> None:
    """
    The first number, text or truth value, so that the request stays one of its kind.
    """
    client = TargetClient(describe(URL | {"body": body}, {}), StillEnvironment())

    assert changed == client.changed(client.new_request()).body


def test_a_quoted_key_is_sent_where_the_profile_wants_one() -> None:
    """
    The IETF draft's keys are strings in quotes; the others' are bare.
    """
    spelled = {
        name: TargetClient(describe(URL | {"profile": name}, {}), StillEnvironment()).keyed("k")[0][1]
        for name in PROFILES
    }

    assert {name: b'"k"' if name == "ietf" else b"k" for name in PROFILES} == spelled


def test_a_request_is_written_as_it_stands() -> None:
    """
    Bytes, with nothing added that was not asked for.
    """
    client = TargetClient(describe(URL | {"headers": {"X": "ü"}}, {}), StillEnvironment())
    request = client.new_request(lines=(("Idempotency-Key", b"\x01\xff"),), number=7)

    assert client.written(request) == (
        b"POST /orders HTTP/1.1\r\nHost: localhost:8000\r\nX: \xfc\r\nIdempotency-Key: \x01\xff\r\nAccept: */*\r\n"
        b'Connection: close\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"n": 7}'
    )


@pytest.mark.parametrize(
    ("pointer", "found"),
    [("", {"a": [{"b/c": 1, "~": 2}]}), ("/a/0/b~1c", 1), ("/a/0/~0", 2)],
)
def test_a_pointer_points(pointer: str, found: object) -> None:
    """
    As RFC 6901 has it.
    """
    assert found == resolve_pointer({"a": [{"b/c": 1, "~": 2}]}, pointer)


@pytest.mark.parametrize("pointer", ["/b", "/a/1", "/a/x", "/a/0/b/c"])
def test_a_pointer_to_nothing_is_told(pointer: str) -> None:
    """
    And not taken for null.
    """
    with pytest.raises(KeyError):
        resolve_pointer({"a": [{"b/c": 1}]}, pointer)
