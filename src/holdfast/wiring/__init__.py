"""Puts the parts together. The only folder that picks implementations.

Each part is an async context manager: entering starts it, leaving stops it and saves everything. processes/ is what a
process can be: the whole, or one part alone.
"""
