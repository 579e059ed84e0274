"""How they are read, once, at start. Later wins: default, holdfast.toml, environment, flag."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.errors import SettingError
from holdfast.settings.checks import Check
from holdfast.settings.convert import convert
from holdfast.settings.settings import PARTS, TABLES, Settings

CONFIG_VARIABLE = "HOLDFAST_CONFIG"
CONFIG_FILE = "holdfast.toml"

# Whoever calls a variable so, to have a receiver of alerts read it, must not find its value in a log.
_MAY_BE_SECRET = re.compile("KEY|PASSWORD|SECRET|TOKEN|URL|HOOK")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Known:
    """One setting as users see it: `key` in holdfast.toml, its environment variables, its default."""

    key: str
    part: str
    spec: Field[Any]

    @property
    def variable(self) -> str:
        return "HOLDFAST_" + self.key.upper().replace(".", "_")

    @property
    def other_variable(self) -> str:
        return str(self.spec.metadata["variable"])

    @property
    def doc(self) -> str:
        return str(self.spec.metadata["doc"])

    @property
    def default(self) -> Any:
        return getattr(PARTS[self.part](), self.spec.name)

    def convert(self, value: object, source: str) -> Any:
        """`source` is how the user wrote it (a key, a variable or a flag), for the error."""
        converted = convert(source, value, self.default)
        check: Check | None = self.spec.metadata["check"]
        complaint = check(converted) if check else None
        if complaint:
            raise SettingError(source, value, complaint)
        return converted


def known_settings() -> Iterator[Known]:
    for table, part in TABLES.items():
        for spec in fields(PARTS[part]):
            yield Known(f"{table}.{spec.name}" if table else spec.name, part, spec)


def load_settings(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """`flags` maps keys such as "broker.port" to what the command line said; None values mean "not given"."""
    environ = os.environ if environ is None else environ
    by_key = {known.key: known for known in known_settings()}
    values: dict[str, Any] = {}
    for key, value in _file_values(_config_path(config, environ)).items():
        _require_known(key, value, by_key)
        values[key] = by_key[key].convert(value, key)
    for key, (variable, text) in _environment_values(environ, by_key).items():
        values[key] = by_key[key].convert(text, variable)
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = by_key[key].convert(value, key)
    return _build(values, by_key)


def _build(values: Mapping[str, Any], by_key: Mapping[str, Known]) -> Settings:
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for key, value in values.items():
        parts[by_key[key].part][by_key[key].spec.name] = value
    settings = Settings(**{part: PARTS[part](**given) for part, given in parts.items()})
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    """What no single value can tell."""
    shortest, longest = settings.topology.minimum_backoff_seconds, settings.topology.maximum_backoff_seconds
    if shortest > longest:
        allowed = f"must not be above topology.maximum_backoff_seconds, which is {longest:g}"
        raise SettingError("topology.minimum_backoff_seconds", shortest, allowed)


def _config_path(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    if config is not None:
        if not config.is_file():
            raise SettingError("--config", str(config), "there is no such file")
        return config
    default = Path(CONFIG_FILE)
    return default if default.is_file() else None


def _file_values(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("--config", str(path), f"is not valid TOML: {error}") from error
    except OSError as error:
        raise SettingError("--config", str(path), f"cannot be read: {error.strerror}") from error
    return dict(_flatten("", tree))


def _flatten(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    keys = {known.key for known in known_settings()}
    for name, value in tree.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict) and key not in keys:  # a table of settings, not a setting that is a table
            yield from _flatten(key, value)
        else:
            yield key, value


def _environment_values(environ: Mapping[str, str], by_key: Mapping[str, Known]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    ours = {known.variable: known.key for known in by_key.values()}
    for key, known in by_key.items():
        if known.other_variable and environ.get(known.other_variable):
            found[key] = (known.other_variable, environ[known.other_variable])
    for variable, text in environ.items():
        if variable in ours:
            found[ours[variable]] = (variable, text)
        elif variable.startswith("HOLDFAST_") and variable != CONFIG_VARIABLE:
            shown = _HIDDEN if _MAY_BE_SECRET.search(variable) else text
            raise SettingError(variable, shown, "there is no such setting" + _did_you_mean(variable, ours))
    return found


def _require_known(key: str, value: object, by_key: Mapping[str, Known]) -> None:
    if key not in by_key:
        raise SettingError(key, value, "there is no such setting" + _did_you_mean(key, by_key))


def _did_you_mean(name: str, names: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, names, 1, cutoff=0.8)  # lower, the common HOLDFAST_ alone would do
    return f"; did you mean {close[0]}?" if close else "; docs/settings.md lists them all"
