"""Make train.json: the losses of peft with a plain torch loop on the tiny models of `test_train.py`.

Run as `python tests/lora/golden/make_train.py` from the repository's root with the extra `oracles` installed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1]), str(HERE.parent)]

from test_train import SETTINGS, TARGETS, data_of, fresh  # noqa: E402
from tiny_models import save_tiny  # noqa: E402

from benchmarks.lora import PlainLoop  # noqa: E402
from lab.models.registry import load_model  # noqa: E402


def main() -> None:
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in TARGETS:
            loaded = load_model(
                str(save_tiny(Path(folder, kind), kind, seed=0, chat=True)), dtype="float32", device="cpu"
            )
            plain = PlainLoop(loaded, fresh(loaded, kind), data_of(loaded).train, SETTINGS)
            losses = [round(plain.step(), 6) for _ in range(SETTINGS.steps)]
            made[kind] = {"losses": losses, "trainable": plain.trainable}
    Path(HERE, "train.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
