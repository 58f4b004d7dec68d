"""`python -m lab` is `lab`."""

from lab.cli import main

main()
