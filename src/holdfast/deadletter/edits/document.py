"""The content of a message as a JSON document that can be patched, and back to bytes. Pure.

    {"json": …, "attributes": {…}, "orderingKey": "…"}

The payload is under `json` where it is JSON, else under `text` where it is UTF-8, else in base64 under `data`.
These are the names that the API shows it by.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from holdfast.deadletter.edits.json_patch import DoesNotApply
from holdfast.model.exact_json import dump_exact_json, parse_exact_json
from holdfast.model.failed_message import Content

PAYLOAD_FORMS = ("json", "text", "data")
FIELDS = (*PAYLOAD_FORMS, "attributes", "orderingKey")

# Cloud Pub/Sub's bounds: what is beyond them could not be sent.
LARGEST_DATA = 10_000_000
MOST_ATTRIBUTES = 100
LONGEST_NAME_BYTES = 256
LONGEST_VALUE_BYTES = 1024
LONGEST_KEY_BYTES = 1024


def document_of(content: Content) -> dict[str, Any]:
    return {
        **payload_document(content.data),
        "attributes": dict(content.attributes),
        "orderingKey": content.ordering_key,
    }


def payload_document(data: bytes) -> dict[str, Any]:
    try:
        return {"json": parse_exact_json(data)}
    except ValueError:
        pass
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"data": base64.b64encode(data).decode()}


def raw_payload(data: bytes) -> dict[str, Any]:
    """So that it comes out as just these bytes."""
    document = payload_document(data)
    return {"text": data.decode()} if "json" in document else document


def content_of(document: Any, before: Content) -> Content:
    """JSON that says the same keeps its bytes, spaces and all. Raises DoesNotApply."""
    if not isinstance(document, dict) or not document.keys() <= set(FIELDS):
        raise DoesNotApply(f"a message has nothing but {', '.join(FIELDS)}")
    data = _data(document)
    data = _kept(before.data, data) if "json" in document else data
    return Content(data, _attributes(document), _ordering_key(document))


def _kept(before: bytes, data: bytes) -> bytes:
    is_same = dump_exact_json(payload_document(before)) == dump_exact_json(payload_document(data))
    return before if is_same else data


def _data(document: dict[str, Any]) -> bytes:
    forms = [form for form in PAYLOAD_FORMS if form in document]
    if len(forms) != 1:
        raise DoesNotApply(f"the payload must be under one of {', '.join(PAYLOAD_FORMS)}")
    data = _encoded(forms[0], document[forms[0]])
    if len(data) > LARGEST_DATA:
        raise DoesNotApply(f"/{forms[0]} has {len(data)} bytes; at most {LARGEST_DATA} are allowed")
    return data


def _encoded(form: str, value: Any) -> bytes:
    if form == "json":
        return dump_exact_json(value).encode()
    if not isinstance(value, str):
        raise DoesNotApply(f"/{form} must be text")
    if form == "text":
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise DoesNotApply("/data is not base64") from None


def _attributes(document: dict[str, Any]) -> dict[str, str]:
    attributes = document.get("attributes", {})
    if not isinstance(attributes, dict):
        raise DoesNotApply("/attributes must be an object")
    if len(attributes) > MOST_ATTRIBUTES:
        raise DoesNotApply(f"/attributes has {len(attributes)}; at most {MOST_ATTRIBUTES} are allowed")
    for name, value in attributes.items():
        if not isinstance(value, str):
            raise DoesNotApply(f"/attributes/{name[:64]} must be text")
        if not name or len(name.encode()) > LONGEST_NAME_BYTES or len(value.encode()) > LONGEST_VALUE_BYTES:
            raise DoesNotApply(f"/attributes/{name[:64]} is empty or longer than Pub/Sub allows")
    return attributes


def _ordering_key(document: dict[str, Any]) -> str:
    key = document.get("orderingKey", "")
    if not isinstance(key, str) or len(key.encode()) > LONGEST_KEY_BYTES:
        raise DoesNotApply(f"/orderingKey must be text of at most {LONGEST_KEY_BYTES} bytes")
    return key
