"""`holdfast trace`: the journey of one message, joined from what every part knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import click

from holdfast.cli.http import TIMEOUT_SECONDS, get_json_with
from holdfast.cli.options import config_option, json_option, settings_from
from holdfast.cli.output import print_json, print_table, printable
from holdfast.errors import BadInput, HoldfastError, NotFound
from holdfast.model.journey import MOST_IDS, Part, Precision, merged
from holdfast.model.names import short_id
from holdfast.settings import Settings
from holdfast.wiring.addresses import url_of

_TITLES = ("time", "where", "what", "message", "detail")

NO_BROKER = (
    "no Holdfast broker was asked, so when it was published, its attempts and its acks are not known; "
    "Cloud Pub/Sub and Google's emulator do not tell"
)
NO_DESK = "no desk was asked, so failures that were recorded, retries and replays may be missing"
NO_CONSUMER = "no consumer was asked, so what it made of the message may be missing"

_FAILURE = "failures/"


@click.command()
@click.argument("message_id")
@click.option(
    "--url",
    "urls",
    multiple=True,
    help="Beside the broker, ask this process, not http.host:http.port; may be repeated.",
)
@click.option(
    "--broker", metavar="HOST:PORT", help="Broker.  [default: PUBSUB_EMULATOR_HOST, or broker.host:broker.port]"
)
@json_option
@config_option
def trace(message_id: str, urls: tuple[str, ...], broker: str | None, as_json: bool, config: Path | None) -> None:
    """Show the journey of a message: each attempt, retry and replay.

    MESSAGE_ID is that of the message, of its dead letter, or of what it was sent again as; or failures/4, a failure of
    the desk. Asks the broker and the process at http.host:http.port; consumers and desks elsewhere by --url, which may
    be given several times.
    """
    if not message_id:
        raise BadInput("MESSAGE_ID", "must not be empty")
    settings = settings_from(config, emulator_host=broker)
    asking = _Asking(_places(settings, urls))
    journey = asyncio.run(asking.journey(message_id))
    told = {**journey, "asked": [place.to_json() for place in asking.places]}
    if as_json:
        print_json(told)
    else:
        _print(told)
    if not journey["events"]:
        raise NotFound(_unknown(message_id, asking.places))


@dataclass(slots=True)
class _Place:
    url: str
    parts: list[str] = field(default_factory=list)
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"url": self.url, "parts": self.parts, "error": self.error}


def _places(settings: Settings, urls: Sequence[str]) -> list[_Place]:
    """With --url, only those and the broker: whoever names processes knows where they are."""
    address = settings.general.emulator_host or f"{settings.broker.host}:{settings.broker.port}"
    own = [url_of(settings.http.host, settings.http.port)]
    return [_Place(url) for url in dict.fromkeys([f"http://{address}", *(urls or own)])]


class _Asking:
    def __init__(self, places: list[_Place]) -> None:
        self.places = places

    async def journey(self, message_id: str) -> dict[str, Any]:
        """Until nobody names a new message."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            if message_id.startswith(_FAILURE):
                message_id = await self._message_of(session, message_id)
            known, new, answers = [message_id], [message_id], [_nothing(message_id)]
            while new:
                answers += [one for asked in new for one in await self._ask(session, asked)]
                named = merged(answers)["messageIds"]
                new = [one for one in named if one not in known][: MOST_IDS - len(known)]
                known += new
        if not any(place.parts for place in self.places):
            raise HoldfastError("; ".join(place.error for place in self.places))
        journey = merged(answers)
        notes = {Part.BROKER: NO_BROKER, Part.DESK: NO_DESK, Part.CONSUMER: NO_CONSUMER}
        missing = [note for part, note in notes.items() if part not in journey["parts"]]
        return journey | {"notes": [*journey["notes"], *missing]}

    async def _ask(self, session: aiohttp.ClientSession, message_id: str) -> list[dict[str, Any]]:
        asked = [place for place in self.places if not place.error]
        answers = await asyncio.gather(*(_answer(session, place, message_id) for place in asked))
        return [answer for answer in answers if answer is not None]

    async def _message_of(self, session: aiohttp.ClientSession, failure: str) -> str:
        """The first desk that has it says which message that was."""
        if not failure.removeprefix(_FAILURE).isdecimal():
            raise BadInput("MESSAGE_ID", f"must be a message id, or failures/ and a number, not {failure!r}")
        refusals: list[str] = []
        for place in self.places[1:]:  # the first is a broker's own port, which knows no failures
            try:
                found = await get_json_with(session, place.url, f"/api/v1/{failure}")
                return str(found["messageId"])
            except (HoldfastError, LookupError, TypeError) as error:
                refusals.append(f"{place.url}: {error}")
        raise NotFound(f"nobody knows {failure}; asked: {'; '.join(refusals)}")


async def _answer(session: aiohttp.ClientSession, place: _Place, message_id: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await get_json_with(session, place.url, f"/api/v1/messages/{message_id}/journey")
        place.parts = [str(part) for part in found["parts"]]
    except BadInput:  # a URL that is none
        raise
    except HoldfastError as error:
        place.error = str(error)
        return None
    except (LookupError, TypeError):
        place.error = f"{place.url} answers, and is no Holdfast"
        return None
    return found


def _nothing(message_id: str) -> dict[str, Any]:
    return {"messageId": message_id, "messageIds": [message_id], "parts": [], "events": [], "notes": []}


def _unknown(message_id: str, places: Sequence[_Place]) -> str:
    asked = "; ".join(f"{place.url} ({', '.join(place.parts)})" for place in places if place.parts)
    return f"nobody knows a message {message_id[:64]}; asked: {asked}"


# Printing.


def _print(told: dict[str, Any]) -> None:
    if told["events"]:
        print_table(_TITLES, [_cells(event) for event in told["events"]], whole=True)
    for note in told["notes"]:
        click.echo(printable(f"note: {note}"))
    for place in told["asked"]:
        if place["error"]:
            click.echo(printable(f"not asked: {place['error']}"), err=True)


def _cells(event: dict[str, Any]) -> list[object]:
    where = event["where"]
    if event["part"] != Part.DESK or where.startswith("projects/"):
        where = f"{event['part']} {short_id(where)}"
    what = f"{event['did']} {event['attempt'] or ''}"
    related = f"as {event['relatedMessageId']}" if event["relatedMessageId"] else ""
    return [_when(event), where, what, event["messageId"], " ".join(filter(None, (related, event["detail"])))]


def _when(event: dict[str, Any]) -> str:
    if event["precision"] == Precision.NOW:
        return "now"
    time = str(event["time"] or "")
    if event["precision"] == Precision.BY:
        return f"by {_cut(time)}" if time else "earlier"
    return _cut(time)


def _cut(time: str) -> str:
    """To the millisecond; the zone is always UTC."""
    day, _, clock = time.rstrip("Z").partition("T")
    whole, _, fraction = clock.partition(".")
    return f"{day} {whole}.{fraction[:3]:0<3}"
