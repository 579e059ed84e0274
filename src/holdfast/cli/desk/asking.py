"""Where the commands of the desk ask: the running desk over HTTP, or, for looking only, its store."""

from __future__ import annotations

import asyncio
import functools
import getpass
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from holdfast.api.http import in_process
from holdfast.cli.http import Loads, Pairs, answered, lines, request
from holdfast.cli.options import config_option, settings_from
from holdfast.errors import BadInput
from holdfast.settings import Settings
from holdfast.wiring.desk.serving import reading_routes

Command = Callable[..., None]

limit_option = click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="At most so many."
)


reveal_option = click.option(
    "--reveal", is_flag=True, help="See what is redacted, by desk.reveal_token. It is written down that you did."
)


# Looking.


@dataclass(frozen=True, slots=True)
class Reader:
    """Asks the desk at `url`; without one, reads its store."""

    url: str | None
    settings: Settings
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, path: str, pairs: Pairs = (), loads: Loads = json.loads) -> Any:
        if self.url:
            return asyncio.run(request("GET", self.url, path, pairs, headers=self.headers, loads=loads))
        return asyncio.run(self._read(path, pairs, loads))

    async def _read(self, path: str, pairs: Pairs, loads: Loads) -> Any:
        async with reading_routes(self.settings) as routes:
            status, body = await in_process.get(routes, path, pairs, {})
        return answered(status, loads(body.decode()))

    def pages(self, path: str, pairs: Pairs, name: str, limit: int) -> list[dict[str, Any]]:
        return _pages(self.get, path, pairs, name, limit)


def _pages(get: Callable[[str, Pairs], Any], path: str, pairs: Pairs, name: str, limit: int) -> list[dict[str, Any]]:
    """The first `limit` rows of a list."""
    rows: list[dict[str, Any]] = []
    token = ""
    while True:
        size = min(limit - len(rows), 1000)
        page = get(path, [*pairs, ("pageSize", str(size)), *([("pageToken", token)] if token else [])])
        rows += page[name]
        token = page["nextPageToken"]
        if not token or len(rows) >= limit:
            return rows


def reading_options(command: Command) -> Command:
    """Adds --url, --data, --failures and --config; the command gets what they mean as `reader`."""

    @click.option("--data", metavar="DIR", help="Directory of the files.  [default: .holdfast]")
    @click.option(
        "--failures", "store", metavar="URL", help="Failure store.  [default: sqlite:///.holdfast/failures.db]"
    )
    @click.option("--url", help="Ask this running desk, such as http://127.0.0.1:8080, instead of its store.")
    @reveal_option
    @config_option
    @functools.wraps(command)
    def with_reader(
        *args: Any,
        data: str | None,
        store: str | None,
        url: str | None,
        reveal: bool,
        config: Path | None,
        **options: Any,
    ) -> None:
        settings = settings_from(config, data=data, desk__failures=store)
        if reveal and not url:
            raise BadInput("--reveal", "a running desk must be asked, with --url: it writes down who has looked")
        command(*args, reader=Reader(url, settings, _headers(settings, myself(), reveal)), **options)

    return with_reader


# Acting.


@dataclass(frozen=True, slots=True)
class Sender:
    """Talks to a running desk, which is the only one that changes something."""

    url: str
    headers: Mapping[str, str]

    def get(self, path: str, pairs: Pairs = ()) -> Any:
        return asyncio.run(request("GET", self.url, path, pairs, headers=self.headers))

    def pages(self, path: str, pairs: Pairs, name: str, limit: int) -> list[dict[str, Any]]:
        return _pages(self.get, path, pairs, name, limit)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, pairs: Pairs = (), loads: Loads = json.loads
    ) -> Any:
        posting = request("POST", self.url, path, pairs, body=body or {}, headers=self.headers, loads=loads)
        return asyncio.run(posting)

    def lines(
        self, method: str, path: str, pairs: Pairs = (), body: Mapping[str, Any] | IO[bytes] | None = None
    ) -> AsyncIterator[bytes]:
        """Of what takes long."""
        return lines(method, self.url, path, pairs, body=body, headers=self.headers)


def acting_options(command: Command) -> Command:
    """As `plain_acting_options`, and --reveal, for commands that show, change or select by what may be redacted."""
    return reveal_option(plain_acting_options(command))


def plain_acting_options(command: Command) -> Command:
    """Adds --url, --actor and --config; the command gets what they mean as `desk`."""

    @click.option("--url", help="The running desk.  [default: http.host:http.port, http://127.0.0.1:8080]")
    @click.option("--actor", metavar="NAME", help="Who does it, for the audit trail.  [default: cli:<your user name>]")
    @config_option
    @functools.wraps(command)
    def with_desk(
        *args: Any, url: str | None, actor: str | None, config: Path | None, reveal: bool = False, **options: Any
    ) -> None:
        settings = settings_from(config)
        headers = _headers(settings, actor or myself(), reveal)
        command(*args, desk=Sender(url or own_url(settings), headers), **options)

    return with_desk


def _headers(settings: Settings, actor: str, reveal: bool) -> dict[str, str]:
    if not reveal:
        return {"Holdfast-Actor": actor}
    if not settings.desk.reveal_token:
        raise BadInput("--reveal", "desk.reveal_token is not set")
    return {"Holdfast-Actor": actor, "Holdfast-Reveal": settings.desk.reveal_token}


def own_url(settings: Settings) -> str:
    host = f"[{settings.http.host}]" if ":" in settings.http.host else settings.http.host
    return f"http://{host}:{settings.http.port}"


def myself() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in a container
        return "cli"


def moment(time: str | None) -> str:
    """To the second, which is what a table has room for."""
    return time[:19].replace("T", " ") if time else ""
