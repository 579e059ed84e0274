"""Values that nobody may see: read from the environment or a file at start, and never shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.alerts.tables import Table
from holdfast.errors import SettingError

HIDDEN = "***"


class Secret:
    """Only `value` gives it away; text and repr do not."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    __str__ = __repr__

    def taken_out_of(self, text: str) -> str:
        """For what others say: an endpoint may repeat what it was sent."""
        return text.replace(self.value, HIDDEN)


class Unshown:
    """Stands for a value in an error: whoever writes a secret where none belongs must not find it in a log."""

    def __repr__(self) -> str:
        return HIDDEN


def secret_from(table: Table, name: str, environ: Mapping[str, str]) -> Secret | None:
    """From the variable that `<name>_env` names, or the file that `<name>_file` names; None where neither is there."""
    variable, path = table.raw.get(f"{name}_env"), table.raw.get(f"{name}_file")
    if variable is not None and path is not None:
        raise SettingError(table.key(f"{name}_file"), path, f"there is {name}_env too; only one of them can hold")
    if variable is not None:
        return _checked(table, f"{name}_env", environ.get(_variable(table, f"{name}_env"), ""))
    if path is not None:
        return _checked(table, f"{name}_file", _contents(table, f"{name}_file"))
    return None


def needed(table: Table, name: str, environ: Mapping[str, str]) -> Secret:
    found = secret_from(table, name, environ)
    if found is None:
        allowed = f"is missing: name an environment variable that has the {name}, or a file by {name}_file"
        raise SettingError(table.key(f"{name}_env"), None, allowed)
    return found


def _variable(table: Table, key: str) -> str:
    variable = table.text(key)
    if variable.startswith("HOLDFAST_"):
        raise SettingError(table.key(key), variable, "must not begin with HOLDFAST_: those are settings")
    return variable


def _contents(table: Table, key: str) -> str:
    try:
        return Path(table.text(key)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingError(table.key(key), table.raw[key], f"cannot be read: {why}") from None


def _checked(table: Table, key: str, value: str) -> Secret:
    value = value.strip()
    if not value:
        what = "variable of the environment" if key.endswith("_env") else "file"
        raise SettingError(table.key(key), table.raw[key], f"names a {what} that is not there, or is empty")
    if not value.isprintable():
        raise SettingError(table.key(key), table.raw[key], "names one that has control characters in it")
    return Secret(value)
