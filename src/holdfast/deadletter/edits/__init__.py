"""Changing a failed message before it is sent again: the original stays, every edit is a revision beside it."""
