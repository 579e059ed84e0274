"""docs/runbook.md: every command and every statement in it runs for real, one after the other as it is written."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from holdfast.model.failed_message import FailedMessage, FailureStatus
from tests.support import http
from tests.support.desk import a_failure, open_store
from tests.support.postgres import database_url, postgres
from tests.support.process import HOLDFAST, Launcher, environment

__all__ = ["database_url", "postgres"]

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"

# The message of the guide, and what its group is called here.
MESSAGE_ID = "FIRMS_20250104_00142"
GROUP = "f00d"

DAY_NS = 86_400 * 10**9


def blocks(language: str) -> list[str]:
    text = RUNBOOK.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def failures() -> list[FailedMessage]:
    """The first two were refused for their time, and would pass once it is right."""
    now_ns = time.time_ns()
    told: dict[str, Any] = {
        "subscription": "projects/local/subscriptions/market-ticks.materializer",
        "source_topic": "projects/local/topics/market-ticks",
        "data": b'{"symbol": "ACME", "ts": "2025-13-04T00:00:00Z", "price": 39.75}',
        "error_details": "ts: is not a time",
        "created_at_ns": now_ns,
    }
    right = told | {"data": b'{"symbol": "ACME", "ts": "2025-01-05T00:00:00Z"}'}
    mended = right | {"status": FailureStatus.RETRY_SUCCESS, "created_at_ns": now_ns - 40 * DAY_NS}
    return [
        a_failure(MESSAGE_ID, **told),
        a_failure("FIRMS_20250104_00143", **told),
        a_failure("FIRMS_20250104_00144", **right),
        a_failure("FIRMS_20250104_00145", **right),
        a_failure("FIRMS_20241204_00001", **mended, retry_success_at_ns=now_ns - 39 * DAY_NS),
    ]


async def fill(data: Path, url: str = "") -> None:
    store = await open_store(data, url)
    await store.record(failures())
    await store.close()


# Commands.


def commands() -> list[list[str]]:
    """The words of each line; one that ends in a backslash goes on in the next."""
    text = "".join(blocks("sh")).replace("\\\n", " ").replace("GROUP", GROUP)
    return [shlex.split(line) for line in text.splitlines()]


def test_the_commands(launcher: Launcher) -> None:
    asyncio.run(fill(launcher.data))
    up = launcher.up()
    env = environment({"HOLDFAST_HTTP_PORT": up.url.rpartition(":")[2]})
    for words in commands():
        words = [word.replace("http://127.0.0.1:8080", up.url) for word in words]
        program = HOLDFAST if words[0] == "holdfast" else words[0]
        done = subprocess.run(
            [program, *words[1:]], cwd=launcher.cwd, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    rows = http.get(f"{up.url}/api/v1/failures").body["failures"]
    assert {row["messageId"]: row["status"] for row in rows} == {
        MESSAGE_ID: "replayed",
        "FIRMS_20250104_00143": "replayed",
        "FIRMS_20250104_00144": "replayed",
        "FIRMS_20250104_00145": "replayed",
    }
    group = http.get(f"{up.url}/api/v1/groups/{GROUP}").body
    assert (group["state"], group["assignee"]) == ("resolved", "anna")
    assert launcher.run("audit", "verify").returncode == 0


# SQL.


def statements() -> Iterator[str]:
    for block in blocks("sql"):
        yield from (statement.strip() for statement in block.split(";") if statement.strip())


def test_the_statements_on_postgresql(database_url: str, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, database_url))
    found: dict[str, list[tuple[Any, ...]]] = {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in statements():
            cursor = connection.execute(statement.encode())
            found[statement.split()[0] + str(len(found))] = cursor.fetchall() if cursor.description else []
        [(cleaned,)] = [rows[0] for rows in found.values() if rows and rows[0] == (1,)]
        assert cleaned == 1  # by cleanup_old_dlq_messages
        left = connection.execute("SELECT message_id, status FROM failed_messages ORDER BY id").fetchall()
    assert left[0] == (MESSAGE_ID, "replayed")
    assert len(left) == 4
    asyncio.run(check_counters(tmp_path, database_url))


async def check_counters(data: Path, url: str) -> None:
    """What people's own SQL did is counted."""
    store = await open_store(data, url)
    counts = await store.count_by_status()
    await store.close()
    assert {str(status): count for status, count in counts.items() if count} == {
        "replayed": 1,
        "permanent_failure": 3,
    }


def test_statements_that_only_read_work_on_sqlite(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    reading = [
        statement
        for statement in statements()
        if statement.startswith("SELECT") and "NOW()" not in statement and "cleanup" not in statement
    ]
    assert len(reading) >= 6
    with closing(sqlite3.connect(f"file:{tmp_path}/failures.db?mode=ro", uri=True)) as file:
        by_status = dict(file.execute(reading[0]).fetchall())
        assert by_status == {"permanent_failure": 4, "retry_success": 1}
        for statement in reading[1:]:
            file.execute(statement).fetchall()
        original = json.loads(file.execute("SELECT original_message FROM failed_messages WHERE id = 1").fetchone()[0])
    assert original["symbol"] == "ACME"
