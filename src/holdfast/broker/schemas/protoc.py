"""Protocol Buffers definitions, compiled by the real protoc in a child process.

A child, because protoc is C++ that reads whatever a client sent: it may take long or crash, and only the child with it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from holdfast.broker.schemas.problems import BadDefinition, shortened

# The largest definition allowed takes well under a second.
LONGEST_SECONDS = 10.0

_FILE = "schema.proto"
_RESULT = "schema.pb"
_ERRORS = "errors.txt"
_MOST_ERROR_BYTES = 4000

# No path but the temporary directory's, so an import finds nothing: Pub/Sub allows none, not even google/protobuf's.
_CHILD = "import sys; from grpc_tools import protoc; sys.exit(protoc.main(sys.argv))"


def compile_proto(text: str) -> bytes:
    """Gives a serialized FileDescriptorProto. Blocks. Raises BadDefinition."""
    with tempfile.TemporaryDirectory(prefix="holdfast-protoc-") as directory:
        compiled = _run(Path(directory), text)
    try:
        (file,) = FileDescriptorSet.FromString(compiled).file
    except DecodeError as error:  # it was written by protoc; only depth can make it unreadable
        raise BadDefinition("messages are nested too deeply") from error
    if len(file.message_type) != 1:
        names = ", ".join(message.name for message in file.message_type) or "none"
        raise BadDefinition(f"exactly one top-level message is needed, and there are {len(file.message_type)}: {names}")
    return file.SerializeToString()


def _run(directory: Path, text: str) -> bytes:
    (directory / _FILE).write_bytes(text.encode())
    command = [sys.executable, "-I", "-c", _CHILD, "--proto_path=.", f"--descriptor_set_out={_RESULT}", _FILE]
    with (directory / _ERRORS).open("wb") as errors:
        try:
            code = subprocess.run(  # noqa: S603 - the definition is in a file, and not in the command
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=LONGEST_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise BadDefinition(f"protoc took longer than {LONGEST_SECONDS:g} s") from error
    if code != 0:
        raise _refusal(code, directory / _ERRORS)
    return (directory / _RESULT).read_bytes()


def _refusal(code: int, errors: Path) -> Exception:
    with errors.open("rb") as file:
        said = file.read(_MOST_ERROR_BYTES).decode(errors="replace")
    if code < 0:
        return BadDefinition(f"protoc crashed on it (signal {-code})")
    if said.startswith("Traceback"):
        return RuntimeError(f"protoc could not be run: {said.splitlines()[-1]}")
    hint = "imports are not supported: " if "File not found" in said else ""
    return BadDefinition(shortened(hint + said.replace(f"{_FILE}:", "line ")))
