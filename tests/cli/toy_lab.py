"""`lab` with one more experiment, "count", and a backend of toys: `python -m cli.toy_lab ARGS`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backend.toys import FACTS, CountRunner, ToySource, backend, count_experiment

import lab.backend.connect
from lab.backend.protocol import DEFAULT_MODEL
from lab.cli import main
from lab.experiments.registry import EXPERIMENTS


def connect(where: str = "auto") -> Any:
    del where
    return backend(runner, ToySource({DEFAULT_MODEL: replace(FACTS, id=DEFAULT_MODEL)}))


if __name__ == "__main__":
    runner = CountRunner()
    EXPERIMENTS["count"] = count_experiment(runner)
    lab.backend.connect.connect = connect
    main()
