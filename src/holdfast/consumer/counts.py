"""What a consumer's messages came to, counted as it happens. Of this process alone, from 0 at its start."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from holdfast.consumer.recent import NAMES
from holdfast.metrics.bounded import MOST_NAMES, OTHER

# Upper bounds of the histogram, in seconds. A last bucket holds what took longer.
HANDLING_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# What a push endpoint may answer. Told from 0 on: of a counter that appears with 1, Prometheus does not see the first.
ANSWERS = (200, 400, 401, 413, 415, 422, 429, 500, 503)


class TopicCounts:
    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(NAMES, 0)
        self.buckets = [0] * (len(HANDLING_BOUNDS) + 1)
        self.seconds = 0.0


class ConsumerCounts:
    """`topics` are those that have a handler. A message may claim to be of any other: those are counted together."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.by_topic = {topic: TopicCounts() for topic in sorted(topics)[:MOST_NAMES]}
        self._others = self.by_topic.setdefault(OTHER, TopicCounts())
        self.answers: Counter[int] = Counter(dict.fromkeys(ANSWERS, 0))  # to push requests, by status
        self.handler_errors: Counter[str] = Counter()  # by kind

    def took(self, topic: str, seconds: float) -> None:
        counts = self.by_topic.get(topic, self._others)
        counts.buckets[bisect_left(HANDLING_BOUNDS, seconds)] += 1
        counts.seconds += seconds

    def ended(self, topic: str, outcome: str) -> None:
        self.by_topic.get(topic, self._others).outcomes[outcome] += 1
