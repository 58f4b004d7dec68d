"""The proof in words: what was compared with what, and what came of it."""

from __future__ import annotations

from typing import Any

from lab.events import Proof, RunCancelled, RunFailed
from widgets.session import ACTIVE, Session


def proof_state(session: Session) -> dict[str, Any]:
    """What the proof line shows: verdict, text and the figures behind it."""
    proof = next((e for e in reversed(session.events) if isinstance(e, Proof)), None)
    last = session.events[-1] if session.events else None
    if proof is not None:
        return {"verdict": proof.verdict, "text": words(proof), "detail": _rows(proof)}
    if isinstance(last, RunCancelled):
        return {"verdict": "unproven", "text": "Stopped, unproven.", "detail": []}
    if isinstance(last, RunFailed) or session.phase == "failed":
        return {"verdict": "unproven", "text": "The run failed, so nothing is proven.", "detail": []}
    if session.phase in ACTIVE:
        checking = session.stage.startswith("checking")
        text = "Checking against the plain model." if checking else "The proof follows the picture."
        return {"verdict": "pending", "text": text, "detail": [], "can_cancel": checking}
    return {"verdict": "none", "text": "No run yet.", "detail": []}


def words(proof: Proof) -> str:
    """One sentence."""
    claim = proof.claim[:1].upper() + proof.claim[1:]
    count = f"{proof.matched:,} of {proof.compared:,} {proof.unit}"
    match proof.verdict:
        case "equal":
            return f"{claim}: {count}"
        case "tie":
            return f"{claim} up to a tie: {count}. {proof.explanation}"
        case "different":
            return f"Not {proof.claim}: {count} agree. {proof.explanation}"
        case _:
            return f"Unproven. {proof.explanation}"


def _rows(proof: Proof) -> list[list[str]]:
    """The figures behind the verdict as (name, value) texts; what holds nothing is left out."""
    rows: list[list[str]] = []
    for key, value in proof.detail.items():
        if isinstance(value, dict):
            rows += [[f"{_name(key)}: {_name(inner)}", _text(v)] for inner, v in value.items() if v is not None]
        elif isinstance(value, list):
            rows += [[_name(key), _text(item.get("words", item) if isinstance(item, dict) else item)] for item in value]
        elif value is not None:
            rows.append([_name(key), _text(value)])
    return rows


def _name(key: str) -> str:
    return key.replace("_", " ")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
