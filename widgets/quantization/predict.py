"""What a visitor guesses before the `quantization` page: what smaller groups leave of the error."""

from __future__ import annotations

from lab.events import Recording
from lab.events.quantization import LayerErrors
from lab.strings import Strings
from widgets.format import format_share
from widgets.front.prediction import Prediction
from widgets.numbers import number
from widgets.quantization.sentences import bits


def prediction(recording: Recording, words: Strings) -> Prediction | None:
    """The question, from the errors of the chosen group size and the smallest; None where the run has not both."""
    by_size = {
        int(e.setting.share): (e, e.heldout_error)
        for e in recording.events
        if isinstance(e, LayerErrors) and e.setting.share.isdecimal() and e.heldout_error
    }
    chosen = str(recording.started.card.params.get("group_size", ""))
    if not chosen.isdecimal() or int(chosen) not in by_size or len(by_size) < 2:
        return None
    (large, before), (small, after) = by_size[int(chosen)], by_size[min(by_size)]
    if small is large:
        return None
    share = after / before
    by_group = int(small.setting.share) / int(large.setting.share)
    shares = sorted({format_share(s): s for s in (by_group, 1.0, share)}.values())
    return Prediction(
        text=words(
            "quantization.prediction.text",
            bits=large.setting.bits,
            large=large.setting.share,
            large_bits=bits(large.bits_per_weight),
            small=small.setting.share,
            small_bits=bits(small.bits_per_weight),
            projection=large.projection,
        ),
        options=tuple(format_share(s) for s in shares),
        answer=shares.index(share),
        figure=format_share(share),
        why=words("quantization.prediction.why", after=number(after), before=number(before)),
        badge="MEASURED",
    )
