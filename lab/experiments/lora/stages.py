"""The stages of each task of the `lora` experiment, by the words of their progress. No torch here."""

from __future__ import annotations

from lab.experiments.lora.params import LoraParams

CHECKING = "checking against generate()"
_BEFORE_AND_AFTER = ("adapter on*: words", "merging *", "merged: words", CHECKING)
_LOST = ("merging: *", "*: merged against unmerged")


def stages_of(params: LoraParams) -> list[str]:
    """What the run will do, in order."""
    writing = ["writing the merged model"] if params.merged_out else []
    match params.task:
        case "train":
            return ["dense words", "training", "singular values", *_BEFORE_AND_AFTER, *writing]
        case "compare":
            return ["singular values", "dense words", *_BEFORE_AND_AFTER, "on other text", *writing]
        case "swap":
            return ["singular values", "*: words", "merging *", CHECKING]
        case _:
            coded = ("dequantizing: *", *_LOST, *_LOST) if params.base in ("int8", "int4") else ()
            rounded = _LOST if params.base != "float32" else ()
            own = ("merging *", "decoding in turn", "merging again", "*: merged against unmerged")
            return ["singular values", *own, *rounded, *coded, CHECKING]
