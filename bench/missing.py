"""What the benchmarks need and did not find."""

from __future__ import annotations


class Missing(Exception):
    """Its text is one line for the person who ran the benchmarks: what is missing and what to do."""
