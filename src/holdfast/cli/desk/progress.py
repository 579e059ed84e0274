"""Long work of the desk as it goes on: its lines are read, progress is shown to people, and the result comes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import click

from holdfast.cli.http import answered
from holdfast.errors import HoldfastError
from holdfast.model.exact_json import load_exact_json, plain


def result_of(lines: AsyncIterator[bytes], what: str) -> Any:
    """With exact numbers. Progress goes to standard error, where somebody looks at it: `what` is being done."""
    return asyncio.run(_result_of(lines, what))


async def _result_of(lines: AsyncIterator[bytes], what: str) -> Any:
    async for line in lines:
        told = load_exact_json(line)
        if "progress" in told:
            _show(what, plain(told["progress"]))
        elif "error" in told:
            answered(plain(told)["error"]["code"], told)
        else:
            _show_end()
            return told["result"]
    raise HoldfastError("the desk ended before its work did: look what became of it, then try again")


def _show(what: str, progress: dict[str, int]) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{what}: {progress['done']:,} of {progress['total']:,}", nl=False, err=True)


def _show_end() -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
