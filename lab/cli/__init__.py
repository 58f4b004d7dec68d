"""The command line: `lab up | run | replay | models | serve | bench | doctor`."""

from lab.cli.main import main

__all__ = ["main"]
