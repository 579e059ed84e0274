"""Which addresses Holdfast may connect to, so that nobody reaches an inner network by way of a push endpoint.

Public unicast addresses are allowed; every other one must be on the allow-list. The guard judges addresses, never
names: a name is resolved first, and every connect goes to an address that was judged.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from holdfast.errors import BadInput, SettingError
from holdfast.outgoing.targets import Target

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_SPECIAL_IPV4 = {
    IPv4Network("0.0.0.0/8"): "this machine",
    IPv4Network("10.0.0.0/8"): "a private network",
    IPv4Network("100.64.0.0/10"): "a carrier's inner network",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("169.254.0.0/16"): "link-local",
    IPv4Network("172.16.0.0/12"): "a private network",
    IPv4Network("192.0.0.0/24"): "reserved for protocols",
    IPv4Network("192.0.2.0/24"): "for documentation",
    IPv4Network("192.88.99.0/24"): "a 6to4 relay",
    IPv4Network("192.168.0.0/16"): "a private network",
    IPv4Network("198.18.0.0/15"): "for benchmarks",
    IPv4Network("198.51.100.0/24"): "for documentation",
    IPv4Network("203.0.113.0/24"): "for documentation",
    IPv4Network("224.0.0.0/4"): "multicast",
    IPv4Network("240.0.0.0/4"): "reserved or broadcast",
}

_PUBLIC_IPV6 = IPv6Network("2000::/3")
_SPECIAL_IPV6 = {
    IPv6Network("2001::/23"): "Teredo, or reserved for protocols",
    IPv6Network("2001:db8::/32"): "for documentation",
    IPv6Network("2002::/16"): "6to4",
    IPv6Network("3fff::/20"): "for documentation",
}

_COMPATIBLE = IPv6Network("::/96")
_LOOPBACK_IPV6 = IPv6Address("::1")
# Public as far as the IPv4 address inside is: where only IPv6 is spoken, every IPv4 endpoint has such an address.
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")

# Where clouds hand their credentials to whoever asks. Some of these lie in networks that people allow for other
# reasons, or are public by their number, so each must be allowed by itself and never by a network around it.
_METADATA: frozenset[Address] = frozenset(
    {
        IPv4Address("169.254.169.254"),  # nearly all
        IPv4Address("169.254.170.2"),  # AWS, containers
        IPv4Address("169.254.170.23"),  # AWS, Kubernetes
        IPv4Address("100.100.100.200"),  # Alibaba
        IPv4Address("168.63.129.16"),  # Azure
        IPv6Address("fd00:ec2::254"),  # AWS
        IPv6Address("fd00:ec2::23"),  # AWS, Kubernetes
        IPv6Address("fd20:ce::254"),  # Google
        IPv6Address("fd00:c1::a9fe:a9fe"),  # Oracle
        IPv6Address("fd00:42::42"),  # Scaleway
    }
)

LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
# Neither link-local, nor 100.64.0.0/10: clouds keep services for themselves in both.
PRIVATE: tuple[Network, ...] = (
    *LOOPBACK,
    IPv4Network("10.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("fc00::/7"),
)


class AddressGuard:
    def __init__(self, allow: Sequence[Network] = (), also: Collection[tuple[str, int, str]] = ()) -> None:
        """`also` holds addresses, ports and paths that are allowed, exactly so, whatever their network: such as our own
        consumer's."""
        self._allow = tuple(allow)
        self._also = frozenset((_plain(address), port, path) for address, port, path in also)

    @classmethod
    def from_setting(
        cls, allow: str, *, listens_on_loopback: bool, also: Collection[tuple[str, int, str]] = ()
    ) -> AddressGuard:
        """`allow` is the value of the setting outgoing.allow."""
        words = {
            "auto": LOOPBACK if listens_on_loopback else (),
            "none": (),
            "loopback": LOOPBACK,
            "private": PRIVATE,
        }
        networks: list[Network] = []
        for part in allow.split(","):
            word = part.strip()
            networks.extend(words[word] if word in words else [_network(word)])
        return cls(networks, also)

    @property
    def has_exceptions(self) -> bool:
        return bool(self._also)

    def why_blocked(self, address: str, port: int, path: str = "") -> str | None:
        """None when a connection to it is allowed."""
        try:
            plain = _plain(address)
        except ValueError:
            return f"{address[:64]!r} is not an IP address"
        if (plain, port, path) in self._also:
            return None
        for part in (plain, *_ipv4_inside(plain)):
            if (what := self._what_is_wrong_with(part)) is not None:
                inside = "" if part == plain else f", with {part} inside,"
                return f"{plain}{inside} is not allowed by outgoing.allow: {what}"
        return None

    def check_target(self, field: str, target: Target) -> None:
        """What can be known before the name is resolved, for whoever creates a subscription."""
        blocked = [self.why_blocked(address, target.port, target.path) for address in _known_addresses(target.host)]
        if blocked and blocked[0] is not None and None not in blocked:
            raise BadInput(field, blocked[0])

    def _what_is_wrong_with(self, address: Address) -> str | None:
        if address in _METADATA:
            alone = ipaddress.ip_network(address)
            return None if alone in self._allow else f"a cloud's metadata service, which only {alone} itself allows"
        if any(address in network for network in self._allow):
            return None
        return _special(address)


def _plain(address: str) -> Address:
    """Without a scope, and an IPv4 address that is written as an IPv6 one is what it is on the wire."""
    plain = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(plain, IPv6Address) and plain.ipv4_mapped is not None:
        return plain.ipv4_mapped
    return plain


def _special(address: Address) -> str | None:
    if isinstance(address, IPv4Address):
        return next((what for network, what in _SPECIAL_IPV4.items() if address in network), None)
    if address in _NAT64:
        return None
    if address == _LOOPBACK_IPV6:
        return "loopback"
    if address not in _PUBLIC_IPV6:
        return "not a public address"
    return next((what for network, what in _SPECIAL_IPV6.items() if address in network), None)


def _ipv4_inside(address: Address) -> list[IPv4Address]:
    """A router on the way may take these out and go there."""
    if isinstance(address, IPv4Address) or address == _LOOPBACK_IPV6:
        return []
    bits = int(address)
    if address in _COMPATIBLE or address in _NAT64:
        return [IPv4Address(bits & 0xFFFF_FFFF)]
    if address in _LOCAL_NAT64:
        return _inside_local_nat64(bits)
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    return []


def _inside_local_nat64(bits: int) -> list[IPv4Address]:
    """At the end, or around the eight bits in the middle that stay zero (RFC 6052); all zeros where it is not used."""
    at_the_end = bits & 0xFFFF_FFFF
    in_the_middle = (bits >> 64 & 0xFFFF) << 16 | (bits >> 40 & 0xFFFF)
    return [IPv4Address(inside) for inside in (at_the_end, in_the_middle) if inside] or [IPv4Address(0)]


def _network(word: str) -> Network:
    try:
        return ipaddress.ip_network(word)
    except ValueError:
        allowed = "must be auto, none, loopback, private or networks such as 10.1.0.0/16, separated by commas"
        raise SettingError("outgoing.allow", word, allowed) from None


def _known_addresses(host: str) -> Sequence[str]:
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return ("127.0.0.1", "::1")
    if ":" in name:
        return (name,)
    # Also the odd forms that the resolver takes for addresses: 127.1, 0x7f.1, 2130706433.
    try:
        return (socket.inet_ntoa(socket.inet_aton(name)),)
    except OSError:
        return ()
