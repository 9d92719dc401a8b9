"""Short texts are hashed by other code than long ones, and to the same bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import sys

import pytest

from onceward._core.canonical import canonical
from onceward._core.fingerprint import fingerprint_canonical, fingerprint_form
from onceward._core.keys import record_id
from onceward._core.short_hash import SHORT, short_sha256

PREFIX = b"onceward/fingerprint/1\0"


@pytest.mark.fault("a-short-request-is-hashed-without-its-prefix")
@pytest.mark.parametrize("length", [0, 1, 55, 56, 64, SHORT - 3, SHORT - 2, SHORT - 1, SHORT, 4 * SHORT])
def test_a_fingerprint_is_the_same_whoever_hashes(length: int) -> None:
    """
    Also at the length from which OpenSSL does it.
    """
    form = canonical("x" * length)
    expected = b"\x01" + hashlib.sha256(PREFIX + form).digest()

    assert fingerprint_canonical("x" * length) == expected
    assert fingerprint_form(form) == expected


def test_an_interpreter_without_its_own_takes_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It may be built without.
    """
    for name in ("_sha2", "_sha256"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.find_spec("onceward._core.short_hash")
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)

    assert alone.short_sha256 is hashlib.sha256
    assert short_sha256 is not hashlib.sha256


def test_ids_are_what_they_were() -> None:
    """
    The hash of a key is that of OpenSSL.
    """
    text = b"".join(len(part).to_bytes(8, "big") + part for part in (b"operation", b"live:acme", b"charge:17"))

    assert record_id("operation", "live:acme", "charge:17") == hashlib.sha256(b"onceward/1" + text).digest()
    assert short_sha256(text).digest() == hashlib.sha256(text).digest()
