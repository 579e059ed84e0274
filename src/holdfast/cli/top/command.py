"""`holdfast top`: asks every second and draws what it hears."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
import click

from holdfast.cli.options import config_option, json_option, settings_from
from holdfast.cli.output import print_json
from holdfast.cli.top import screen
from holdfast.cli.top.asking import ANSWER_SECONDS, look
from holdfast.cli.top.drawing import ORDERS, View, drawn, plain, styled
from holdfast.cli.top.history import History
from holdfast.cli.top.picture import Picture, picture
from holdfast.cli.top.screen import Screen
from holdfast.clock import NANOSECONDS
from holdfast.errors import StorageUnavailable
from holdfast.model.timestamps import format_rfc3339
from holdfast.settings import Settings

_BY_KEY = {order.key: order for order in ORDERS}
_BY_NAME = {order.name: order for order in ORDERS}


@click.command()
@click.option(
    "--url", "urls", multiple=True, help="A running process. May be repeated.  [default: http://127.0.0.1:8080]"
)
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option(
    "--sort", type=click.Choice([*_BY_NAME]), default=ORDERS[0].name, show_default=True, help="First by this."
)
@click.option("--filter", "text", default="", help="Only subscriptions with this in their name.")
@click.option("--once", is_flag=True, help="Print it once, as plain text.")
@json_option
@config_option
def top(
    urls: Sequence[str], interval: float, sort: str, text: str, once: bool, as_json: bool, config: Path | None
) -> None:
    """Watch backlog, rates and failures of running processes.

    `holdfast up` is one process. Of parts that run alone, name each once: --url for the broker's port, the consumer's
    and the desk's. Without a terminal, and with --once or --json, it looks twice, an interval apart, and prints.
    """
    histories = [History(url) for url in dict.fromkeys(urls) or [_own_url(settings_from(config))]]
    view = View(order=_BY_NAME[sort], filter=text)
    if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        asyncio.run(_print_once(histories, view, interval, as_json))
    else:
        with Screen() as on:
            asyncio.run(_Watch(histories, view, interval, on).run())


def _own_url(settings: Settings) -> str:
    host = f"[{settings.http.host}]" if ":" in settings.http.host else settings.http.host
    return f"http://{host}:{settings.http.port}"


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))


async def _ask(session: aiohttp.ClientSession, histories: Sequence[History]) -> None:
    await asyncio.gather(*(_ask_one(session, history) for history in histories))


async def _ask_one(session: aiohttp.ClientSession, history: History) -> None:
    try:
        history.saw(await look(session, history.url))
    except StorageUnavailable as error:
        history.lost(str(error))


# Once.


async def _print_once(histories: Sequence[History], view: View, interval: float, as_json: bool) -> None:
    async with _session() as session:
        await _ask(session, histories)
        if any(history.now for history in histories):
            await asyncio.sleep(interval)
            await _ask(session, histories)
    shown = picture(histories)
    if all(history.now is None for history in histories):
        told = "; ".join(f"{history.url}: {history.error}" for history in histories)
        raise StorageUnavailable(f"no Holdfast answers at {told}. Is it up?")
    if as_json:
        print_json(_as_json(shown, view))
    else:
        for line in drawn(shown, view, time.time()):
            click.echo(plain(line))


def _as_json(shown: Picture, view: View) -> dict[str, Any]:
    """All there is, in the order that was asked for; what is not known is null."""
    found = asdict(replace(shown, subscriptions=view.rows(shown)), dict_factory=_camel_case)
    return {"time": format_rfc3339(time.time_ns() // NANOSECONDS * NANOSECONDS), **found}


def _camel_case(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """As the names in the API."""
    return {re.sub(r"_(.)", lambda found: found[1].upper(), name): value for name, value in fields}


# On a terminal.


class _Watch:
    def __init__(self, histories: Sequence[History], view: View, interval: float, on: Screen) -> None:
        self._histories = histories
        self._view = view
        self._interval = interval
        self._screen = on
        self._shown = picture(histories)
        self._over = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._over.set)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        loop.add_signal_handler(signal.SIGTSTP, self._step_aside)
        loop.add_reader(sys.stdin.fileno(), self._on_keys)
        asking = asyncio.create_task(self._keep_asking())
        ended = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()  # it ends by an error alone
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for task in (asking, ended):
                task.cancel()
            await asyncio.gather(asking, ended, return_exceptions=True)

    async def _keep_asking(self) -> None:
        self._draw()
        async with _session() as session:
            while True:
                next_look = time.monotonic() + self._interval
                await _ask(session, self._histories)
                if not self._view.paused:
                    self._shown = picture(self._histories)
                self._draw()
                await asyncio.sleep(max(next_look - time.monotonic(), 0))

    def _draw(self) -> None:
        width, height = screen.size()
        lines = drawn(self._shown, self._view, time.time(), width, height)
        to_text = plain if os.environ.get("NO_COLOR") else styled
        self._screen.show([to_text(line) for line in lines])

    def _step_aside(self) -> None:
        """Ctrl-Z: the shell gets its terminal as it was; on its return the view goes on."""
        self._screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._screen.enter()
        self._draw()

    def _on_keys(self) -> None:
        for key in self._screen.pressed():
            self._view = _typed(self._view, key) if self._view.typing else self._pressed(self._view, key)
        self._draw()

    def _pressed(self, view: View, key: str) -> View:
        last = max(len(view.rows(self._shown)) - 1, 0)
        match key:
            case "q":
                self._over.set()
            case "p" | " ":
                view = replace(view, paused=not view.paused)
            case "/":
                view = replace(view, typing=True)
            case "r":
                view = replace(view, reverse=not view.reverse)
            case screen.ESCAPE:
                view = replace(view, filter="", first=0)
            case screen.UP | "k":
                view = replace(view, first=max(view.first - 1, 0))
            case screen.DOWN | "j":
                view = replace(view, first=min(view.first + 1, last))
            case screen.PAGE_UP:
                view = replace(view, first=max(view.first - 10, 0))
            case screen.PAGE_DOWN:
                view = replace(view, first=min(view.first + 10, last))
            case _ if key in _BY_KEY:
                view = replace(view, order=_BY_KEY[key], first=0)
            case _:
                pass
        return view


def _typed(view: View, key: str) -> View:
    """A key while a filter is typed: what it leaves is shown at once."""
    match key:
        case screen.ENTER:
            return replace(view, typing=False)
        case screen.ESCAPE:
            return replace(view, typing=False, filter="", first=0)
        case screen.ERASE:
            return replace(view, filter=view.filter[:-1], first=0)
        case _ if len(key) == 1 and key.isprintable():
            return replace(view, filter=view.filter + key, first=0)
        case _:
            return view
