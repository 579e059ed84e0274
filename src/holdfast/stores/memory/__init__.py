"""Stores that live in memory and end with the process: for tests, trials and `--memory`."""
