"""Traces of the whole path: what is a span, who carries its context, and who sends it away.

traces.py is the port that the parts know, spans.py the table of all spans, context.py the form of a context. otel.py is
OpenTelemetry, and the only one that imports it: the wiring does, and only where traces are asked for. Without it no
part has a line to run for them: what makes spans is a subclass or a wrapper that the wiring chooses.
"""
