"""Which models there are and how one is asked for: by a name, a directory, a GGUF file or a hub id."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from lab.errors import ModelError, shown
from lab.events import ModelFacts
from lab.models import packaged
from lab.models.at_hand import hub_ids, speaks, trained_ids
from lab.models.atomic import silent
from lab.models.facts import facts_of_directory
from lab.models.sources import converted_gguf_ids, known_facts, locate, prepare

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

DEFAULT_MODEL = packaged.SMOLLM2.id


def list_models(more: Iterable[str] = ()) -> list[ModelFacts]:
    """The packaged models, whether fetched or not; then all others on this machine, as far as they are known:
    GGUF files converted before, models trained here, those of the hub's cache that the lab can run.

    Of the last two no weights are read, so their weight hash is "".

    Args:
        more: directories that are known otherwise.
    """
    found: dict[str, ModelFacts] = {}
    known = (*packaged.PACKAGES, *converted_gguf_ids())
    for model_id in dict.fromkeys((*known, *trained_ids(), *more, *hub_ids())):
        # One that a person has damaged or removed meanwhile must not hide the others.
        with contextlib.suppress(ModelError):
            found[model_id] = find_facts(model_id, hash_weights=model_id in known)
    return [facts for facts in found.values() if speaks(facts)]


def find_facts(model_id: str, *, hash_weights: bool = True) -> ModelFacts:
    """The facts of one model. No weights are loaded, and nothing is fetched or converted.

    Args:
        hash_weights: False leaves the weight hash of a model without a manifest "": all weights are read for it once.

    Raises:
        ModelError: there is no such model, or it is one that the lab cannot run.
    """
    with _files_in_words(model_id):
        source = locate(model_id)
        if source.directory is None:
            return known_facts(source)
        return facts_of_directory(source.directory, model_id=source.id, source=source.kind, hash_weights=hash_weights)


def fetch_model(model_id: str, progress: Callable[[str, float | None], None] | None = None) -> None:
    """Fetch and convert a model so that it is ready to load. Nothing happens where it is ready.

    Raises:
        ModelError: it cannot be found, fetched or converted.
    """
    with _files_in_words(model_id):
        prepare(locate(model_id), progress or silent)


def load_model(
    model_id: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    progress: Callable[[str, float | None], None] | None = None,
) -> LoadedModel:
    """Load a model, fetching and converting it first where that is needed.

    Args:
        model_id: "smollm2-135m-instruct", another packaged name, a directory, a GGUF file, or a hub id.
        dtype: "auto", "float32" or "bfloat16".
        device: "auto", "cpu", "cuda" or "cuda:N".
        progress: told each stage and the fraction of it that is done, or None.

    Raises:
        NotEnoughMemory: it will not fit; both numbers are in the message.
        ModelError: it cannot be found, fetched, read or used as asked.
    """
    from lab.models.loading import choose_device, load_directory

    choose_device(device, dtype)  # a bad choice is refused before a long download
    say = progress or silent
    with _files_in_words(model_id):
        source = prepare(locate(model_id), say)
        if source.directory is None:
            raise AssertionError("a prepared model has a directory")
        say("reading the model's facts", None)
        facts = facts_of_directory(source.directory, model_id=source.id, source=source.kind)
        return load_directory(source.directory, facts, dtype=dtype, device=device, progress=say)


@contextlib.contextmanager
def _files_in_words(model_id: str) -> Iterator[None]:
    """What the system refuses on the way (permissions, a full disk, a failing one) as an error for a person."""
    from safetensors import SafetensorError

    try:
        yield
    except OSError as error:
        raise ModelError(
            f"The files of {shown(model_id, 200)} cannot be read or written: {error.strerror or type(error).__name__}.",
            remedy="Check permissions and the free space of the cache directory.",
        ) from error
    except SafetensorError as error:
        raise ModelError(
            f"The weights of {shown(model_id, 200)} cannot be read or written: {str(error)[:200]}.",
            remedy="Check the free space of the cache directory; else copy the model again.",
        ) from error
