"""Which URLs a request may go to, and what is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.outgoing.targets import LONGEST_URL, Target, parse_target


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://example.com", Target("http", "example.com", 80, "/", "example.com")),
        ("HTTPS://Example.COM/Push?a=b&c", Target("https", "example.com", 443, "/Push?a=b&c", "example.com")),
        ("http://example.com:8080/x#part", Target("http", "example.com", 8080, "/x", "example.com:8080")),
        ("https://example.com:443/", Target("https", "example.com", 443, "/", "example.com")),
        ("http://example.com:443/", Target("http", "example.com", 443, "/", "example.com:443")),
        ("http://example.com:/", Target("http", "example.com", 80, "/", "example.com")),
        ("http://example.com?q", Target("http", "example.com", 80, "/?q", "example.com")),
        ("http://[::1]:8080/", Target("http", "::1", 8080, "/", "[::1]:8080")),
        ("http://[2001:DB8:0::1]/", Target("http", "2001:db8::1", 80, "/", "[2001:db8::1]")),
        ("http://10.0.0.1/", Target("http", "10.0.0.1", 80, "/", "10.0.0.1")),
        ("http://my_service.local/", Target("http", "my_service.local", 80, "/", "my_service.local")),
        ("http://bücher.example/ü?ä=1", Target("http", "xn--bcher-kva.example", 80, "/%C3%BC?%C3%A4=1", "")),
        ("http://１２７.0.0.1/", Target("http", "127.0.0.1", 80, "/", "127.0.0.1")),
        ('http://h/a%20b"<>{}', Target("http", "h", 80, "/a%20b%22%3C%3E%7B%7D", "h")),
        ("http://h//x/../y;z=1@2:3", Target("http", "h", 80, "//x/../y;z=1@2:3", "h")),
    ],
)
def test_a_url_is_taken_apart(url: str, target: Target) -> None:
    found = parse_target("url", url)
    expected = target if target.authority else Target(target.scheme, target.host, target.port, target.path, target.host)
    assert found == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "http://"),
        ("example.com", "http://"),
        ("ftp://example.com/", "http://"),
        ("file:///etc/passwd", "http://"),
        ("gopher://example.com:70/_x", "http://"),
        ("http:///path", "no host"),
        ("http:/example.com", "no host"),
        ("http://:80/", "no host"),
        ("http://?x", "no host"),
        ("http://user@example.com/", "OIDC"),
        ("http://user:secret@example.com/", "OIDC"),
        ("http://example.com:0/", "port"),
        ("http://example.com:65536/", "port"),
        ("http://example.com:-1/", "port"),
        ("http://example.com:8o/", "port"),
        ("http://example.com:８０/", "port"),
        ("http://exa mple.com/", "spaces"),
        ("http://example.com/a b", "spaces"),
        ("http://example.com/a\u00a0b", "spaces"),
        ("http://example.com\\@10.0.0.1/", "backslashes"),
        ("http://example.com/\r\nHost: x", "control"),
        ("http://example.com/\tx", "control"),
        ("http://example.com/\x00", "control"),
        ("http://example.com/\x7f", "control"),
        ("http://example.com/\u2028", "control"),
        ("http://example.com/\ud800", "control"),
        (" http://example.com/", "spaces"),
        ("http://[::1/", "not a URL"),
        ("http://[fe80::1%25eth0]/", "IPv6"),
        # Whether urlsplit notices these differs between versions of Python.
        ("http://[v1.x]/", ""),
        ("http://[::1].example.com/", ""),
        ("http://example.com[::1]/", ""),
        ("http://[10.0.0.1]/", ""),
        ("http://a..b/", "not a valid name"),
        ("http://.a/", "not a valid name"),
        ("http://a%2eb/", "not a valid name"),
        ("http://a,b/", "not a valid name"),
        ("http://-a/", "not a valid name"),
        ("http://" + "a" * 64 + ".example/", "not a valid name"),
        ("http://" + "a." * 127 + "a/", "not a valid name"),
        ("http://example.com/" + "a" * LONGEST_URL, str(LONGEST_URL)),
    ],
)
def test_what_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_target("push_config.push_endpoint", url)
    assert refused.value.field == "push_config.push_endpoint"
    assert why in refused.value.why


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(BadInput) as refused:
        parse_target("url", "http://user:hunter2@example.com/")
    assert "hunter2" not in str(refused.value)


@given(st.text().map(lambda text: "http://" + text) | st.text().map(lambda text: "https://h/" + text))
def test_whatever_is_accepted_fits_into_a_request_line(url: str) -> None:
    try:
        target = parse_target("url", url)
    except BadInput:
        return
    for part in (target.host, target.path, target.authority):
        assert part.isascii()
        assert part.isprintable()
        assert " " not in part
    assert target.path.startswith("/")
    assert target.host
    assert 1 <= target.port <= 65535
