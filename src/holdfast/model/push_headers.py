"""The headers that tell our broker what Pub/Sub's protocol has no words for: a push consumer's answer has them, and the
metadata of gRPC calls. Names only.

Cloud Pub/Sub does not know them, and strict mode ignores them.
"""

from __future__ import annotations

DEAD_LETTER = "Holdfast-Dead-Letter"  # "now"
FAILURE_REASON = "Holdfast-Failure-Reason"  # percent-encoded, as is the next
ERROR = "Holdfast-Error"

# Of a gRPC Publish: "true" where its messages' REPLAY_IDs are to be heeded. To look for them in every message that is
# published would make all publishing slower.
ONCE = "holdfast-once"
