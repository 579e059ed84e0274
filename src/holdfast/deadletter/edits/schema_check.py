"""Whether the topic's schema would take the content."""

from __future__ import annotations

import re

from holdfast.deadletter.dead_letter import UNKNOWN_TOPIC
from holdfast.deadletter.edits.checks import Complaint, Finding, complaint_about
from holdfast.errors import HoldfastError
from holdfast.ingest.manual import Schemas
from holdfast.model.failed_message import Content, FailedMessage

NAME = "schema"

# What brokers put before what is wrong: which schema, and of which revision.
_WHICH_SCHEMA = re.compile(r".*?does not fit (?:the schema|schema [^\s:,]+(?:, revision [^\s:,]+)?(?:, nor [^:]+)?): ")


class SchemaCheck:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    async def check(self, failure: FailedMessage, content: Content) -> Finding:
        if failure.source_topic == UNKNOWN_TOPIC:
            return Finding(NAME, skipped="nobody knows which topic it came from")
        try:
            problem = await self._schemas.problem(failure.source_topic, content.data)
        except HoldfastError as error:
            return Finding(NAME, skipped=str(error))
        if problem is None:
            return Finding(NAME, skipped="the topic has no schema")
        return Finding(NAME, [complaint_of(content, problem)] if problem else [])


def complaint_of(content: Content, problem: str) -> Complaint:
    """As a broker or a handler words it."""
    return complaint_about(content, _WHICH_SCHEMA.sub("", problem, count=1))
