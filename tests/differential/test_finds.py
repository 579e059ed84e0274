"""The comparison can fail: a broker that does one thing wrong is found beside one that does it right, and in few steps.

Both are Holdfast's, so these need no emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.differential.generator import OPERATIONS
from tests.differential.reporting import compare
from tests.differential.side import Observation, Received, Side
from tests.differential.side_by_side import SideBySide
from tests.support.served_broker import Server

SEQUENCES = 60
PATIENCE_SECONDS = 0.2  # both are quick


class LosesAMessage(Side):
    def look(self, subscription: str, *, rest: bool = False) -> tuple[Observation, list[Received]]:
        observed, received = super().look(subscription, rest=rest)
        return observed, received[:2]


class ForgetsToDelete(Side):
    def send(self, method: str, request: dict[str, Any], *, rest: bool = False) -> Any:
        return None if method == "DeleteTopic" else super().send(method, request, rest=rest)


class DropsAttributes(Side):
    def _received(self, received: Any) -> Received:
        received.message.attributes.pop("color", None)
        return super()._received(received)


class SaysInternal(Side):
    def _observed(self, call: Callable[[], Any]) -> Observation:
        observed = super()._observed(call)
        return replace(observed, code="INTERNAL") if observed.code == "ALREADY_EXISTS" else observed


class CountsFromZero(Side):
    def _received(self, received: Any) -> Received:
        received.delivery_attempt = max(received.delivery_attempt - 1, 0)
        return super()._received(received)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("right") / "broker.db")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("wrong") / "broker.db")
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("wrong", "steps"),
    [
        (LosesAMessage, ["CreateTopic", "CreateSubscription", "Publish"]),
        (ForgetsToDelete, ["CreateTopic", "DeleteTopic"]),
        (DropsAttributes, ["CreateTopic", "CreateSubscription", "Publish"]),
        (SaysInternal, ["CreateTopic", "CreateTopic"]),
        (CountsFromZero, ["CreateTopic", "CreateSubscription", "Publish"]),
    ],
)
def test_one_thing_wrong_is_found_and_cut_down(
    server: Server, other: Server, tmp_path: Path, wrong: type[Side], steps: list[str]
) -> None:
    ours, theirs = Side(server.address), wrong(other.address)
    try:
        report = compare(SideBySide(ours, theirs, PATIENCE_SECONDS), 1, sequences=SEQUENCES)
    finally:
        ours.close()
        theirs.close()
    assert report.found, report
    shown = [line.split()[0] for line in report.told[0].split("shows it:")[1].split("as JSON")[0].splitlines() if line]
    assert set(steps) <= set(shown), report
    assert len(shown) <= len(steps) + 2, report


def test_two_that_are_the_same_do_not_differ(server: Server, other: Server) -> None:
    ours, theirs = Side(server.address), Side(other.address)
    try:
        report = compare(SideBySide(ours, theirs, PATIENCE_SECONDS), 1, sequences=10)
    finally:
        ours.close()
        theirs.close()
    assert not report.found, report
    assert not report.known, report
    assert report.operations == 10 * OPERATIONS, report
