"""One part of Holdfast on a disk and a clock that the lab holds:

    python -m holdfast.torture.child [--disk DATA SYNCED] [--plant MODULE:FUNCTION] -- broker --port 8085 ...

It changes what the program stands on, then runs the program as it is. What the lab tells it comes line by line on
standard input, as JSON: {"full": true}, {"sync_fails": true}, {"clock": 3600}.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.torture.disk import Disk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.torture.child")
    parser.add_argument("--disk", nargs=2, type=Path, metavar=("DATA", "SYNCED"))
    parser.add_argument("--plant", default="", metavar="MODULE:FUNCTION,...")
    parser.add_argument("args", nargs="+")
    asked = parser.parse_args()
    told: dict[str, Callable[[Any], None]] = {"clock": WallClock().set_offset}
    if asked.disk:
        disk = Disk(*asked.disk)
        disk.slip_under_sqlite()
        told |= {"full": disk.set_full, "sync_fails": disk.set_sync_fails}
    for planted in filter(None, asked.plant.split(",")):
        module, _, function = planted.partition(":")
        getattr(importlib.import_module(module), function)()
    threading.Thread(target=_listen, args=(told,), daemon=True).start()
    sys.argv = ["holdfast", *asked.args]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=False)


def _listen(told: dict[str, Callable[[Any], None]]) -> None:
    for line in sys.stdin:
        for name, value in json.loads(line).items():
            told[name](value)
    os._exit(1)  # the lab is gone, however it went


class WallClock:
    """The time of day, as all Python in this process sees it through `time`. The monotonic clock stays as it is, as on
    a machine whose time is set."""

    def __init__(self) -> None:
        self._offset_ns = 0
        now, now_ns = time.time, time.time_ns
        time.time = lambda: now() + self._offset_ns / 1e9
        time.time_ns = lambda: now_ns() + self._offset_ns

    def set_offset(self, seconds: float) -> None:
        self._offset_ns = round(seconds * 1e9)


if __name__ == "__main__":
    main()
