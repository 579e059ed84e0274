"""What can be wrong with a definition or a message, with the place where it is wrong."""

from __future__ import annotations

# An error travels in a response header, which clients limit to 8 kB, and parts of it are text that somebody else wrote.
LONGEST_TEXT = 500
LONGEST_PATH = 200  # so that the reason, which comes after it, is still there


class _Problem(ValueError):
    def __init__(self, why: str, *path: str) -> None:
        super().__init__(why)
        self.why = why
        self._path = list(path)  # innermost first

    def inside(self, step: str) -> None:
        """Called on the way out, so that a message that fits pays nothing for the path."""
        self._path.append(step)

    @property
    def where(self) -> str:
        path = "".join(reversed(self._path)).lstrip(".")
        return path if len(path) <= LONGEST_PATH else f"{path[: LONGEST_PATH // 2]}…{path[-LONGEST_PATH // 2 :]}"

    def __str__(self) -> str:
        return shortened(f"{self.where}: {self.why}" if self._path else self.why)


class BadDefinition(_Problem):
    """The definition is not a schema. `where` is a path into it, or a line."""


class DoesNotFit(_Problem):
    """The message does not fit the schema. `where` is the field."""


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
