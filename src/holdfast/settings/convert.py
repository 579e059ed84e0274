"""From what a file, the environment or a flag says to the type of the default."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import SettingError
from holdfast.settings.setting import Texts


def convert(source: str, value: object, default: object) -> Any:
    """To the type of the default. Text is parsed, because environment and flags have nothing else."""
    if isinstance(default, bool):
        return _to_bool(source, value)
    if isinstance(default, int):
        return _to_number(source, value, int)
    if isinstance(default, float):
        return _to_number(source, value, float)
    if isinstance(default, Mapping):
        return _to_mapping(source, value)
    if isinstance(default, Texts):
        return _to_texts(source, value)
    if isinstance(default, tuple):
        return _to_tables(source, value)
    if not isinstance(value, str):
        raise SettingError(source, value, "must be text")
    return value


def _to_bool(source: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise SettingError(source, value, "must be true or false")


def _to_number(source: str, value: object, kind: type[int] | type[float]) -> float:
    what = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise SettingError(source, value, f"must be {what}")
    if kind is int and isinstance(value, float):
        raise SettingError(source, value, f"must be {what}")
    try:
        return kind(value)
    except ValueError as error:
        raise SettingError(source, value, f"must be {what}") from error


def _to_mapping(source: str, value: object) -> Mapping[str, str]:
    wanted = 'must map text to text, such as {"my-subscription": "market-ticks"}'
    parsed = _from_json(source, value, wanted)
    if not isinstance(parsed, Mapping) or not all(
        isinstance(key, str) and isinstance(item, str) for key, item in parsed.items()
    ):
        raise SettingError(source, value, wanted)
    return dict(parsed)


def _to_tables(source: str, value: object) -> Sequence[Mapping[str, Any]]:
    wanted = "must be a list of tables"
    parsed = _from_json(source, value, wanted)
    if not isinstance(parsed, list) or not all(isinstance(item, Mapping) for item in parsed):
        raise SettingError(source, value, wanted)
    return tuple(parsed)


def _to_texts(source: str, value: object) -> Texts:
    wanted = "must be a list of texts, or a text of them separated by commas"
    given = value
    if isinstance(value, str):
        given = _from_json(source, value, wanted) if value.startswith("[") else value.split(",")
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        raise SettingError(source, value, wanted)
    return Texts(item.strip() for item in given if item.strip())


def _from_json(source: str, value: object, wanted: str) -> object:
    """Of text, which is how the environment tells what is not text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise SettingError(source, value, wanted) from error
