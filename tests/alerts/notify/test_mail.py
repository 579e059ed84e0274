"""E-mail against a real SMTP server: plain, with STARTTLS, with TLS from the start, with a password, and refusals."""

from __future__ import annotations

import asyncio
import email
import email.policy
from collections.abc import Iterator
from contextlib import ExitStack
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.mail import Email
from holdfast.alerts.notify.reading import Reading
from holdfast.outgoing.addresses import AddressGuard
from holdfast.outgoing.client import OutgoingClient
from holdfast.testing import ManualClock
from tests.alerts.notify.telling import alert
from tests.alerts.notify.test_channels import ended, notification
from tests.support.certificates import Authority, make_authority

PASSWORD = "canary-of-mail"


class Mailbox:
    """What the server does with mail. `answer` other than 250 refuses it."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.answer = "250 OK"
        self.refused_recipient = ""
        self.logins = 0

    async def handle_RCPT(
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address == self.refused_recipient:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
            assert isinstance(mail, EmailMessage)
            self.mails.append(mail)
        return self.answer

    def judge(self, server: Any, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        is_right = bool(data == LoginPassword(b"holdfast", PASSWORD.encode()))
        self.logins += is_right
        return AuthResult(success=is_right, handled=False)


class Servers:
    def __init__(self, stack: ExitStack, authority: Authority, environ: dict[str, str]) -> None:
        self._stack = stack
        self._authority = authority
        self._environ = environ
        self.mailbox = Mailbox()

    async def start(self, security: str, **more: Any) -> Email:
        tls = self._authority.server("localhost")
        options: dict[str, Any] = {"tls_context": tls, "require_starttls": True} if security == "starttls" else {}
        if "username" in more:
            # Of TLS from the start it knows nothing, and warns of passwords without it.
            by_starttls = security == "starttls"
            options |= {"authenticator": self.mailbox.judge, "auth_required": by_starttls}
            options["auth_require_tls"] = by_starttls
        server = await asyncio.get_running_loop().create_server(
            lambda: SMTP(self.mailbox, hostname="localhost", **options),
            "127.0.0.1",
            0,
            ssl=tls if security == "tls" else None,
        )
        self._stack.callback(server.close)
        return self.channel(security, server.sockets[0].getsockname()[1], **more)

    def channel(self, security: str, port: int, **more: Any) -> Email:
        table = {
            "name": "mail",
            "kind": "email",
            "host": "127.0.0.1",
            "port": port,
            "security": security,
            "ca_file": self._authority.file,
            "from": "holdfast@example.com",
            "to": ["ops@example.com", "boss@example.com"],
            **more,
        }
        client = OutgoingClient(AddressGuard())
        [receiver] = Reading(client, ManualClock(), self._environ).receivers([table])
        assert isinstance(receiver.channel, Email)
        return receiver.channel


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, make_authority(tmp_path), {"PASSWORD": PASSWORD, "WRONG": "no-" + PASSWORD})


@pytest.mark.parametrize("security", ["none", "starttls", "tls"])
async def test_a_mail_says_all_of_it(servers: Servers, security: str) -> None:
    channel = await servers.start(security)
    sent = notification(alert(subscription="größe"), ended(alert(subscription="b")))
    assert await channel.send(sent) is None
    [mail] = servers.mailbox.mails
    assert mail["Subject"] == "[WARNING] OldestUnacked: 1 firing, 1 resolved"
    assert (mail["From"], mail["To"]) == ("holdfast@example.com", "ops@example.com, boss@example.com")
    assert mail["Message-ID"] == "<ntf_1@holdfast.invalid>"
    assert mail["References"] == "<holdfast-k@holdfast.invalid>"
    assert mail["Auto-Submitted"] == "auto-generated"
    text = mail.get_content().replace("\r\n", "\n")
    assert "größe is late\n  Rule: OldestUnacked (warning)\n  Since: 2023-11-14 22:13:20 UTC\n" in text
    assert "  Value: 400 seconds (limit 5 minutes)\n" in text
    assert "  Runbook: https://x.test/rb#oldestunacked\n  Next: holdfast push status größe\n" in text
    assert "Over: b is late\n" in text


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_a_password_goes_over_tls(servers: Servers, security: str) -> None:
    channel = await servers.start(security, username="holdfast", password_env="PASSWORD")
    assert await channel.send(notification(alert())) is None
    assert (len(servers.mailbox.mails), servers.mailbox.logins) == (1, 1)


async def test_a_wrong_password_is_a_refusal_and_not_shown(servers: Servers) -> None:
    channel = await servers.start("starttls", username="holdfast", password_env="WRONG")
    result = await channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert result.refused
    assert "answered 535" in result.error
    assert PASSWORD not in result.error
    assert servers.mailbox.mails == []


async def test_a_server_that_nobody_vouches_for_gets_nothing(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_authority(tmp_path / "other")
    channel = await servers.start("starttls", ca_file=other.file)
    result = await channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert "certificate verify failed" in result.error
    assert servers.mailbox.mails == []


async def test_a_server_without_starttls_gets_nothing(servers: Servers) -> None:
    plain = await servers.start("none")
    channel = servers.channel("starttls", plain.server.port)
    result = await channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert result.refused
    assert "STARTTLS" in result.error
    assert servers.mailbox.mails == []


@pytest.mark.parametrize(("answer", "refused"), [("451 try later", False), ("554 never", True)])
async def test_what_a_server_says(servers: Servers, answer: str, refused: bool) -> None:
    channel = await servers.start("none")
    servers.mailbox.answer = answer
    result = await channel.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert result.refused is refused
    assert f"answered {answer.replace(' ', ': ', 1)}" in result.error


async def test_one_recipient_that_is_unknown_does_not_keep_the_others_from_it(servers: Servers) -> None:
    channel = await servers.start("none")
    servers.mailbox.refused_recipient = "boss@example.com"
    assert await channel.send(notification(alert())) is None
    assert len(servers.mailbox.mails) == 1
    alone = servers.channel("none", channel.server.port, to=["boss@example.com"])
    result = await alone.send(notification(alert()))
    assert isinstance(result, NotSent)
    assert result == NotSent("127.0.0.1 takes no mail for boss@example.com", refused=True)


async def test_nobody_there(servers: Servers) -> None:
    result = await servers.channel("none", 1).send(notification(alert()))
    assert isinstance(result, NotSent)
    assert not result.refused
    assert "Connection refused" in result.error
