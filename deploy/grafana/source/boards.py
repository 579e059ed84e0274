"""All dashboards, as the JSON that Grafana loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.source.broker_and_push import broker_and_push
from deploy.grafana.source.consumers import consumers
from deploy.grafana.source.dead_letters import dead_letters
from deploy.grafana.source.pipeline import pipeline

FOLDER = Path(__file__).resolve().parents[1] / "dashboards"


def made() -> Mapping[str, str]:
    """By the name of the file."""
    built = {
        "pipeline.json": pipeline(),
        "broker-and-push.json": broker_and_push(),
        "consumer.json": consumers(),
        "dead-letters.json": dead_letters(),
    }
    return {name: _written(board.build()) for name, board in built.items()}


def _written(board: object) -> str:
    return json.dumps(board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
