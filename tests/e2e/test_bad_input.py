"""Whatever is POSTed to a running consumer: the right status, one log line without any of the payload, nothing written,
and the process goes on as if nothing had been."""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.files import rows
from tests.support.process import Launcher, Running
from tests.support.waiting import eventually

SUBSCRIPTION = "projects/local/subscriptions/system.events.materializer"

# In every payload; never in a log.
SECRET = "hunter2-ünter"
FORBIDDEN = re.compile("hunter2|Traceback|unclassified")

MEGABYTE = 1_000_000
LONGEST_SECONDS = 5.0  # for one answer; parsing what is allowed takes less than one, and the machine may be busy
MOST_MEGABYTES = 300.0  # resident, ever: it starts with 85

DEEP = 100_000


def envelope(data: bytes | None = None, *, attempt: object = 1, **message: Any) -> bytes:
    """With a dead-letter policy, unless `attempt` is None. A message field that is given as None is left out."""
    fields = {"messageId": "bad", "data": None if data is None else base64.b64encode(data).decode(), **message}
    whole: dict[str, Any] = {
        "message": {name: value for name, value in fields.items() if value is not None},
        "subscription": SUBSCRIPTION,
    }
    if attempt is not None:
        whole["deliveryAttempt"] = attempt
    return json.dumps(whole).encode()


def service(**fields: Any) -> bytes:
    return json.dumps({"service": "bad", "secret": SECRET, **fields}).encode()


GOOD = service()
CANARY = b'{"service": "canary"}'


def with_attempt(json_text: bytes) -> bytes:
    """A right envelope but for its deliveryAttempt, which json.dumps would not write like that."""
    return envelope(GOOD, attempt=4711).replace(b"4711", json_text)


NO_ENVELOPE: dict[str, bytes] = {
    "no body": b"",
    "blanks": b" \r\n ",
    "null": b"null",
    "a list": b"[]",
    "text": b'"text"',
    "a number": b"42",
    "half an object": envelope(GOOD)[:-1],
    "two objects": envelope(GOOD) * 2,
    "text after it": envelope(GOOD) + b"!",
    "a form": b"message=1&subscription=2",
    "XML": b"<message/>",
    "invalid UTF-8": envelope(GOOD).replace(b'"bad"', b'"b\xff\xfed"'),
    "half a UTF-8 character": envelope(GOOD).replace(b'"bad"', b'"b\xc3"'),
    "an overlong UTF-8 character": envelope(GOOD).replace(b'"bad"', b'"b\xc0\xaf"'),
    "UTF-16": envelope(GOOD).decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + envelope(GOOD),
    "gzip": gzip.compress(envelope(GOOD)),
    "a raw control character": envelope(GOOD).replace(b'"bad"', b'"b\x00d"'),
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep lists, never closed": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep beside the message": envelope(GOOD)[:-1] + b',"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "65 levels beside the message": envelope(GOOD)[:-1] + b',"x":' + b"[" * 65 + b"]" * 65 + b"}",
    "NaN": with_attempt(b"NaN"),
    "Infinity": with_attempt(b"-Infinity"),
    "1e999": with_attempt(b"1e999"),
    "a number of 401 digits": with_attempt(b"1" + b"0" * 400),
    "a number of a million digits": with_attempt(b"9" * MEGABYTE),
    "64 bits and one": with_attempt(str(2**63).encode()),
    "attempt: half": with_attempt(b"1.5"),
    "attempt: negative": with_attempt(b"-1"),
    "attempt: true": with_attempt(b"true"),
    "attempt: text": with_attempt(b'"1"'),
    "attempt: list": with_attempt(b"[1]"),
    "the message twice": b'{"message":{},' + envelope(GOOD)[1:],
    "the message id twice": envelope(GOOD).replace(b'"messageId"', b'"messageId": "other", "messageId"'),
    "message: none": json.dumps({"subscription": SUBSCRIPTION, "data": SECRET}).encode(),
    "message: null": b'{"message": null}',
    "message: text": json.dumps({"message": SECRET}).encode(),
    "message: list": b'{"message": [{}]}',
    "message id: none": envelope(GOOD, messageId=None),
    "message id: null": envelope(GOOD).replace(b'"bad"', b"null"),
    "message id: empty": envelope(GOOD, messageId=""),
    "message id: number": envelope(GOOD, messageId=5),
    "message id: object": envelope(GOOD, messageId={}),
    "message id: too long": envelope(GOOD, messageId="m" * 1501),
    "message id: two that differ": envelope(GOOD, message_id="other"),
    "message id: half a surrogate pair": envelope(GOOD, messageId="\ud800"),
    "data: number": envelope(data=None).replace(b'"bad"', b'"bad", "data": 5'),
    "data: list": envelope(data=None).replace(b'"bad"', b'"bad", "data": ["e30="]'),
    "data: object": envelope(data=None).replace(b'"bad"', b'"bad", "data": {}'),
    "data: not base64": envelope(data=None).replace(b'"bad"', b'"bad", "data": "%%%"'),
    "data: JSON itself": envelope(data=None).replace(b'"bad"', b'"bad", "data": "{\\"service\\": \\"a\\"}"'),
    "data: no padding": envelope(b"{} ").replace(b'"e30g"', b'"e30"'),
    "data: padding inside": envelope(b"{} ").replace(b'"e30g"', b'"e3==0g"'),
    "data: a line break": envelope(b"{} ").replace(b'"e30g"', b'"e3\\n0g"'),
    "data: of URLs": envelope(b"{} ").replace(b'"e30g"', b'"e3_-"'),
    "data: other digits": envelope(b"{} ").replace(b'"e30g"', '"e3٣g"'.encode()),
    "attributes: list": envelope(GOOD, attributes=[]),
    "attributes: text": envelope(GOOD, attributes=SECRET),
    "attributes: a number": envelope(GOOD, attributes={"a": 1}),
    "attributes: null inside": envelope(GOOD, attributes={"a": None}),
    "attributes: half a surrogate pair": envelope(GOOD, attributes={"a": "\udfff"}),
    "attributes: one twice": envelope(GOOD, attributes={"a": "b"}).replace(b'"a": "b"', b'"a": "b", "a": "c"'),
    "publish time: text": envelope(GOOD, publishTime=SECRET),
    "publish time: number": envelope(GOOD, publishTime=1_770_000_000),
    "publish time: no such day": envelope(GOOD, publishTime="2026-02-30T00:00:00Z"),
    "publish time: year 9999": envelope(GOOD, publishTime="9999-12-31T23:59:59Z"),
    "ordering key: number": envelope(GOOD, orderingKey=5),
    "subscription: number": envelope(GOOD).replace(json.dumps(SUBSCRIPTION).encode(), b"5"),
}

BLANKS = gzip.compress(b" " * (21 * MEGABYTE), compresslevel=1)

# The envelope is right and the payload cannot be read.
UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "blanks": b" ",
    "not JSON": f"{SECRET}".encode(),
    "half of it": GOOD[:-1],
    "two of them": GOOD * 2,
    "invalid UTF-8": b'{"service": "\xff\xfe", "secret": "hunter2"}',
    "UTF-16": GOOD.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "a null byte": b'{"service": "b\x00d"}',
    "deep lists": b'{"service": "bad", "x": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep lists, never closed": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "65 levels": b'{"service": "bad", "x": ' + b"[" * 65 + b"]" * 65 + b"}",
    "NaN": b'{"service": "bad", "x": NaN}',
    "Infinity": b'{"service": "bad", "x": -Infinity}',
    "1e999": b'{"service": "bad", "x": 1e999}',
    "a number of 401 digits": b'{"service": "bad", "x": 1' + b"0" * 400 + b"}",
    "a number of a million digits": b'{"service": "bad", "x": ' + b"9" * MEGABYTE + b"}",
    "64 bits and one": b'{"service": "bad", "x": %d}' % 2**63,
    "a key twice": b'{"service": "bad", "service": "hunter2"}',
    "a key twice, deep inside": b'{"service": "bad", "x": [{"y": {"k": "hunter2", "k": "hunter2"}}]}',
    "half a surrogate pair": b'{"service": "bad", "x": "hunter2 \\ud800"}',
    "half a surrogate pair in a key": b'{"service": "bad", "\\udc00": "hunter2"}',
    "half a gzip": gzip.compress(GOOD)[:-9],
    "gzip that lies": gzip.compress(GOOD)[:-8] + b"\x00" * 8,
    "text after the gzip": gzip.compress(GOOD) + b"hunter2",
    "gzip in gzip": gzip.compress(gzip.compress(GOOD)),
    "a gzip of 21 megabytes": BLANKS,
    "a gzip of two gigabytes": BLANKS * 100,
}

# It can be read, and is not what the handler takes.
UNFIT: dict[str, bytes] = {
    "a list": json.dumps([SECRET]).encode(),
    "text": json.dumps(SECRET).encode(),
    "a number": b"42",
    "null": b"null",
    "no service": json.dumps({"secret": SECRET}).encode(),
    "service: null": service(service=None),
    "service: empty": service(service=""),
    "service: blank": service(service="  \t "),
    "service: number": service(service=5),
    "service: list": service(service=["a"]),
    "service: no letter": service(service="///"),
    "service: too long": service(service="s" * 1501),
    "status: number": service(status=5),
    "version: object": service(version={"major": 1}),
    "region: list": service(region=[]),
    "time: text": service(producedAt=SECRET),
    "time: true": service(timestamp=True),
    "time: object": service(ts={}),
    "time: no such day": service(time="2026-02-30T00:00:00Z"),
    "time: year 9999": service(producedAt="9999-12-31T23:59:59Z"),
    "time: a number beyond": service(producedAt=1e300),
    "heartbeat: text": service(lastHeartbeatAt="soon"),
    "event id: list": service(eventId=[SECRET]),
    "event id: true": service(eventId=True),
    "event id: half": service(eventId=1.5),
    "event id: too long": service(eventId="e" * 1501),
}


class Victim:
    """A consumer in a process of its own, and what must be true of it after every request."""

    def __init__(self, running: Running, launcher: Launcher) -> None:
        self.running = running
        self.pid = running.process.pid
        self._data = launcher.data
        self._host, _, port = running.url.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._seen = 0
        self._canaries = 0
        self.new_lines()

    def connect(self) -> socket.socket:
        return socket.create_connection((self._host, self._port), timeout=LONGEST_SECONDS)

    def post(self, body: bytes, *headers: str) -> int:
        return self.send(request(body, *headers))[0]

    def send(self, *pieces: bytes, answers: int = 1) -> list[int]:
        """The statuses of the answers. A server that has answered need not read the rest."""
        begun = time.monotonic()
        with self.connect() as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass
            statuses = read_statuses(connection, answers)
        assert time.monotonic() - begun < LONGEST_SECONDS
        return statuses

    def new_lines(self) -> list[dict[str, Any]]:
        """What was logged since the last call. The line of a good message that is sent now says that all of it is
        there, and that the process still works."""
        canary = self.next_canary()
        answer = http.push(self.running.url, canary, CANARY)
        assert (answer.status, answer.body["outcome"]) == (200, "applied")
        lines = eventually(lambda: self._lines_up_to(canary))
        self._seen += len(lines)
        assert not FORBIDDEN.search(json.dumps(lines))
        return lines[:-1]

    def next_canary(self) -> str:
        """The id of a good message that the caller now sends."""
        self._canaries += 1
        return f"canary-{self._canaries:06d}"  # as text, as message ids compare

    def _lines_up_to(self, canary: str) -> list[dict[str, Any]]:
        text = self.running.stderr
        assert text.endswith("\n")
        lines = [json.loads(line) for line in text.splitlines()[self._seen :]]
        return lines if lines and lines[-1].get("messageId") == canary else []

    @property
    def failures(self) -> list[str]:
        """Ids of the messages that were recorded as failed."""
        path = self._data / "failures.db"
        return [row[0] for row in rows(path, "SELECT message_id FROM failed_messages")] if path.exists() else []

    def check_unharmed(self) -> None:
        """Nothing is stored but the canaries, and the process is the same and has not grown."""
        found = rows(self._data / "documents.db", "SELECT collection, id FROM documents")
        assert found == [("ops_services", "local__canary")]
        assert rows(self._data / "documents.db", "SELECT count(*) FROM marks") == [(self._canaries,)]
        assert self.running.process.poll() is None
        assert megabytes(self.pid, "VmHWM") < MOST_MEGABYTES


def request(body: bytes, *headers: str) -> bytes:
    given = [*headers, f"Content-Length: {len(body)}"]
    if not any(header.lower().startswith("content-type") for header in headers):
        given.append("Content-Type: application/json")
    return "\r\n".join(["POST /pubsub/push HTTP/1.1", "Host: victim", *given, "", ""]).encode("latin-1") + body


def read_statuses(connection: socket.socket, answers: int) -> list[int]:
    """Up to so many, fewer when the connection ends before."""
    statuses: list[int] = []
    with connection.makefile("rb") as reader:
        while len(statuses) < answers and (line := _line(reader.readline)):
            statuses.append(int(line.split()[1]))
            headers = dict(_headers(reader.readline))
            reader.read(int(headers.get("content-length", 0)))
    return statuses


def _headers(readline: Any) -> Iterator[tuple[str, str]]:
    while line := _line(readline).strip():
        name, _, value = line.decode("latin-1").partition(":")
        yield name.lower(), value.strip()


def _line(readline: Any) -> bytes:
    try:
        line: bytes = readline()
    except ConnectionResetError:
        return b""
    return line


def megabytes(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    assert found
    return int(found[1]) / 1024


@pytest.fixture(scope="module")
def victim(shared_launcher: Launcher) -> Victim:
    return Victim(shared_launcher.part("consume"), shared_launcher)


def check_one_line(lines: list[dict[str, Any]], status: int) -> dict[str, Any]:
    assert len(lines) == 1, lines
    [line] = lines
    assert (line["severity"], line["outcome"], line["http_status"]) == ("ERROR", "poison", status)
    assert line["error"]
    return line


# Envelopes and payloads.


@pytest.mark.parametrize("body", NO_ENVELOPE.values(), ids=NO_ENVELOPE.keys())
def test_no_envelope(victim: Victim, body: bytes) -> None:
    assert victim.post(body) == 400
    line = check_one_line(victim.new_lines(), 400)
    assert line["failure_reason"] == "DECODE_ERROR"
    assert victim.failures == []
    victim.check_unharmed()


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_payload_that_cannot_be_read(victim: Victim, data: bytes) -> None:
    assert victim.post(envelope(data)) == 400
    line = check_one_line(victim.new_lines(), 400)
    assert (line["messageId"], line["failure_reason"]) == ("bad", "DECODE_ERROR")
    assert victim.failures == []
    victim.check_unharmed()


@pytest.mark.parametrize("data", UNFIT.values(), ids=UNFIT.keys())
def test_a_payload_that_does_not_fit(victim: Victim, data: bytes) -> None:
    assert victim.post(envelope(data)) == 422
    line = check_one_line(victim.new_lines(), 422)
    assert line["messageId"] == "bad"
    assert victim.failures == []
    victim.check_unharmed()


# Without a dead-letter policy nobody else would keep it.


@pytest.mark.parametrize("data", [UNREADABLE["not JSON"], UNFIT["no service"]], ids=["unreadable", "unfit"])
def test_without_a_policy_it_is_recorded_and_acked(launcher: Launcher, data: bytes) -> None:
    victim = Victim(launcher.part("consume"), launcher)
    assert victim.post(envelope(data, attempt=None)) == 200
    check_one_line(victim.new_lines(), 200)
    assert victim.failures == ["bad"]
    assert victim.post(envelope(data, attempt=None)) == 200, "sent again"
    check_one_line(victim.new_lines(), 200)
    assert victim.failures == ["bad"]
    victim.check_unharmed()
    listed = launcher.run("failures", "list", "--data", str(launcher.data), "--json")
    assert [failure["messageId"] for failure in json.loads(listed.stdout)["failures"]] == ["bad"]


def test_what_is_no_envelope_is_never_recorded(victim: Victim) -> None:
    assert victim.post(envelope(GOOD, attempt=None, messageId="")) == 400
    check_one_line(victim.new_lines(), 400)
    assert victim.failures == []
    victim.check_unharmed()


# Sizes.


def chunks(size: int, piece: bytes = b"x" * MEGABYTE) -> Iterator[bytes]:
    for _ in range(size // len(piece)):
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


def check_too_large(victim: Victim, pieces: Iterable[bytes]) -> None:
    before = megabytes(victim.pid, "VmRSS")
    assert victim.send(*pieces) == [413]
    line = check_one_line(victim.new_lines(), 413)
    assert line["failure_reason"] == "MESSAGE_TOO_LARGE"
    assert megabytes(victim.pid, "VmRSS") < before + 50
    assert victim.failures == []
    victim.check_unharmed()


def head(*headers: str) -> bytes:
    return "\r\n".join(["POST /pubsub/push HTTP/1.1", "Host: victim", *headers, "", ""]).encode("latin-1")


def test_50_megabytes(victim: Victim) -> None:
    check_too_large(victim, [head("Content-Length: 50000000"), *[b"x" * MEGABYTE] * 50])


def test_50_megabytes_in_chunks(victim: Victim) -> None:
    check_too_large(victim, [head("Transfer-Encoding: chunked"), *chunks(50 * MEGABYTE), b"0\r\n\r\n"])


def test_50_megabytes_of_a_right_envelope(victim: Victim) -> None:
    check_too_large(victim, [request(envelope(json.dumps({"service": "x" * 37 * MEGABYTE}).encode()))])


@pytest.mark.parametrize("length", ["50000000", "1" + "0" * 18, "9" * 18])
def test_no_byte_of_a_body_that_says_it_is_too_large(victim: Victim, length: str) -> None:
    check_too_large(victim, [head(f"Content-Length: {length}")])


def test_300_000_empty_gzips(launcher: Launcher) -> None:
    """Six megabytes that unpack to nothing: it is their number that takes the time."""
    victim = Victim(launcher.part("consume"), launcher)
    assert victim.post(envelope(gzip.compress(b"") * 300_000)) == 400
    check_one_line(victim.new_lines(), 400)
    victim.check_unharmed()


@pytest.mark.parametrize(("values", "status"), [(199_000, 422), (3_000_000, 400)])
def test_many_small_values_take_no_more_than_their_time(launcher: Launcher, values: int, status: int) -> None:
    """They would take far more memory and time than their text, so there may not be any number of them."""
    victim = Victim(launcher.part("consume"), launcher)
    data = b'{"secret": "hunter2", "x": [' + b"[]," * values + b"1]}"
    assert victim.post(envelope(data)) == status
    check_one_line(victim.new_lines(), status)
    assert megabytes(victim.pid, "VmHWM") < MOST_MEGABYTES


# HTTP.


def test_what_says_that_it_is_not_json_is_not_read(launcher: Launcher) -> None:
    victim = Victim(launcher.part("consume"), launcher)
    for content_type in ["text/plain", "application/octet-stream", "\xff\xfe", "a" * 10_000]:
        assert victim.post(envelope(GOOD), f"Content-Type: {content_type}") == 415
        check_one_line(victim.new_lines(), 415)
    assert victim.post(envelope(GOOD), "Content-Type: ") == 200  # it says nothing
    assert [line["outcome"] for line in victim.new_lines()] == ["applied"]


@pytest.mark.parametrize(
    "text",
    [
        head("Content-Length: -5"),
        head("Content-Length: many"),
        head("Content-Length: 2", "Content-Length: 3") + b"{}",
        head("Content-Length: " + "9" * 30),
        head("Content-Length: 2", "Transfer-Encoding: chunked") + b"{}",
        head("Transfer-Encoding: chunked") + b"zz\r\n",
        head("X: a\x00b", "Content-Length: 2") + b"{}",
        head("a name with blanks: 1", "Content-Length: 2") + b"{}",
        b"BREW /pubsub/push HTTP/1.1\r\nHost: victim\r\n\r\n",
        b"POST /pubsub/push HTTP/9.9\r\nHost: victim\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"{}\r\n\r\n",
    ],
    ids=range(13),
)
def test_no_http(victim: Victim, text: bytes) -> None:
    assert victim.send(text) == [400]
    [line] = victim.new_lines()
    assert (line["severity"], line["message"]) == ("WARNING", "Invalid HTTP request received.")
    assert victim.failures == []
    victim.check_unharmed()


def test_pipelined_requests_are_answered_in_their_order(victim: Victim) -> None:
    bodies = [b"", envelope(UNFIT["no service"]), envelope(CANARY, messageId=victim.next_canary()), b"[]"]
    assert victim.send(b"".join(map(request, bodies)), answers=4) == [400, 422, 200, 400]
    assert [line["http_status"] for line in victim.new_lines()] == [400, 422, 200, 400]
    victim.check_unharmed()


def test_half_a_body_and_gone(victim: Victim) -> None:
    """Nobody is there to be answered; the sender sends it again. It is no message, so it has no line of its own."""
    for part in (0, 1, 100):
        with victim.connect() as connection:
            connection.sendall(request(envelope(GOOD))[: -len(envelope(GOOD)) + part])
    assert victim.new_lines() == []
    assert victim.failures == []
    victim.check_unharmed()


def test_whole_body_and_gone(victim: Victim) -> None:
    """It is handled all the same: its sender cannot know, and will send it again."""
    with victim.connect() as connection:
        connection.sendall(request(envelope(UNFIT["no service"])))
    eventually(lambda: '"http_status": 422' in victim.running.stderr.splitlines()[-1])
    check_one_line(victim.new_lines(), 422)
    victim.check_unharmed()


def test_a_header_of_a_megabyte(victim: Victim) -> None:
    assert victim.send(head("X: " + "a" * MEGABYTE, "Content-Length: 0"))[0] in (400, 431)
    assert len(victim.new_lines()) == 1
    victim.check_unharmed()


def test_headers_without_an_end(launcher: Launcher) -> None:
    """Neither their number nor their size may hold up or fill the process."""
    victim = Victim(launcher.part("consume"), launcher)
    before = megabytes(victim.pid, "VmRSS")
    for piece in (b"a" * MEGABYTE, (b"a" * 1000 + b"\r\nX: ") * 1000):
        assert victim.send(head()[:-2] + b"X: ", *[piece] * 60)[:1] in ([], [400], [431])
        assert len(victim.new_lines()) == 1
    assert megabytes(victim.pid, "VmHWM") < before + 50
    victim.check_unharmed()
