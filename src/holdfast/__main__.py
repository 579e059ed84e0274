"""Runs the command line as ``python -m holdfast``."""

from holdfast.cli.main import main

if __name__ == "__main__":
    main()
