"""The receivers and quiet times of the settings: what is wrong is named, and what is secret is never shown."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.alerts.notify.matching import all_hold, parse_matchers
from holdfast.alerts.notify.quiet_times import quiet_times
from holdfast.alerts.notify.reading import Reading
from holdfast.alerts.notify.receiver import Receiver
from holdfast.errors import SettingError
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.testing import ManualClock

CANARY = "canary-4711"
ENVIRON = {
    "URL": f"https://hooks.slack.com/services/{CANARY}",
    "KEY": CANARY,
    "EMPTY": " ",
    "NO_URL": CANARY,
    "BAD_BASE64": f"whsec_{CANARY}",
    "TWO_LINES": f"{CANARY}\n{CANARY}",
}


def read(text: str) -> list[Receiver]:
    tables: list[dict[str, Any]] = tomllib.loads(text).get("receiver", [])
    return Reading(OutgoingClient(AddressGuard()), ManualClock(), ENVIRON).receivers(tables)


def test_what_is_not_said_has_a_default() -> None:
    slack, incidents = read(
        """
        [[receiver]]
        name = "ops"
        kind = "slack"
        url_env = "URL"
        [[receiver]]
        name = "night"
        kind = "pagerduty"
        routing_key_env = "KEY"
        """
    )
    assert (slack.match, slack.group_by, slack.resolved, slack.joins) == ((), ("rule",), True, True)
    assert (slack.group_wait, slack.group_interval, slack.repeat, slack.per_minute) == (10, 60, 4 * 3600, 20)
    assert slack.channel.where == "https://hooks.slack.com"
    assert (incidents.channel.where, incidents.joins) == ("https://events.pagerduty.com", False)
    assert CANARY not in repr([slack, incidents])


def test_everything_can_be_said() -> None:
    [hook] = read(
        """
        [[receiver]]
        name = "hook"
        kind = "webhook"
        url = "https://example.com/in?a=b"
        secret_env = "KEY"
        match = ['severity="critical"', 'rule!=StaleSpike', 'subscription=~".*/orders[.].*"']
        group_by = []
        group_wait = 0
        group_interval = "5m"
        repeat = "12h"
        per_minute = 1
        resolved = false
        give_up = "2h"
        """
    )
    assert (hook.group_by, hook.group_wait, hook.group_interval, hook.repeat) == ((), 0, 300, 12 * 3600)
    assert (hook.per_minute, hook.resolved, hook.give_up) == (1, False, 7200)
    labels = {"severity": "critical", "rule": "OldestUnacked", "subscription": "projects/p/subscriptions/orders.x"}
    assert all_hold(hook.match, labels)
    assert not all_hold(hook.match, labels | {"rule": "StaleSpike"})
    assert not all_hold(hook.match, labels | {"subscription": "projects/p/subscriptions/mail.x"})


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    file = tmp_path / "key"
    [found] = read(f'[[receiver]]\nname = "a"\nkind = "pagerduty"\nrouting_key_file = "{file}"')
    assert CANARY not in repr(found)
    with pytest.raises(SettingError, match=r"routing_key_file = .*cannot be read: No such file"):
        read(f'[[receiver]]\nname = "a"\nkind = "pagerduty"\nrouting_key_file = "{file}.gone"')


SLACK = '[[receiver]]\nname = "a"\nkind = "slack"\nurl_env = "URL"\n'
MAIL = '[[receiver]]\nname = "a"\nkind = "email"\nhost = "mail.test"\nfrom = "a@b"\nto = ["c@d"]\n'
HOOK = '[[receiver]]\nname = "a"\nkind = "webhook"\nurl = "https://x.test"\nsecret_env = "KEY"\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SLACK.replace('"a"', '"Ops!"'), "[0].name = 'Ops!': must be lower-case letters"),
        (SLACK.replace("slack", "teams"), "[0].kind = 'teams': must be one of slack, pagerduty, webhook, email, log"),
        (SLACK + SLACK, "[1].name = 'a': another receiver has this name"),
        (SLACK.replace('url_env = "URL"', ""), "[0].url_env = None: is missing: name an environment variable"),
        (
            SLACK.replace("URL", "GONE"),
            "[0].url_env = 'GONE': names a variable of the environment that is not there, or is empty",
        ),
        (
            SLACK.replace("URL", "EMPTY"),
            "[0].url_env = 'EMPTY': names a variable of the environment that is not there, or is empty",
        ),
        (SLACK.replace("URL", "TWO_LINES"), "[0].url_env = 'TWO_LINES': names one that has control characters"),
        (SLACK.replace("URL", "NO_URL"), "[0].url_env = ***: names what is no URL"),
        (SLACK.replace("URL", "HOLDFAST_URL"), "[0].url_env = 'HOLDFAST_URL': must not begin with HOLDFAST_"),
        (SLACK + 'url_file = "/x"', "[0].url_file = '/x': there is url_env too; only one of them can hold"),
        (SLACK + f'url = "https://x.test/{CANARY}"', "[0].url = ***: is a secret and does not belong into a file"),
        (SLACK + f'token = "{CANARY}"', "[0].token = ***: there is no such key; for a receiver of kind slack these"),
        (SLACK + 'match = ["severity"]', "[0].match = ['severity']: has labels that cannot be read at 'severity'"),
        (SLACK + "match = ['a=~\"(\"']", "has a pattern that is none"),
        (SLACK + 'match = "x"', "[0].match = 'x': must be a list of conditions"),
        (SLACK + 'group_by = "rule"', "[0].group_by = 'rule': must be a list of labels"),
        (SLACK + "per_minute = 0", "[0].per_minute = 0: must be from 1 to 1000"),
        (SLACK + 'repeat = "1s"', "[0].repeat = '1s': must be from 60 to 604800 seconds"),
        (SLACK + 'resolved = "no"', "[0].resolved = 'no': must be true or false"),
        (HOOK + f'url_env = "URL"\nsecret = "{CANARY}"', "[0].secret = ***: is a secret"),
        (HOOK + 'url_env = "URL"', "[0].url = ***: there is another url from elsewhere"),
        (HOOK.replace("https://x.test", f"ftp://{CANARY}"), "[0].url = ***: the URL must start with http"),
        (HOOK.replace("https://x.test", f"https://me:{CANARY}@x.test"), "[0].url = ***: a URL must not carry"),
        (HOOK.replace('secret_env = "KEY"', ""), "[0].secret_env = None: is missing"),
        (HOOK.replace("KEY", "BAD_BASE64"), "[0].secret_env = ***: what follows whsec_ must be base64"),
        (MAIL + 'username = "u"', "[0].password_env = None: is missing"),
        (MAIL + 'username = "u"\npassword_env = "KEY"\nsecurity = "none"', "[0].security = 'none': must be starttls"),
        (MAIL + f'password = "{CANARY}"', "[0].password = ***: is a secret"),
        (MAIL + "port = 70000", "[0].port = 70000: must be from 1 to 65535"),
        (MAIL.replace("c@d", "c@d, e@f"), "[0].to = 'c@d, e@f': must be an address"),
        (
            '[[receiver]]\nname = "a"\nkind = "pagerduty"\nrouting_key_env = "KEY"\nresolved = false',
            "[0].resolved = False: must be true for pagerduty",
        ),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_is_shown(text: str, error: str) -> None:
    with pytest.raises(SettingError) as raised:
        read(text)
    assert error in str(raised.value)
    assert str(raised.value).startswith("setting alerts.receivers[")
    assert CANARY not in str(raised.value)
    assert raised.value.__cause__ is None or CANARY not in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ({"from": "08:00"}, "quiet[0].to = None: must be text"),
        ({"from": "24:00", "to": "08:00"}, "quiet[0].from = '24:00': must be a time of the day"),
        ({"from": "8", "to": "08:00"}, "quiet[0].from = '8': must be a time of the day"),
        ({"from": "08:00", "to": "09:00", "days": ["funday"]}, "quiet[0].days = 'funday': must be one of mon, tue"),
        ({"from": "08:00", "to": "09:00", "timezone": "Mars/Base"}, "quiet[0].timezone = 'Mars/Base': must be a time"),
        ({"from": "08:00", "to": "09:00", "timezone": "../etc"}, "quiet[0].timezone = '../etc': must be a time"),
        ({"from": "08:00", "to": "09:00", "match": ["x"]}, "quiet[0].match = ['x']: has labels that cannot be read"),
        ({"from": "08:00", "to": "09:00", "day": "sat"}, "quiet[0].day = 'sat': there is no such key"),
    ],
)
def test_a_quiet_time_that_is_wrong_is_named(text: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingError) as raised:
        quiet_times([text])
    assert error in str(raised.value)


@pytest.mark.parametrize("text", ['a="b c"', "a=b c", ' a = "b c" ', 'a=~"b.c"', "a=~b.c", "a!=x", "a!~x+"])
def test_conditions_with_and_without_quotes(text: str) -> None:
    assert all_hold(parse_matchers([text]), {"a": "b c"})
    assert not all_hold(parse_matchers([text]), {"a": "x"})


@pytest.mark.parametrize("text", ["", "a", "a==b=c~", 'a="b",c="d"', 'a="b', "a=~(", "=b"])
def test_what_is_no_condition(text: str) -> None:
    if text == "a==b=c~":  # everything behind the first = is the value
        assert all_hold(parse_matchers([text]), {"a": "=b=c~"})
    else:
        with pytest.raises(ValueError, match=r"has|must"):
            parse_matchers([text])
