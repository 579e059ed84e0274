"""Page tokens of lists by id: the last id of the page, made opaque so that nobody builds on its form."""

from __future__ import annotations

import base64
import binascii

from holdfast.errors import BadInput


def token_after(last_id: str) -> str:
    return base64.urlsafe_b64encode(last_id.encode()).decode()


def last_id_of(token: str) -> str:
    """ "" for the first page, which is below every id."""
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise BadInput("pageToken", "was not given by a list of this kind") from error
