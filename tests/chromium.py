"""Find Chromium for the browser tests, or install it: `python -m tests.chromium`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "LAB_CHROMIUM"


def find() -> str | None:
    """The path of a Chromium: named by LAB_CHROMIUM, on the PATH, or Playwright's own."""
    named = os.environ.get(VARIABLE)
    if named:
        return named if Path(named).exists() else None
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def install() -> None:
    """Playwright's Chromium, else Debian's when root. What fails is said by the caller."""
    _try([sys.executable, "-m", "playwright", "install", "chromium"], timeout_s=300)
    if find() is None:
        install_package("chromium")


def install_package(name: str) -> None:
    """Debian's package, when root. What fails is said by the caller."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _try(["apt-get", "update", "-qq"], timeout_s=300, env=environment)
        _try(["apt-get", "install", "-y", "-qq", "--no-install-recommends", name], timeout_s=900, env=environment)


def _try(command: list[str], *, timeout_s: int, env: dict[str, str] | None = None) -> None:
    try:
        subprocess.run(
            command, check=False, timeout=timeout_s, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return


def main() -> int:
    """0 when there is a Chromium in the end, else 1 with one line on what to do."""
    if find() is None:
        print("no Chromium found: installing one", flush=True)
        install()
    path = find()
    if path is None:
        print(
            "The browser tests need Chromium: run `playwright install chromium`, or install your system's chromium "
            f"package, or set {VARIABLE} to its path."
        )
        return 1
    print(f"Chromium: {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
