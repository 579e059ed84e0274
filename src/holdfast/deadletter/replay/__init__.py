"""Sending failed messages again, many at a time: planned, paced, watched, and continued after a crash."""
