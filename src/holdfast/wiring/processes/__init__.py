"""Each command that runs for long, as a process: the whole, and each part alone. A file each, so that a part loads no
more than it needs."""
