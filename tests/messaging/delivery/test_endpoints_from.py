"""Endpoints from a configuration: what is made, and what is said about what cannot be."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from delivery_support import PAYLOAD, message

from onceward import ConfigurationError
from onceward.messaging.outbox.delivery import CallableEndpoint, HttpEndpoint, SmtpEndpoint, endpoints_from
from onceward.messaging.outbox.message import Delivered, DeliveryRefused
from onceward.messaging.webhooks import Secret, StandardWebhooks
from servers.certificates import Authority
from servers.receiver import Receiver, answer

CANARY = "canary" + "c" * 42
ENVIRON = {
    "NEW": CANARY,
    "OLD": "old " * 10,
    "TOKEN": "Bearer " + CANARY,
    "USER": "shop",
    "SHORT": "c2hvcnQh",
    "EMPTY": "",
}


def made(text: str) -> dict[str, Any]:
    """The endpoints of a TOML text."""
    return dict(endpoints_from(tomllib.loads(text), ENVIRON))


def test_every_kind_can_be_configured(authority: Authority) -> None:
    """
    With every field that it has; other tables of the file are somebody else's.
    """
    found = made(f"""
        [relay]
        store = "sqlite:///shop.db"
        [endpoints.billing]
        kind = "http"
        url = "https://hooks.example/in"
        secrets_env = ["NEW", "OLD"]
        form = "pacspace"
        headers = {{ X-Tenant = "acme" }}
        headers_env = {{ Authorization = "TOKEN" }}
        final = [422]
        allow_private = ["10.20.0.0/16"]
        allow_http = false
        ports = [443, 9443]
        seconds = 10
        connect_seconds = 2.5
        payload_bytes_max = 1000
        answer_bytes_max = 2000
        ca_file = "{authority.file}"
        [endpoints.unsigned]
        kind = "http"
        url = "https://hooks.example/in"
        unsigned = true
        [endpoints.mail]
        kind = "smtp"
        host = "mail.example"
        port = 2525
        sender = "shop@example.com"
        tls = "starttls"
        user_env = "USER"
        password_env = "NEW"
        helo = "shop.example"
        seconds = 20
        connect_seconds = 5
        payload_bytes_max = 1000
        ca_file = "{authority.file}"
        [endpoints.ours]
        kind = "python"
        call = "builtins:print"
        final = ["builtins:ValueError", "json:JSONDecodeError"]
        seconds = 5
    """)

    kinds = {name: type(endpoint) for name, endpoint in found.items()}
    assert {
        "billing": HttpEndpoint, "unsigned": HttpEndpoint, "mail": SmtpEndpoint, "ours": CallableEndpoint
    } == kinds  # fmt: skip
    assert [endpoint.seconds_max for endpoint in found.values()] == [10, 15.0, 20, 5]
    assert "canary" not in repr(found)


def test_secrets_come_from_the_environment_and_from_a_file(tmp_path: Path) -> None:
    """
    All of them sign: the environment's first, then those of the file, one on each line.
    """
    file = tmp_path / "secrets"
    file.write_text("file" * 10 + "\n\n" + Secret(b"x" * 32).text() + "\n")
    file.chmod(0o600)
    with Receiver(answer(200)) as receiver:
        found = made(f"""
            [endpoints.billing]
            kind = "http"
            url = "http://127.0.0.1:{receiver.port}/"
            allow_http = true
            allow_private = ["127.0.0.1"]
            secrets_env = ["NEW"]
            secrets_file = "{file}"
            headers_env = {{ Authorization = "TOKEN" }}
        """)
        assert Delivered("200") == found["billing"].deliver(message())

    (request,) = receiver.requests
    now = int(request.headers["webhook-timestamp"])
    for secret in (Secret.parse(CANARY), Secret.parse("file" * 10), Secret(b"x" * 32)):
        assert StandardWebhooks().verify(request.headers, PAYLOAD, [secret], now=now).id == "msg_1"
    assert request.headers["authorization"] == f"Bearer {CANARY}"


def test_a_configured_function_has_its_final_types() -> None:
    """
    Named as `package.module:name`.
    """
    found = made('[endpoints.ours]\nkind = "python"\ncall = "math:sqrt"\nfinal = ["builtins:TypeError"]')

    assert isinstance(found["ours"].deliver(message()), DeliveryRefused)  # A message has no square root.


def test_no_endpoints_are_none() -> None:
    """
    The relay says what it thinks of that.
    """
    assert made("[relay]\nx = 1") == {}


HTTP = 'kind = "http"\nurl = "https://hooks.example/"\n'
SIGNED = HTTP + 'secrets_env = ["NEW"]\n'
SMTP = 'kind = "smtp"\nhost = "mail.example"\nsender = "shop@example.com"\n'


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ("", "[endpoints.a] kind: "),
        ('kind = "ftp"', "[endpoints.a] kind: "),
        ("kind = 7", "[endpoints.a] kind: "),
        ('kind = ["http"]', "[endpoints.a] kind: "),
        ('kind = "http"', "[endpoints.a] url: it is missing"),
        ('kind = "smtp"\nhost = "a"', "[endpoints.a] sender: it is missing"),
        ('kind = "python"', "[endpoints.a] call: it is missing"),
        (SIGNED + "urll = 7", "[endpoints.a] 'urll': an endpoint of kind http has no such field; did you mean url?"),
        (SIGNED + 'colour = "red"', "[endpoints.a] 'colour': an endpoint of kind http has no such field; it has url, "),
        (SIGNED + '"a\\u202eb" = 1', "[endpoints.a] 'a\\u202eb': "),
        (HTTP + f'secrets = ["{CANARY}"]', "[endpoints.a] secrets: secrets do not belong in a configuration"),
        (HTTP + f'secret = "{CANARY}"', "[endpoints.a] secret: secrets do not belong"),
        (SMTP + f'password = "{CANARY}"', "[endpoints.a] password: secrets do not belong"),
        (SIGNED + 'seconds = "5"', "[endpoints.a] seconds: it is a number"),
        (SIGNED + "seconds = true", "[endpoints.a] seconds: it is a number"),
        (SIGNED + "seconds = nan", "[endpoints.a]: seconds must be a number above 0"),
        (SIGNED + "seconds = 0", "[endpoints.a]: seconds must be a number above 0"),
        (SIGNED + "payload_bytes_max = 1.5", "[endpoints.a] payload_bytes_max: it is a whole number"),
        (SIGNED + 'final = ["422"]', "[endpoints.a] final: it is a list of whole numbers"),
        (SIGNED + "final = [200]", "[endpoints.a]: final must contain statuses"),
        (SIGNED + "allow_private = true", "[endpoints.a] allow_private: it is a list of texts"),
        (SIGNED + 'allow_private = ["0.0.0.0/0"]', "[endpoints.a]: 0.0.0.0/0 covers much of the Internet"),
        (SIGNED + 'allow_http = "yes"', "[endpoints.a] allow_http: it is true or false"),
        (SIGNED + "headers = { A = 7 }", "[endpoints.a] headers: it is a table of texts"),
        (SIGNED + 'headers = { Host = "a" }', "[endpoints.a]: the header Host is written by the endpoint itself"),
        (SIGNED + 'headers_env = { A = "NOT_SET" }', "[endpoints.a] headers_env: the environment variable 'NOT_SET'"),
        (SIGNED + 'ca_file = "/nowhere"', "[endpoints.a] ca_file: '/nowhere' is not a file with certificates"),
        (SIGNED + 'form = "stripe"', "[endpoints.a]: form is one of standard, pacspace"),
        (HTTP, "[endpoints.a]: a webhook needs a secret"),
        (HTTP + 'secrets_env = ["NOT_SET"]', "[endpoints.a] secrets_env: the environment variable 'NOT_SET'"),
        (HTTP + 'secrets_env = ["EMPTY"]', "[endpoints.a] secrets_env: the environment variable 'EMPTY' is not set"),
        (HTTP + 'secrets_env = ["SHORT"]', "[endpoints.a] secrets_env: a secret of fewer"),
        (HTTP + 'secrets_env = "NEW"', "[endpoints.a] secrets_env: it is a list of texts"),
        (HTTP + 'secrets_file = "/nowhere"', "[endpoints.a] secrets_file: /nowhere cannot be read"),
        (HTTP + 'secrets_file = "/"', "[endpoints.a] secrets_file: "),
        (SIGNED.replace("https", "http"), "[endpoints.a]: webhooks are sent over https"),
        (SMTP + 'user_env = "USER"', "[endpoints.a]: a login has a user and a password"),
        (SMTP + 'password_env = "NOT_SET"', "[endpoints.a] password_env: the environment variable 'NOT_SET'"),
        (SMTP + 'tls = "ssl"', "[endpoints.a]: tls is one of"),
        ('kind = "python"\ncall = "print"', "[endpoints.a] call: write it as package.module:name"),
        ('kind = "python"\ncall = "builtins:nothing"', "[endpoints.a] call: 'builtins:nothing' cannot be imported"),
        ('kind = "python"\ncall = "no.such.module:f"', "[endpoints.a] call: 'no.such.module:f' cannot be imported"),
        ('kind = "python"\ncall = "builtins:True"', "[endpoints.a]: a CallableEndpoint needs a function"),
        ('kind = "python"\ncall = "builtins:print"\nfinal = ["builtins:print"]', "[endpoints.a]: final must contain"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(table: str, place: str) -> None:
    """
    Unknown fields, wrong types, what is missing, and secrets that are written where everybody reads them.
    """
    with pytest.raises(ConfigurationError) as refused:
        made(f"[endpoints.a]\n{table}")

    assert str(refused.value).startswith(place)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["endpoints = 7", "[[endpoints]]\nkind = 7", "endpoints.a = 7", '[endpoints."a b"]', '[endpoints.""]']
)
def test_what_is_no_table_of_tables_is_refused(text: str) -> None:
    """
    And a name that could not be written on a line.
    """
    with pytest.raises(ConfigurationError, match="endpoint"):
        made(text)


@pytest.mark.parametrize(("mode", "content"), [(0o644, "x" * 40), (0o640, "x" * 40), (0o600, ""), (0o600, "\n \n")])
def test_a_file_of_secrets_is_for_its_owner_alone(tmp_path: Path, mode: int, content: str) -> None:
    """
    One that others can read is refused, and so is an empty one.
    """
    file = tmp_path / "secrets"
    file.write_text(content)
    file.chmod(mode)

    with pytest.raises(ConfigurationError, match="secrets_file"):
        made(f'[endpoints.a]\n{HTTP}secrets_file = "{file}"')
