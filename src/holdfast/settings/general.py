"""What holds for every part."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.settings.checks import not_empty, one_of, project_id
from holdfast.settings.setting import setting


@dataclass(frozen=True, slots=True)
class GeneralSettings:
    data: str = setting(".holdfast", "Directory that holds all files of this installation.", check=not_empty)
    memory: bool = setting(False, "Keep everything in memory; nothing survives the process.")
    project: str = setting(
        "local",
        "Project id of the default topology and of short names.",
        check=project_id,
        variable="GCP_PROJECT",
    )
    emulator_host: str = setting(
        "",
        "HOST:PORT of the broker that `consume`, `desk` and `demo` talk to. Empty: Cloud Pub/Sub with your "
        "credentials, except that `demo` then looks for `up` on this machine.",
        variable="PUBSUB_EMULATOR_HOST",
    )
    log_format: str = setting(
        "auto",
        "`text`, `json`, or `auto`: text on a terminal, else JSON.",
        check=one_of("auto", "text", "json"),
    )
    log_level: str = setting(
        "info", "Least severe level that is logged.", check=one_of("debug", "info", "warning", "error")
    )
