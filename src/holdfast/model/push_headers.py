"""The headers by which a push consumer's answer tells our broker what Pub/Sub's protocol has no words for. Names only.

Cloud Pub/Sub does not know them, and strict mode ignores them.
"""

from __future__ import annotations

DEAD_LETTER = "Holdfast-Dead-Letter"  # "now"
FAILURE_REASON = "Holdfast-Failure-Reason"  # percent-encoded, as is the next
ERROR = "Holdfast-Error"
