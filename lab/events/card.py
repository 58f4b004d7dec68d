"""The run card: everything that decides a run's result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunCard:
    """Names a run so that it can be made again: the same card gives the same tokens.

    Attributes:
        weight_hash: sha256 over the model's weights, hex.
        device: "cpu" or "cuda:0 NAME".
        params: the validated parameters, the seed among them.
        files: of a user's files that the run reads, by the path in `params`: the sha256 of the content, hex.
    """

    experiment: str
    model: str
    weight_hash: str
    dtype: str
    device: str
    attention: str
    threads: int
    versions: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def key(self) -> str:
        """A stable identity: sha256 of the card as canonical JSON, hex."""
        body = asdict(self)
        if not self.files:  # so that runs without any keep the identity that they were recorded under
            del body["files"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
