"""The command line: reads arguments, calls the wiring, prints."""
