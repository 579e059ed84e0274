"""One process per database file. The system drops the lock when its process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from holdfast.errors import DataDirectoryError


class FileLock:
    def __init__(self, database: Path) -> None:
        """Makes the directory when absent. Raises when another process holds the lock or the place is not usable."""
        try:
            database.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(database.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirectoryError(
                f"cannot use the data directory {database.parent}: {error.strerror}. "
                "Choose another with --data, or mend its rights"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise DataDirectoryError(
                f"{database} is in use by another Holdfast (process {holder}). "
                "Stop that one, or choose another directory with --data"
            ) from error
        # Who holds it is for people to read. A full disk that has no room for that may have room for all the rest.
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """The file stays: removing it would race with a process that has just opened it."""
        with suppress(OSError):
            os.ftruncate(self._file, 0)
        os.close(self._file)
