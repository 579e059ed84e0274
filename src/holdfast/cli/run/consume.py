"""`holdfast consume`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from holdfast.cli.options import config_option, data_options, settings_from
from holdfast.cli.run.running import run_until_told, title, url
from holdfast.settings import Settings
from holdfast.wiring.processes.consume import running_consumer
from holdfast.wiring.processes.running import Running


@click.command()
@click.argument("app", metavar="[MODULE:APP]", default="")
@data_options
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port of the push endpoint and the HTTP API.  [default: 8080]")
@click.option("--store", metavar="URL", help="Document store.  [default: sqlite:///.holdfast/documents.db]")
@click.option(
    "--pull", metavar="SUBSCRIPTION", multiple=True, help="Also pull from this subscription. May be repeated."
)
@config_option
def consume(
    app: str,
    data: str | None,
    memory: bool | None,
    host: str | None,
    port: int | None,
    store: str | None,
    pull: Sequence[str],
    config: Path | None,
) -> None:
    """Run the consumer alone.

    MODULE:APP names a holdfast.consumer.Consumer of yours, such as shop.events:app. Without it the built-in
    materializer runs. The broker is found by PUBSUB_EMULATOR_HOST; without that it is Cloud Pub/Sub.
    """
    settings = settings_from(config, data=data, memory=memory, http__host=host, http__port=port, consumer__store=store)
    run_until_told(settings, running_consumer(settings, app, pull), partial(_about_consumer, pull))


def _about_consumer(pull: Sequence[str], settings: Settings, running: Running) -> list[str]:
    return [
        title("consumer is up", settings),
        f"  push endpoint  {url(settings, running)}/pubsub/push",
        *(f"  pulls from     {name}" for name in pull),
        f"  documents      {url(settings, running)}/api/v1/documents",
    ]
