"""Which addresses are allowed. What a client does with it is in test_where_requests_go.py."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, SettingError
from holdfast.outgoing.addresses import LOOPBACK, PRIVATE, AddressGuard
from holdfast.outgoing.targets import parse_target

CLOSED = AddressGuard()

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:200::1",
    "2003::1",
    "3ffe::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]

# The first, the last and one in the middle of each.
SPECIAL = [
    "0.0.0.0 0.0.0.1 0.255.255.255",
    "10.0.0.0 10.1.2.3 10.255.255.255",
    "100.64.0.0 100.100.100.200 100.127.255.255",
    "127.0.0.0 127.0.0.1 127.255.255.255",
    "169.254.0.0 169.254.169.254 169.254.255.255",
    "172.16.0.0 172.20.1.1 172.31.255.255",
    "192.0.0.0 192.0.0.170 192.0.0.255",
    "192.0.2.0 192.0.2.1 192.0.2.255",
    "192.88.99.0 192.88.99.1 192.88.99.255",
    "192.168.0.0 192.168.1.1 192.168.255.255",
    "198.18.0.0 198.19.0.1 198.19.255.255",
    "198.51.100.0 198.51.100.7 198.51.100.255",
    "203.0.113.0 203.0.113.7 203.0.113.255",
    "224.0.0.0 224.0.0.251 239.255.255.255",
    "240.0.0.0 250.1.1.1 255.255.255.254 255.255.255.255",
    "168.63.129.16",
    ":: ::1 ::2 ::127.0.0.1 ::8.8.8.8",
    "::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1 64:ff9b::127.0.0.1 64:ff9b::169.254.169.254",
    "64:ff9b:1:: 64:ff9b:1::8.8.8.8 64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
    "100:: 100::1 1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 4000::",
    "2001:: 2001:0:808:808::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db8:: 2001:db8::1 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    "2002:: 2002:808:808::1 2002:a00:1::1 2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
    "5f00::1",
    "fc00:: fd00:ec2::254 fd12:3456::1 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "fe80:: fe80::1 fe80::1%eth0 febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "fec0::1",
    "ff00:: ff02::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
]


def guard(allow: str, *, listens_on_loopback: bool = False) -> AddressGuard:
    return AddressGuard.from_setting(allow, listens_on_loopback=listens_on_loopback)


def allows(guard: AddressGuard, address: str) -> bool:
    return guard.why_blocked(address, 443) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert allows(CLOSED, address)


@pytest.mark.parametrize("address", [address for group in SPECIAL for address in group.split()])
def test_all_others_are_blocked(address: str) -> None:
    why = CLOSED.why_blocked(address, 443)
    assert why is not None
    assert "outgoing.allow" in why


@pytest.mark.parametrize("address", ["", "localhost", "127.1", "0x7f.1", "2130706433", "1.2.3.4.5", "x" * 1000])
def test_what_is_no_address_is_blocked(address: str) -> None:
    why = CLOSED.why_blocked(address, 443)
    assert why is not None
    assert len(why) < 200


@pytest.mark.parametrize(
    ("allow", "address", "allowed"),
    [
        ("none", "127.0.0.1", False),
        ("none", "8.8.8.8", True),
        ("loopback", "127.0.0.1", True),
        ("loopback", "127.9.9.9", True),
        ("loopback", "::1", True),
        ("loopback", "::ffff:127.0.0.1", True),
        ("loopback", "0.0.0.0", False),
        ("loopback", "::", False),
        ("loopback", "10.0.0.1", False),
        ("private", "127.0.0.1", True),
        ("private", "::1", True),
        ("private", "10.0.0.1", True),
        ("private", "172.31.0.1", True),
        ("private", "192.168.0.1", True),
        ("private", "fd12::1", True),
        ("private", "::ffff:10.0.0.1", True),
        ("private", "64:ff9b::10.0.0.1", True),
        ("private", "169.254.0.1", False),
        ("private", "169.254.169.254", False),
        ("private", "fe80::1", False),
        ("private", "100.64.0.1", False),
        ("private", "100.100.100.200", False),
        ("private", "fd00:ec2::254", False),
        ("private", "fd20:ce::254", False),
        ("private", "fd20:ce::254%eth0", False),
        ("private", "0.0.0.0", False),
        ("private", "224.0.0.1", False),
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        (" fd00::/8 , 10.1.0.0/16,loopback", "10.1.2.3", True),
        (" fd00::/8 , 10.1.0.0/16,loopback", "fd00::1", True),
        (" fd00::/8 , 10.1.0.0/16,loopback", "127.0.0.1", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("169.254.0.0/16", "169.254.7.7", True),
        # A metadata service must be meant.
        ("169.254.0.0/16", "169.254.169.254", False),
        ("0.0.0.0/0", "169.254.169.254", False),
        ("0.0.0.0/0", "168.63.129.16", False),
        ("169.254.169.254", "169.254.169.254", True),
        ("169.254.169.254/32", "::ffff:169.254.169.254", True),
        ("fd00:ec2::254/128, private", "fd00:ec2::254", True),
        # What is inside counts, even where what is around is allowed.
        ("::/0", "64:ff9b::10.0.0.1", False),
        ("::/0", "2002:a00:1::1", False),
        ("::/0", "::10.0.0.1", False),
        ("::/0", "::ffff:10.0.0.1", False),
        ("::/0", "2001:0:808:808::f5ff:fffe", False),
        ("::/0", "2001:0:a00:1::f7f7:f7f7", False),
        ("::/0", "2001:0:808:808::f7f7:f7f7", True),
        ("::/0", "2002:808:808::1", True),
        ("::/0", "::1", True),
        ("64:ff9b:1::/48", "64:ff9b:1::8.8.8.8", True),
        ("64:ff9b:1::/48", "64:ff9b:1::10.0.0.1", False),
        ("64:ff9b:1::/48", "64:ff9b:1:808:8:800::", True),
        ("64:ff9b:1::/48", "64:ff9b:1:a00:0:100::", False),
        ("64:ff9b:1::/48", "64:ff9b:1:a00:0:100:808:808", False),
        ("64:ff9b:1::/48", "64:ff9b:1::", False),
    ],
)
def test_the_setting(allow: str, address: str, allowed: bool) -> None:
    assert allows(guard(allow), address) is allowed


def test_auto_follows_where_the_broker_listens() -> None:
    assert allows(guard("auto", listens_on_loopback=True), "127.0.0.1")
    assert not allows(guard("auto", listens_on_loopback=True), "10.0.0.1")
    assert not allows(guard("auto", listens_on_loopback=False), "127.0.0.1")


@pytest.mark.parametrize("allow", ["", "some", "10.0.0.1/8", "loopback;private", "10.0.0.0/33"])
def test_a_setting_that_means_nothing(allow: str) -> None:
    with pytest.raises(SettingError, match=r"outgoing\.allow"):
        guard(allow)


def test_our_own_consumer_is_allowed_by_address_port_and_path() -> None:
    own = {("127.0.0.1", 8080, "/p"), ("::1", 8080, "/p")}
    ours = AddressGuard.from_setting("none", listens_on_loopback=False, also=own)
    assert ours.why_blocked("127.0.0.1", 8080, "/p") is None
    assert ours.why_blocked("::ffff:127.0.0.1", 8080, "/p") is None
    assert ours.why_blocked("::1", 8080, "/p") is None
    assert ours.why_blocked("127.0.0.1", 8081, "/p") is not None
    assert ours.why_blocked("127.0.0.2", 8080, "/p") is not None
    assert ours.why_blocked("127.0.0.1", 8080, "/admin") is not None
    assert ours.why_blocked("127.0.0.1", 8080) is not None


@pytest.mark.parametrize(
    ("host", "blocked"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("127.1", True),
        ("0x7f.1", True),
        ("2130706433", True),
        ("0177.0.0.1", True),
        ("10.0.0.1.", True),
        ("[::1]", True),
        ("[::ffff:10.0.0.1]", True),
        ("169.254.169.254", True),
        ("8.8.8.8", False),
        ("[2606:4700:4700::1111]", False),
        ("example.com", False),
        ("metadata.google.internal", False),
        ("notlocalhost", False),
    ],
)
def test_what_a_subscription_may_name(host: str, blocked: bool) -> None:
    target = parse_target("url", f"http://{host}/")
    if blocked:
        with pytest.raises(BadInput, match=r"url: .*outgoing\.allow"):
            CLOSED.check_target("url", target)
    else:
        CLOSED.check_target("url", target)


def test_a_subscription_may_name_what_is_allowed() -> None:
    for host in ("localhost", "127.0.0.1", "[::1]", "127.1"):
        AddressGuard(LOOPBACK).check_target("url", parse_target("url", f"http://{host}/"))
    ours = AddressGuard(also=[("127.0.0.1", 8080, "/p")])
    ours.check_target("url", parse_target("url", "http://localhost:8080/p"))
    for other in ("http://localhost:8081/p", "http://localhost:8080/"):
        with pytest.raises(BadInput):
            ours.check_target("url", parse_target("url", other))


IPV4 = st.ip_addresses(v=4)
GUARDS = st.sampled_from(
    [
        CLOSED,
        AddressGuard(LOOPBACK),
        AddressGuard(PRIVATE),
        AddressGuard([ipaddress.ip_network("::/0")]),
        AddressGuard([*PRIVATE, ipaddress.ip_network("64:ff9b:1::/48"), ipaddress.ip_network("2000::/3")]),
    ]
)


@given(IPV4, IPV4, GUARDS)
def test_an_ipv4_address_is_no_less_blocked_inside_an_ipv6_one(
    inside: ipaddress.IPv4Address, other: ipaddress.IPv4Address, guard: AddressGuard
) -> None:
    if guard.why_blocked(str(inside), 443) is None:
        return
    bits = int(inside)
    around = {
        "mapped": 0xFFFF << 32 | bits,
        "compatible": bits,
        "NAT64": 0x64FF9B << 96 | bits,
        "local NAT64, at the end": 0x64FF9B0001 << 80 | bits,
        "local NAT64, in the middle": 0x64FF9B0001 << 80 | (bits >> 16) << 64 | (bits & 0xFFFF) << 40,
        "6to4": 0x2002 << 112 | bits << 80 | int(other),
        "Teredo, server": 0x20010000 << 96 | bits << 64 | int(other),
        "Teredo, client": 0x20010000 << 96 | int(other) << 64 | (bits ^ 0xFFFFFFFF),
    }
    for form, whole in around.items():
        address = ipaddress.IPv6Address(whole)
        if address == ipaddress.IPv6Address("::1"):
            continue  # loopback, and not 0.0.0.1
        assert guard.why_blocked(str(address), 443) is not None, form


@given(IPV4)
def test_a_network_covers_the_mapped_form(address: ipaddress.IPv4Address) -> None:
    guard = AddressGuard(PRIVATE)
    plain, mapped = guard.why_blocked(str(address), 1), guard.why_blocked(f"::ffff:{address}", 1)
    assert (plain is None) is (mapped is None)
