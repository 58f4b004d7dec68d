"""Find nginx for the hosting test, or install Debian's: `python -m tests.nginx`."""

from __future__ import annotations

import os
import shutil
import sys

WHERE = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"])


def find() -> str | None:
    """The path of an nginx."""
    return shutil.which("nginx", path=WHERE)


def main() -> int:
    """Always 0: without nginx its one test says that it was left out."""
    if find() is None:
        from tests.chromium import install_package  # here: the tests import this file without their package

        print("no nginx found: installing one", flush=True)
        install_package("nginx-light")
    print(f"nginx: {find() or 'none, and none could be installed; its test is left out'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
