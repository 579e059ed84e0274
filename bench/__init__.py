"""Benchmarks of Holdfast beside its peers, all started in the same run: `make bench`, or `make bench ONLY=push`."""
