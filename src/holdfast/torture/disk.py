"""A disk between SQLite and the real one, in one process. It can be full, its syncs can fail, and it knows what a power
cut would leave: beside the real files it keeps a second directory in which each file is as it was last synced.

It is slipped under SQLite's own operating system layer, so that SQLite meets a fault where it would meet a real one.
That takes nothing but ctypes, and an SQLite library whose functions can be found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

# What a disk writes whole or not at all.
SECTOR = 512

_OK = 0
_FULL = 13
_IOERR = 10
_IOERR_FSYNC = _IOERR | (4 << 8)

_METHODS = 19  # of sqlite3_io_methods in its third version: the version itself, then functions
_TRUNCATE, _SYNC, _WRITE = 4, 5, 3

_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
# Names are addresses: SQLite keeps more behind the text of a name, and reads it there.
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_Delete = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)


class _Vfs(Structure):
    """The beginning of sqlite3_vfs."""

    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
    ]


class _File(Structure):
    _fields_ = [("methods", POINTER(c_void_p))]


class NoSqliteLibrary(Exception):
    """SQLite is part of this Python in a way that its functions cannot be found."""


def sqlite_library() -> ctypes.CDLL:
    import _sqlite3  # noqa: PLC0415 - only to find out which library it uses

    where: list[str | None] = [getattr(_sqlite3, "__file__", None), None]
    for place in where:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(place)
            library.sqlite3_vfs_find.restype = POINTER(_Vfs)
            return library
    raise NoSqliteLibrary


class Disk:
    """Of the SQLite files below `data`. What has been synced is kept in `synced`."""

    def __init__(self, data: Path, synced: Path) -> None:
        self._data = data.absolute()
        self._synced = synced
        self._full = False
        self._sync_fails = False
        self._files: dict[Path, DiskFile] = {}
        self._deleted: set[Path] = set()  # not for good yet
        self._open: dict[int, DiskFile] = {}  # by the address of SQLite's own structure
        self._methods: dict[int, Any] = {}  # our copies of its tables of functions, by the address of the original
        self._kept: list[Any] = []  # what C knows the address of must not be collected

    def set_full(self, value: bool) -> None:
        self._full = value

    def set_sync_fails(self, value: bool) -> None:
        self._sync_fails = value

    def slip_under_sqlite(self) -> None:
        sqlite_library().sqlite3_initialize()
        vfs = sqlite_library().sqlite3_vfs_find(None).contents
        real_open, real_delete = _Open(vfs.open), _Delete(vfs.delete)

        def open_(vfs_: int, name: int | None, file: int, flags: int, out: Any) -> int:
            code = real_open(vfs_, name, file, flags, out)
            path = _path_at(name) if name else None
            if code == _OK and path is not None and path.is_relative_to(self._data):
                self._open[file] = self._file(path)
                self._wrap(file)
            return int(code)

        def delete(vfs_: int, name: int, sync_directory: int) -> int:
            path = _path_at(name)
            code = real_delete(vfs_, name, sync_directory)
            if code == _OK and path.is_relative_to(self._data):
                self._files.pop(path, None)
                self._deleted.add(path)
                if sync_directory:
                    self._sync_directory()
            return int(code)

        ours = _Open(open_), _Delete(delete)
        self._kept += [real_open, real_delete, *ours]
        vfs.open = ctypes.cast(ours[0], c_void_p).value
        vfs.delete = ctypes.cast(ours[1], c_void_p).value

    def _file(self, path: Path) -> DiskFile:
        if path not in self._files:
            self._files[path] = DiskFile(path, self._synced / path.relative_to(self._data))
        return self._files[path]

    def _sync_directory(self) -> None:
        """What was deleted stays deleted. SQLite asks for that, and does so by itself when it syncs a new journal."""
        while self._deleted:
            path = self._deleted.pop()
            if not path.exists():
                (self._synced / path.relative_to(self._data)).unlink(missing_ok=True)

    def _wrap(self, file: int) -> None:
        structure = _File.from_address(file)
        original = ctypes.cast(structure.methods, c_void_p).value
        assert original
        if original not in self._methods:
            self._methods[original] = self._methods_like(structure.methods)
        structure.methods = ctypes.cast(self._methods[original], POINTER(c_void_p))

    def _methods_like(self, original: Any) -> Any:
        table = (c_void_p * _METHODS)(*[original[number] for number in range(_METHODS)])
        real_write, real_sync = _Write(original[_WRITE]), _Sync(original[_SYNC])
        real_truncate = _Truncate(original[_TRUNCATE])

        def write(file: int, content: int, size: int, offset: int) -> int:
            if self._full:
                return _FULL
            found = self._open[file]
            found.written(offset, size)
            return int(real_write(file, content, size, offset))

        def truncate(file: int, size: int) -> int:
            return int(real_truncate(file, size))

        def sync(file: int, flags: int) -> int:
            found = self._open[file]
            if self._sync_fails:
                found.forget()
                return _IOERR_FSYNC
            code = real_sync(file, flags)
            if code == _OK and found.sync():
                self._sync_directory()
            return int(code)

        ours = _Write(write), _Truncate(truncate), _Sync(sync)
        self._kept += [real_write, real_truncate, real_sync, *ours]
        for number, function in zip((_WRITE, _TRUNCATE, _SYNC), ours, strict=True):
            table[number] = ctypes.cast(function, c_void_p).value
        return table


class DiskFile:
    """One file, and what it was at its last sync."""

    def __init__(self, path: Path, synced: Path) -> None:
        self._path = path
        self._synced = synced
        self._lock = threading.Lock()
        self._is_new = True
        # Sectors that were written since. What an earlier process has not synced is no safer for its death.
        self._unsynced = set(_differences(path, synced))

    def written(self, offset: int, size: int) -> None:
        with self._lock:
            self._unsynced.update(range(offset // SECTOR, (offset + size - 1) // SECTOR + 1))

    def forget(self) -> None:
        """A sync failed. As Linux does, the next one says nothing of what this one has not written."""
        with self._lock:
            self._unsynced.clear()

    def sync(self) -> bool:
        """Whether it was the first time."""
        with self._lock:
            is_first, self._is_new = self._is_new, False
            unsynced, self._unsynced = sorted(self._unsynced), set()
            self._synced.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("rb") as real, self._synced.open("r+b" if self._synced.exists() else "w+b") as synced:
                for first, count in _runs(unsynced):
                    content = os.pread(real.fileno(), count * SECTOR, first * SECTOR)
                    os.pwrite(synced.fileno(), content, first * SECTOR)
                os.ftruncate(synced.fileno(), os.fstat(real.fileno()).st_size)
        return is_first


def _path_at(address: int) -> Path:
    return Path(os.fsdecode(ctypes.string_at(address)))


def _runs(sectors: list[int]) -> Iterator[tuple[int, int]]:
    """First and count of those that follow each other."""
    first, count = -1, 0
    for sector in sectors:
        if sector == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = sector, 1
    if count:
        yield first, count


def _differences(real: Path, synced: Path) -> Iterator[int]:
    if not real.exists():
        return
    with real.open("rb") as file:
        other = synced.read_bytes() if synced.exists() else b""
        number = 0
        while block := file.read(SECTOR * 128):
            before = other[number * SECTOR : number * SECTOR + len(block)]
            if block != before:
                for start in range(0, len(block), SECTOR):
                    if block[start : start + SECTOR] != before[start : start + SECTOR]:
                        yield number + start // SECTOR
            number += 128
