"""A whole model changed by us and by a published engine, same settings and text, each in a process of its own.

Time is from the loaded model and the token ids to the changed weights; memory is the process's peak, and its peak less
what it held once the model was loaded; ours leaves the dense model as it is and makes the weights beside it, theirs
writes over it.

The published engine (llm-compressor) pins other versions of transformers than the lab, so that it lives in an
environment of its own: give that environment's Python. Without it the figures say "not installed".
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

WINDOW = 512
_ENGINE = r"""
import json, os, resource, sys, time
import torch
torch.set_num_threads(int(sys.argv[3]))
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
try:
    import llmcompressor
    import transformers
    from datasets import Dataset
    from llmcompressor import oneshot
    IMPORT
except ImportError as error:
    print("RESULT " + json.dumps({"skipped": f"not installed ({error})"}))
    sys.exit()
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, local_files_only=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True)
windows = json.load(open(sys.argv[2]))
data = Dataset.from_dict({"input_ids": windows, "attention_mask": [[1] * len(w) for w in windows]})
recipe = RECIPE
held, began = rss(), time.perf_counter()
oneshot(
    model=model, tokenizer=tokenizer, dataset=data, recipe=recipe, max_seq_length=512,
    num_calibration_samples=len(windows),
)
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with torch.no_grad():
    ids = torch.tensor([json.load(open(sys.argv[4]))])
    logits = model(input_ids=ids).logits[0, :-1].float()
    loss = float(torch.nn.functional.cross_entropy(logits, ids[0, 1:]))
    inside = [m.weight for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]
    zeros = sum(int((w == 0).sum()) for w in inside) / sum(w.numel() for w in inside)
print("RESULT " + json.dumps({
    "version": f"llmcompressor {llmcompressor.__version__}, transformers {transformers.__version__}, "
    f"torch {torch.__version__}",
    "seconds": round(seconds, 2), "peak_mib": round(peak / 2**20), "added_mib": round((peak - held) / 2**20),
    "held_out_perplexity": round(float(torch.tensor(loss).exp()), 3), "zeros": round(zeros, 4),
}))
"""


def engine(imported: str, recipe: str) -> str:
    """The published engine's program: what it imports beside `oneshot`, and its recipe."""
    return _ENGINE.replace("IMPORT", imported).replace("RECIPE", recipe)


def beside(
    module: str,
    program: str,
    *,
    model: str = "",
    tokens: int = 8192,
    threads: int = 2,
    engine_python: str = "",
    limit_s: float = 1800.0,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Both, one after the other.

    Args:
        module: ours: run as `python -m MODULE --one ...`, see `own_run`.
        program: theirs, of `engine`.
        model: how the model is asked for; "" for the packaged one.
        tokens: of calibration text.
        engine_python: the Python of an environment with llm-compressor; "" or one without it: "not installed".
        limit_s: for each process.
    """
    from pydoc_data.topics import topics

    from lab.models.registry import DEFAULT_MODEL, load_model

    loaded = load_model(model or DEFAULT_MODEL, dtype="float32", device="cpu")
    ids: Any = loaded.tokenizer("\n\n".join(topics[key] for key in sorted(topics)))["input_ids"]
    windows = [ids[start : start + WINDOW] for start in range(0, tokens, WINDOW)]
    held_out = ids[tokens + WINDOW : tokens + 3 * WINDOW]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        calibration, rest = Path(folder, "windows.json"), Path(folder, "held_out.json")
        calibration.write_text(json.dumps(windows))
        rest.write_text(json.dumps(held_out))
        directory = str(Path(folder, "model"))
        loaded.model.save_pretrained(directory)
        loaded.tokenizer.save_pretrained(directory)
        del loaded
        arguments = [directory, str(calibration), str(threads), str(rest)]
        say("ours")
        results["ours"] = _process([sys.executable, "-m", module, "--one", *arguments], limit_s)
        say("llm-compressor")
        results["llm-compressor"] = (
            _process([engine_python, "-c", program, *arguments], limit_s)
            if engine_python
            else {"skipped": "not installed (no Python of an environment with it was given)"}
        )
    ours, theirs = (results[name].get("seconds") for name in ("ours", "llm-compressor"))
    return {
        "calibration_tokens": sum(map(len, windows)),
        "threads": threads,
        "results": results,
        "times_as_fast": round(theirs / ours, 2) if ours and theirs else None,
    }


def own_run(arguments: list[str], work: Callable[[Any, list[list[int]]], tuple[Any, dict[str, Any]]]) -> None:
    """Our side, in a process of its own; prints one line.

    Args:
        arguments: directory, calibration file, threads, held-out file.
        work: from a model and windows to the changed model and further figures.
    """
    import psutil
    import torch
    from transformers import AutoModelForCausalLM

    directory, calibration, threads, held_out = arguments
    torch.set_num_threads(int(threads))
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)
    windows = json.loads(Path(calibration).read_text())
    held, began = int(psutil.Process().memory_info().rss), perf_counter()
    shell, more = work(model, windows)
    seconds = perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with torch.no_grad():
        ids = torch.tensor([json.loads(Path(held_out).read_text())])
        logits = shell(input_ids=ids).logits[0, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:])
    result = {
        "version": f"torch {torch.__version__}",
        "seconds": round(seconds, 2),
        "peak_mib": round(peak / 2**20),
        "added_mib": round((peak - held) / 2**20),
        "held_out_perplexity": round(float(loss.exp()), 3),
        **more,
    }
    print("RESULT " + json.dumps(result))


def arguments(description: str | None) -> argparse.Namespace:
    """The command line that both benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine_python", nargs="?", default="", help="Python of an environment with llm-compressor")
    parser.add_argument("--model", default="", help="how the model is asked for; the packaged one by default")
    parser.add_argument("--tokens", type=int, default=8192, help="of calibration text")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def _process(command: list[str], limit_s: float) -> dict[str, Any]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"skipped": f"took longer than {limit_s:g} s"}
    except OSError as error:
        return {"skipped": f"could not be started ({error.strerror})"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return found
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"skipped": f"failed: {last[:300]}"}
