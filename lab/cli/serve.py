"""`lab serve`: the model process alone, for pages and commands on this machine or, if asked for, others."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from lab.backend.protocol import DEFAULT_MODEL
from lab.cli.console import in_words, say
from lab.cli.up import SETTINGS_HELP, hosted_settings
from lab.errors import BadInput
from lab.settings import BACKEND_TOKEN, BACKEND_URL

HOSTED_HELP = "For visitors: a fixed list of models and the settings' limits, which then take the place of those here."


@in_words
def serve(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 for a free one.", min=0, max=65535)] = 8899,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="Let other machines connect.")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help=f"Model to load ahead, {DEFAULT_MODEL}; with --ray also several."),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", help="Threads of torch; 0 for its own choice.", min=0)] = 0,
    active_runs: Annotated[int, typer.Option("--active-runs", help="Runs that take turns.", min=1)] = 4,
    waiting_runs: Annotated[int, typer.Option("--waiting-runs", help="Runs that may wait.", min=0)] = 16,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds that a run may take.", min=1.0)] = 900.0,
    prompt_characters: Annotated[
        int | None, typer.Option("--max-prompt", help="Cap on a prompt's characters.", min=1)
    ] = None,
    new_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Cap on new tokens.", min=1)] = None,
    hosted: Annotated[bool, typer.Option("--hosted", help=HOSTED_HELP)] = False,
    settings: Annotated[Path | None, typer.Option("--settings", help=SETTINGS_HELP)] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Serve on a Ray cluster: several replicas, GPUs, machines.")
    ] = False,
    replicas: Annotated[str, typer.Option("--replicas", help="With --ray: of each model, 2, or 1-4 as needed.")] = "1",
    cpus: Annotated[float, typer.Option("--cpus", help="With --ray: CPUs of each replica.")] = 1.0,
    gpus: Annotated[float, typer.Option("--gpus", help="With --ray: GPUs of each replica; 0.5 shares one.")] = 0.0,
    queued: Annotated[int, typer.Option("--queued", help="With --ray: requests that may wait for a replica.")] = 32,
    join: Annotated[
        str, typer.Option("--join", help="With --ray: address of the cluster to join; auto finds it.")
    ] = "",
) -> None:
    """Run the model process alone. Its token comes from LAB_BACKEND_TOKEN, or is made up and printed."""
    from lab.backend import serve as process
    from lab.backend.limits import Limits
    from lab.backend.malloc import settle_this_process

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    hosting = hosted_settings(hosted, settings)
    limits = Limits(
        active_runs=active_runs,
        waiting_runs=waiting_runs,
        deadline_s=deadline,
        prompt_characters=prompt_characters,
        new_tokens=new_tokens,
    )
    models = hosting.models if hosting is not None else tuple(model or (DEFAULT_MODEL,))
    given = os.environ.get(BACKEND_TOKEN, "").strip()
    process.check_host(host, allow_remote=allow_remote, token=given)
    if ray:
        from lab.cli.serve_ray import serve_on_ray

        serve_on_ray(
            models=models,
            replicas=replicas,
            cpus=cpus,
            gpus=gpus,
            queued=queued,
            join=join,
            limits=limits if hosting is None else hosting.limits(),
            host=host,
            port=port,
            token=process.take_token(),
            say_token=not given,
            hosting=hosting,
        )
        return
    if len(models) > 1 and hosting is None:
        raise BadInput(f"{len(models)} models are named; one is loaded ahead.", remedy="Name one, or add --ray.")
    settle_this_process()
    process.set_threads(threads)
    sock = process.listen(host, port)
    token = process.take_token()
    say(f"model process at {process.address_of(sock)}")
    if not given:
        say(f"  export {BACKEND_URL}={process.address_of(sock)} {BACKEND_TOKEN}={token}")
    backend = process.make_backend(limits if hosting is None else hosting.limits())
    backend.warm(models[0])
    process.serve(backend, sock, token, hosting)
