"""A page of a hosted lab whose operator offers another model than the default."""

from __future__ import annotations

from dataclasses import replace

from samples import sample_facts

from lab.backend.protocol import DEFAULT_MODEL
from widgets.page_state import PageState, offered_model

OTHER = replace(sample_facts(), id="models/other", name="Other")
DEFAULT = replace(sample_facts(), id=DEFAULT_MODEL)


def test_a_page_begins_with_the_first_model_that_is_offered() -> None:
    state = PageState(schema={"properties": {}}, params={})
    state.learn([OTHER], None)
    assert state.model == "models/other"
    assert state.facts == OTHER
    assert state.models == {"models/other": "Other"}


def test_the_default_stays_where_it_is_offered_and_so_does_a_choice() -> None:
    assert offered_model(DEFAULT_MODEL, [OTHER, DEFAULT]) == DEFAULT_MODEL
    assert offered_model("of/a/link", [OTHER]) == "of/a/link"  # the backend refuses it in words
    assert offered_model(DEFAULT_MODEL, []) == DEFAULT_MODEL
