"""E-mail by SMTP, by the standard library on a thread. Mails of one group are one conversation."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

from holdfast.alerts.notify.channel import NotSent
from holdfast.alerts.notify.notification import Notification
from holdfast.alerts.notify.secret import Secret
from holdfast.alerts.notify.wording import plain
from holdfast.clock import NANOSECONDS
from holdfast.outgoing.answers import printable

TIMEOUT_SECONDS = 20.0
LONGEST_SUBJECT = 200
LONGEST_ERROR = 300

STARTTLS, TLS, NONE = "starttls", "tls", "none"
PORTS = {STARTTLS: 587, TLS: 465, NONE: 25}


@dataclass(frozen=True, slots=True)
class MailServer:
    """`security` is starttls, tls or none. `ca_file` names authorities besides the system's."""

    host: str
    port: int
    security: str
    username: str = ""
    password: Secret | None = None
    ca_file: str = ""


class Email:
    def __init__(self, server: MailServer, sender: str, to: Sequence[str]) -> None:
        self.server = server
        self._sender = sender
        self._to = to

    @property
    def where(self) -> str:
        return f"smtp://{self.server.host}:{self.server.port}"

    async def send(self, notification: Notification) -> NotSent | None:
        mail = self.mail(notification)
        try:
            await asyncio.to_thread(self._send, mail)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            return NotSent(f"{self.server.host} takes no mail for {', '.join(error.recipients)}", min(codes) >= 500)
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else ""
            return NotSent(
                self._shown(f"{self.server.host} answered {error.smtp_code}: {said}"), error.smtp_code >= 500
            )
        except smtplib.SMTPNotSupportedError as error:  # what the settings ask for
            return NotSent(self._shown(f"{self.server.host}: {error}"), refused=True)
        except (OSError, ValueError) as error:
            return NotSent(self._shown(f"cannot send mail by {self.server.host}: {str(error) or type(error).__name__}"))
        return None

    def mail(self, notification: Notification) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = self._sender
        mail["To"] = ", ".join(self._to)
        mail["Subject"] = printable(notification.title, LONGEST_SUBJECT)
        mail["Date"] = format_datetime(datetime.fromtimestamp(notification.created_ns / NANOSECONDS, UTC))
        mail["Message-ID"] = f"<{notification.id}@holdfast.invalid>"
        mail["References"] = f"<{notification.key}@holdfast.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(plain(notification))
        return mail

    def _send(self, mail: EmailMessage) -> None:
        server = self.server
        context = ssl.create_default_context(cafile=server.ca_file or None)
        if server.security == TLS:
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_SECONDS, context=context)
        else:
            smtp = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_SECONDS)
        with smtp:
            if server.security == STARTTLS:
                smtp.starttls(context=context)
            if server.username and server.password:
                smtp.login(server.username, server.password.value)
            smtp.send_message(mail)

    def _shown(self, text: str) -> str:
        password = self.server.password
        text = password.taken_out_of(text) if password else text
        return printable(text, LONGEST_ERROR)
