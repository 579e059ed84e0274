"""Page tokens of the failure stores. Newest first is by falling id, so a token is the last id given."""

from __future__ import annotations

from holdfast.errors import BadInput

# Ids are 64-bit numbers in every backend.
LARGEST_ID = 2**63 - 1


def token_after(failure_id: int) -> str:
    return str(failure_id)


def last_id_given(page_token: str) -> int:
    """The page goes on with smaller ids than this one. Without a token: above every id."""
    if not page_token:
        return LARGEST_ID
    # isdecimal alone also accepts other scripts' digits; the length keeps int() from meeting a huge number.
    if page_token.isascii() and page_token.isdecimal() and len(page_token) <= 19:
        return min(int(page_token), LARGEST_ID)
    raise BadInput("pageToken", f"is not one that this desk gave: {page_token[:64]!r}")
