"""Connects to a port, and answers each SIZE bytes with one. Usage: plain_echo.py PORT SIZE"""

from __future__ import annotations

import socket
import sys


def answer(port: int, size: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(size))
        missing = size
        while received := connection.recv_into(buffer, missing):
            missing -= received
            if not missing:
                connection.sendall(b"y")
                missing = size


if __name__ == "__main__":
    answer(int(sys.argv[1]), int(sys.argv[2]))
