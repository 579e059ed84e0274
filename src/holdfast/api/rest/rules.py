"""Which HTTP request means which method: read from Google's own REST client, so there is no copy to keep in step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.pubsub_v1.services.publisher.transports.rest_base import _BasePublisherRestTransport
from google.pubsub_v1.services.schema_service.transports.rest_base import _BaseSchemaServiceRestTransport
from google.pubsub_v1.services.subscriber.transports.rest_base import _BaseSubscriberRestTransport

SUBSCRIBER = "google.pubsub.v1.Subscriber"
IAM = "google.iam.v1.IAMPolicy"

_TRANSPORTS: Mapping[str, Any] = {
    "google.pubsub.v1.Publisher": _BasePublisherRestTransport,
    SUBSCRIBER: _BaseSubscriberRestTransport,
    "google.pubsub.v1.SchemaService": _BaseSchemaServiceRestTransport,
}

_IAM_METHODS = {"GetIamPolicy": "GET", "SetIamPolicy": "POST", "TestIamPermissions": "POST"}
_IAM_COLLECTIONS = ("topics", "subscriptions", "snapshots", "schemas")

_CLASS_PREFIX = "_Base"


@dataclass(frozen=True, slots=True)
class Rule:
    """`body` is the request's field that the body fills: "*" for the whole request, "" for none."""

    service: str
    method: str
    verb: str
    template: str
    body: str


def all_rules() -> Iterator[Rule]:
    for service, transport in _TRANSPORTS.items():
        yield from _rules_of(service, transport)
    yield from _iam_rules()
    # Google gives it no rule, since a stream has no REST form. With one, who tries it is told so.
    yield Rule(SUBSCRIBER, "StreamingPull", "POST", "/v1/{subscription=projects/*/subscriptions/*}:streamingPull", "*")


def _rules_of(service: str, transport: Any) -> Iterator[Rule]:
    """The transport has one inner class for each method, _BasePublish for Publish, that knows its rules."""
    for name, inner in vars(transport).items():
        method = name.removeprefix(_CLASS_PREFIX)
        if method != name and method not in _IAM_METHODS and hasattr(inner, "_get_http_options"):
            for option in inner._get_http_options():
                yield Rule(service, method, option["method"].upper(), option["uri"], option.get("body", ""))


def _iam_rules() -> Iterator[Rule]:
    for method, verb in _IAM_METHODS.items():
        for collection in _IAM_COLLECTIONS:
            template = f"/v1/{{resource=projects/*/{collection}/*}}:{method[0].lower()}{method[1:]}"
            yield Rule(IAM, method, verb, template, "*" if verb == "POST" else "")
