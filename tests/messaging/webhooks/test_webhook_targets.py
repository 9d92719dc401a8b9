"""Where a service may be made to send."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.errors import TargetRefused
from onceward.messaging.webhooks import WebhookTarget, is_public, parse_target
from onceward.messaging.webhooks.webhook_target import check_addresses, parse_networks


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", WebhookTarget("example.com", 443, "/")),
        ("https://Example.COM:8443/a/b?c=d", WebhookTarget("example.com", 8443, "/a/b?c=d")),
        ("https://xn--bcher-kva.example/hooks", WebhookTarget("xn--bcher-kva.example", 443, "/hooks")),
    ],
)
def test_a_public_https_url_is_a_target(url: str, target: WebhookTarget) -> None:
    """
    Host, port, path and query; nothing is resolved yet.
    """
    assert target == parse_target(url)


@pytest.mark.parametrize(
    "url",
    [
        "", "http://example.com", "ftp://example.com", "gopher://example.com", "//example.com", "example.com", "https://",
        "https:///path", "https://user@example.com", "https://user:password@example.com", "https://@example.com",
        "https://example.com:22", "https://example.com:0", "https://example.com:99999", "https://example.com:x",
        "https://localhost", "https://a.localhost", "https://printer.local", "https://vault.internal", "https://intranet",
        "https://127.0.0.1", "https://127.1", "https://2130706433", "https://0x7f.1", "https://0177.0.0.1", "https://0",
        "https://[::1]", "https://[::ffff:169.254.169.254]", "https://[64:ff9b::7f00:1]", "https://169.254.169.254",
        "https://example.com\\@127.0.0.1", "https://exa mple.com", "https://example.com\r\nX: y", "https://exämple.com",
        "https://example.com." , "https://-a.example", "https://a..example", "https://[::1", "https://" + "a" * 3000,
    ],
)  # fmt: skip
def test_what_could_lead_inside_is_refused(url: str) -> None:
    """
    Bare addresses in every spelling, users, other schemes and ports, names that end inside, what is no URL.
    """
    with pytest.raises(TargetRefused):
        parse_target(url)


@pytest.mark.fault("localhost-is-refused-without-a-way-out")
@pytest.mark.parametrize(
    "url", ["http://localhost:9000/hooks", "https://localhost/", "http://127.0.0.1:80", "https://[::1]/"]
)
def test_a_receiver_on_this_machine_is_refused_with_the_way_to_allow_it(url: str) -> None:
    """
    Whoever tries a relay out at home reads which two options let it.
    """
    with pytest.raises(TargetRefused) as refused:
        parse_target(url)

    assert ("allow_http" in str(refused.value), "allow_private" in str(refused.value)) == (True, True)


def test_for_a_machine_of_ones_own_it_can_be_spoken() -> None:
    """
    For tests and for services behind the same wall.
    """
    assert WebhookTarget("127.0.0.1", 8080, "/hooks", False) == parse_target(
        "http://127.0.0.1:8080/hooks", insecure=True
    )


@pytest.mark.parametrize(
    ("url", "options", "target"),
    [
        ("http://example.com/a", {"plain": True}, WebhookTarget("example.com", 80, "/a", False)),
        ("https://10.1.2.3:9000/a", {"inside": True}, WebhookTarget("10.1.2.3", 9000, "/a")),
        ("https://vault.internal/", {"inside": True}, WebhookTarget("vault.internal", 443, "/")),
    ],
)
def test_what_is_spoken_is_taken_one_thing_at_a_time(url: str, options: dict[str, bool], target: WebhookTarget) -> None:
    """
    Http is one thing, and the inside is another.
    """
    assert target == parse_target(url, **options)
    with pytest.raises(TargetRefused):
        parse_target(url, **{"inside" if "plain" in options else "plain": True})


@pytest.mark.parametrize(
    "url", ["http://example.com:8080/", "http://127.0.0.1/", "https://u@example.com/", "ftp://a.example/"]
)
def test_plain_is_no_more_than_http(url: str) -> None:
    """
    Not other ports, not bare addresses, not users.
    """
    with pytest.raises(TargetRefused):
        parse_target(url, plain=True)


def test_an_address_of_a_network_that_was_spoken_is_taken_as_it_stands() -> None:
    """
    Its neighbours are not, nor the same one wrapped in IPv6, nor one with a zone.
    """
    networks = parse_networks(["10.20.0.0/16", "::1", "fe80::/64"])
    for address in ("10.20.3.4", "::1", "8.8.8.8"):
        assert [address] == check_addresses([address], networks)
    for address in ("10.21.0.1", "::ffff:10.20.3.4", "127.0.0.1", "64:ff9b::a14:304", "fe80::1%eth0", "x"):
        with pytest.raises(TargetRefused):
            check_addresses([address], networks)


@pytest.mark.parametrize(
    "spoken", [["10.20.0.1/16"], ["0.0.0.0/0"], ["::/0"], ["x"], "10.0.0.0/8", True, ["10.0.0.0/7"]]
)
def test_a_network_is_spoken_by_its_name(spoken: Any) -> None:
    """
    One that is none, or is much of the world, is not taken.
    """
    with pytest.raises(ConfigurationError):
        parse_networks(spoken)


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "2a00::1"])
def test_an_address_out_in_the_world_is_public(address: str) -> None:
    """
    So that the list of refusals is known not to refuse everything.
    """
    assert True is is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
        "172.31.9.9", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
        "64:ff9b::7f00:1", "64:ff9b:1::1",
        "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "fc00::1", "fd12::1",
        "fe80::1", "fe80::1%eth0", "ff02::1", "100::1", "3fff::1", "", "no address", "127.1",
    ],
)  # fmt: skip
def test_an_address_inside_is_not_whatever_it_is_wrapped_in(address: str) -> None:
    """
    Loopback, private, link-local, shared, reserved, multicast; mapped, 6to4, Teredo and NAT64 around them.
    """
    assert False is is_public(address)


def test_every_address_of_a_name_must_be_public() -> None:
    """
    One good address does not make up for a bad one: which of them is called is not ours to choose.
    """
    assert check_addresses(["8.8.8.8", "2a00::1"]) == ["8.8.8.8", "2a00::1"]
    for addresses in (["8.8.8.8", "127.0.0.1"], ["::1"], []):
        with pytest.raises(TargetRefused):
            check_addresses(addresses)
