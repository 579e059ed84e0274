"""The rules as alert policies of Google Cloud Monitoring, in Terraform.

Each rule becomes a policy on Holdfast's own metrics, which Managed Prometheus collects. What Pub/Sub and Cloud Run
measure themselves gets a second policy on those, with the same limits: it also works where nobody collects anything.
Both are PromQL, because a policy's other conditions know neither a least number of requests nor growth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.alerts.prometheus import PREFIX
from holdfast.alerts.promql import expression
from holdfast.alerts.rule import Measure, Rule, narrowed, selectors_of, with_selectors
from holdfast.alerts.selector import Matcher, Selector
from holdfast.alerts.words import summary
from holdfast.metrics import broker, consumer, desk

# Cloud Monitoring judges in multiples of 30 seconds.
EVALUATION_SECONDS = 30

_HEAD = """\
# The alerts of Holdfast for Google Cloud Monitoring. Made by `holdfast alerts rules --format terraform`; change
# holdfast.toml instead and make it again.

terraform {
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.0"
    }
  }
}

variable "project" {
  description = "The project that the policies are in."
  type        = string
}

variable "notification_channels" {
  description = "Who is told, by severity: lists of channel names for warning and critical."
  type        = map(list(string))
  default     = {}
}

variable "subscriptions" {
  description = "Ids of the Pub/Sub subscriptions that are watched. Empty: all of the project."
  type        = list(string)
  default     = []
}

variable "critical_subscriptions" {
  description = "Ids of those that the rules for critical subscriptions keep to. Empty: the ones above."
  type        = list(string)
  default     = []
}

variable "services" {
  description = "Names of the Cloud Run services that Pub/Sub pushes to. Empty: all of the project."
  type        = list(string)
  default     = []
}

variable "runbook_url" {
  description = "The page that has the runbook's sections."
  type        = string
  default     = RUNBOOK
}

locals {
  critical               = length(var.critical_subscriptions) == 0 ? var.subscriptions : var.critical_subscriptions
  critical_subscriptions = length(local.critical) == 0 ? ".+" : join("|", local.critical)
  subscriptions          = length(var.subscriptions) == 0 ? ".+" : join("|", var.subscriptions)
  services               = length(var.services) == 0 ? ".+" : join("|", var.services)
}
"""


@dataclass(frozen=True, slots=True)
class _Native:
    """What Google measures in place of a metric of ours."""

    metric: str
    resource: str
    labels: Mapping[str, str]  # ours and theirs
    by: tuple[str, ...] = ()  # kept besides


_NATIVE: Mapping[str, _Native] = {
    broker.OLDEST_UNACKED.name: _Native(
        "pubsub_googleapis_com:subscription_oldest_unacked_message_age",
        "pubsub_subscription",
        {"subscription": "subscription_id"},
    ),
    broker.BACKLOG.name: _Native(
        "pubsub_googleapis_com:subscription_num_undelivered_messages",
        "pubsub_subscription",
        {"subscription": "subscription_id"},
    ),
    desk.RECORDED.name: _Native(
        "pubsub_googleapis_com:subscription_dead_letter_message_count",
        "pubsub_subscription",
        {"subscription": "subscription_id"},
    ),
    consumer.ANSWERS.name: _Native(
        "run_googleapis_com:request_count", "cloud_run_revision", {"status": "response_code"}, ("service_name",)
    ),
}

# Google has a label of its own for the hundreds.
_CLASSES = {f"{hundred}..": f"{hundred}xx" for hundred in range(1, 6)}


def policies(rules: Sequence[Rule], runbook_url: str) -> str:
    head = _HEAD.replace("RUNBOOK", _quoted(runbook_url))
    return head + "".join(f"\n{policy}" for rule in rules for policy in _policies(rule))


def _policies(rule: Rule) -> list[str]:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", rule.name).lower()
    own = expression(_in_scope(rule.measure, rule), rule.by)
    found = [_policy(rule, name, f"{PREFIX}{rule.name}", own)]
    natives = [_NATIVE.get(one.metric) for one in selectors_of(rule.measure)]
    if all(natives):
        first = natives[0]
        assert first
        by = [*(first.labels.get(label, label) for label in rule.by), *first.by]
        native = expression(with_selectors(rule.measure, partial(_native, rule=rule)), by, births=False)
        found.append(_policy(rule, f"{name}_on_google_cloud", f"{PREFIX}{rule.name}OnGoogleCloud", native))
    return found


def _in_scope(measure: Measure, rule: Rule) -> Measure:
    """Of our own metrics, those of the subscriptions that the variables name. Settings may have named them already."""
    named = any(one.label == "subscription" for selector in selectors_of(measure) for one in selector.matchers)
    if "subscription" not in rule.by or named:
        return measure
    return narrowed(measure, Matcher("subscription", "=~", f"projects/[^/]+/subscriptions/(?:{_scope(rule)})"))


def _scope(rule: Rule) -> str:
    return "${local.critical_subscriptions}" if rule.critical_only else "${local.subscriptions}"


def _native(of: Selector, rule: Rule) -> Selector:
    native = _NATIVE[of.metric]
    if native.resource == "pubsub_subscription":
        scope = Matcher("subscription_id", "=~", _scope(rule))
    else:
        scope = Matcher("service_name", "=~", "${local.services}")
    own = [_native_matcher(one, native) for one in of.matchers if one.label != "subscription"]
    return Selector(native.metric, (Matcher("monitored_resource", "=", native.resource), scope, *own))


def _native_matcher(one: Matcher, native: _Native) -> Matcher:
    if one.operator == "=~" and one.value in _CLASSES:
        return Matcher("response_code_class", "=", _CLASSES[one.value])
    return Matcher(native.labels[one.label], one.operator, one.value)


def _policy(rule: Rule, name: str, alert: str, value: str) -> str:
    said = summary(rule, {label: f"a {label}" for label in rule.by})
    said = said.replace("${", "$${").replace("%{", "%%{")  # Terraform would take these for its own
    content = f"{said[0].upper()}{said[1:]}.\n\nWhat to do: ${{var.runbook_url}}#{rule.runbook}"
    return f"""\
resource "google_monitoring_alert_policy" "{name}" {{
  project               = var.project
  display_name          = "{alert}"
  combiner              = "OR"
  severity              = "{rule.severity.upper()}"
  notification_channels = lookup(var.notification_channels, "{rule.severity}", [])

  conditions {{
    display_name = "{alert}"
    condition_prometheus_query_language {{
      query                     = {_quoted(f"{value} {rule.comparison} {rule.threshold:g}")}
      duration                  = "{rule.for_seconds}s"
      evaluation_interval       = "{EVALUATION_SECONDS}s"
      rule_group                = "holdfast"
      alert_rule                = "{alert}"
      disable_metric_validation = true
    }}
  }}

  documentation {{
    mime_type = "text/markdown"
    content   = {_quoted(content)}
  }}

  user_labels = {{
    severity = "{rule.severity}"
  }}
}}
"""


def _quoted(text: str) -> str:
    """Terraform reads the escapes of JSON. What stands in ${…} is its own."""
    return json.dumps(text, ensure_ascii=False)
