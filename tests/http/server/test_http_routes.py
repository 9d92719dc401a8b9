"""Routes: where a request is treated otherwise than the app as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError, Gate
from onceward.http import Route, profile
from onceward.http.server.routes import Routes


def routes(*exceptions: Route, base: str = "default") -> Routes:
    with Gate("memory://", scope="test:acme") as gate:
        return Routes(profile(base), exceptions, gate.agreed)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/charges", "/charges", True),
        ("/charges", "/charges/", False),
        ("/charges", "/Charges", False),
        ("/charges", "/charges/1", False),
        ("/charges/{id}", "/charges/1", True),
        ("/charges/{id}", "/charges/", False),
        ("/charges/{id}", "/charges/1/refund", False),
        ("/charges/{id}", "/charges/a\nb", True),
        ("/charges/{id}/refund", "/charges/1/refund", True),
        ("/files/{rest:path}", "/files/a/b", True),
        ("/files/{rest:path}", "/files/", True),
        ("/files/{rest:path}", "/files/a\nb/c", True),
        ("/a.b", "/axb", False),
        ("/a+", "/aa", False),
        ("/(x)", "/(x)", True),
    ],
)
def test_a_path_matches_as_a_whole(pattern: str, path: str, matches: bool) -> None:
    """
    A place is one segment, or whatever follows; everything else is taken letter by letter.
    """
    assert matches == Route(pattern).matches("POST", path)


def test_the_first_that_matches_counts() -> None:
    """
    As in the routers that people know.
    """
    made = routes(Route("/charges/special", guarantee="keyed"), Route("/charges/{id}", guarantee="atomic"))

    found = [made.find("POST", path) for path in ("/charges/special", "/charges/7", "/other")]
    assert [one and one.profile.guarantee for one in found] == ["keyed", "atomic", "blind"]
    assert [one and one.name for one in found] == ["/charges/special", "/charges/{id}", None]


def test_a_route_that_is_skipped_is_not_treated_at_all() -> None:
    """
    Whatever comes after it.
    """
    made = routes(Route("/internal/{rest:path}", skip=True), Route("/internal/{rest:path}", require_key=True))

    assert None is made.find("POST", "/internal/x")


def test_a_route_with_methods_is_for_these_methods() -> None:
    """
    Also for one that the profile does not have; and others go by the profile.
    """
    made = routes(Route("/reports", methods=("get",)), base="stripe")

    assert None is not made.find("GET", "/reports")
    assert None is made.find("GET", "/charges")
    assert None is made.find("PUT", "/reports")
    assert made.methods == {"GET", "POST"}


def test_a_method_outside_of_the_profile_is_not_treated() -> None:
    """
    GET and HEAD pass, whatever they carry.
    """
    assert [routes().find(method, "/charges") for method in ("GET", "HEAD", "OPTIONS")] == [None, None, None]


@pytest.mark.parametrize(
    ("make", "about"),
    [
        (lambda: Route("charges"), "must begin with a slash"),
        (lambda: Route(None), "must begin with a slash"),  # type: ignore[arg-type]
        (lambda: Route("/charges/{id"), "not a route"),
        (lambda: Route("/charges/{id:int}"), "not a route"),
        (lambda: Route("/x", methods="POST"), r"write \('POST',\)"),
        (lambda: Route("/x", skip=True, require_key=True), "skip=True"),
        (lambda: routes(Route("/x", no_such=1)), "no field 'no_such'"),
        (lambda: routes(Route("/x", lease=-1)), "lease"),
        (lambda: routes(Route("/x", retain="a day")), "retain"),
        (lambda: routes(Route("/x", result_bytes_max=-1)), "result_bytes_max"),
    ],
)
def test_a_route_that_cannot_work_is_refused_at_once(make: Any, about: str) -> None:
    """
    Also where only the gate knows: when the routes are made, and not when the first request comes.
    """
    with pytest.raises(ConfigurationError, match=about):
        make()
