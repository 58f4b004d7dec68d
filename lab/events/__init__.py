"""What travels: events, the run card, facts of a model, the JSON codec and recordings.

No torch here, so that views and the command line stay light.
"""

from lab.events import (  # an experiment's own events register themselves
    beam_search,
    decoding,
    evaluation,
    kv_cache,
    lora,
    pruning,
    quantization,
    quantization_methods,
    quantization_words,
    speculative,
    words,
)
from lab.events.array import ArrayData
from lab.events.base import Event, event_types
from lab.events.card import RunCard
from lab.events.codec import decode_event, decode_line, encode_event, encode_line
from lab.events.facts import LayerFacts, ModelFacts
from lab.events.recording import Recording, Spool, recover_spool
from lab.events.run import (
    Loading,
    Progress,
    Proof,
    Queued,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
    is_final,
)

__all__ = [
    "ArrayData",
    "Event",
    "LayerFacts",
    "Loading",
    "ModelFacts",
    "Progress",
    "Proof",
    "Queued",
    "Recording",
    "RunCancelled",
    "RunCard",
    "RunFailed",
    "RunFinished",
    "RunStarted",
    "Spool",
    "beam_search",
    "decode_event",
    "decode_line",
    "decoding",
    "encode_event",
    "encode_line",
    "evaluation",
    "event_types",
    "is_final",
    "kv_cache",
    "lora",
    "pruning",
    "quantization",
    "quantization_methods",
    "quantization_words",
    "recover_spool",
    "speculative",
    "words",
]
