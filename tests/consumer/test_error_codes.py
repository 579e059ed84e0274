"""The code in the log, from the exceptions of real libraries."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest
from google.api_core import exceptions

from holdfast.consumer.error_codes import error_code
from holdfast.errors import Misconfigured, StorageUnavailable


def caused(outer: Exception, inner: BaseException) -> Exception:
    outer.__cause__ = inner
    return outer


def sqlite_error() -> sqlite3.Error:
    try:
        sqlite3.connect(":memory:").execute("SELECT * FROM nothing")
    except sqlite3.Error as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.PermissionDenied("no"), "PERMISSION_DENIED"),  # type: ignore[no-untyped-call]
        (caused(Misconfigured("no"), exceptions.PermissionDenied("no")), "PERMISSION_DENIED"),  # type: ignore[no-untyped-call]
        (exceptions.InternalServerError("no"), "INTERNAL"),  # type: ignore[no-untyped-call]
        (psycopg.errors.InsufficientPrivilege("no"), "42501"),
        (caused(StorageUnavailable("x"), sqlite_error()), "SQLITE_ERROR"),
        (ConnectionRefusedError(111, "no"), "ECONNREFUSED"),
        (OSError(123456, "no"), "123456"),
        (ValueError("no"), ""),
    ],
)
def test_codes(error: Exception, code: str) -> None:
    assert error_code(error) == code


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert error_code(one) == ""


def test_a_long_code_is_cut_and_a_strange_one_is_none() -> None:
    strange: Any = ValueError("x")
    strange.code = "x" * 1000
    assert error_code(strange) == "x" * 50
    strange.code = {"not": "a code"}
    assert error_code(strange) == ""


def test_a_code_that_cannot_be_read_is_none() -> None:
    class Broken(Exception):
        @property
        def code(self) -> str:
            raise KeyError("code")

    assert error_code(Broken("x")) == ""
