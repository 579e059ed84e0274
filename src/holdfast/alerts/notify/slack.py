"""Slack, by an incoming webhook. Its URL is the secret."""

from __future__ import annotations

from typing import Any

from holdfast.alerts.alert import Alert
from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.notification import Notification
from holdfast.alerts.notify.posting import Poster, as_body
from holdfast.alerts.notify.wording import about, headline, rest

# Slack takes 50 blocks, of 3,000 characters each at most.
MOST_BLOCKS = 20
LONGEST_TEXT = 3000


class Slack:
    def __init__(self, poster: Poster) -> None:
        self._poster = poster

    @property
    def where(self) -> str:
        return self._poster.where

    async def send(self, notification: Notification) -> NotSent | None:
        return await self._poster.post(as_body(message(notification)))


def message(notification: Notification) -> dict[str, Any]:
    """`text` is what a phone shows."""
    listed = notification.alerts[:MOST_BLOCKS]
    blocks = [_section(f"*{escaped(notification.title)}*"), *(_section(_told(alert)) for alert in listed)]
    left = notification.firing + notification.resolved - len(listed)
    if left:
        blocks.append(_section(escaped(rest(notification).replace(str(notification.not_listed), str(left), 1))))
    return {"text": escaped(notification.title), "blocks": blocks}


def _told(alert: Alert) -> str:
    lines = [_line(title, text) for title, text in about(alert)]
    return "\n".join([f"*{escaped(headline(alert))}*", *lines])


def _line(title: str, text: str) -> str:
    """A command is for copying."""
    return f"{title}: `{escaped(text)}`" if title == "Next" else f"{title}: {escaped(text)}"


def _section(text: str) -> dict[str, Any]:
    cut = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    return {"type": "section", "text": {"type": "mrkdwn", "text": cut}}


def escaped(text: str) -> str:
    """Slack's three control characters; a backtick would end the code."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")
