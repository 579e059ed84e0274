"""Real services that some tests run against."""

from __future__ import annotations

import os

import pytest


def require(service: str, found: object, why: str) -> None:
    """Skips the test when `service` cannot be had, and says why. In CI (CI=true) it fails instead: there every test
    must have run."""
    if found:
        return
    reason = f"{service} cannot be had here: {why}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
