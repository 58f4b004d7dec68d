"""`lab up` with the real pages over a toy model process: `python -m cli.toy_pages`."""

from __future__ import annotations

import sys

from lab.cli.console import in_words
from lab.cli.up import UpOptions, run_up


@in_words
def main() -> int:
    options = UpOptions(browser=False)
    return run_up(options, serve=(sys.executable, "-m", "backend.toy_server"), prepare=lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
