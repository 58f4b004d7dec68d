"""What a hosted model process refuses, and to whom it answers how often."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from pydantic import BaseModel, Field

from lab.backend.hosted import HostedBackend
from lab.backend.hosting import HOSTED, HostedSettings, hosted, read_settings
from lab.backend.http import HttpBackend
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.rates import MOST_KEYS, Rate
from lab.errors import BadInput, Busy, LabError, ModelError, TooMany
from lab.events import RunFinished
from lab.experiments.base import ExperimentParams
from lab.experiments.fields import names
from lab.experiments.registry import EXPERIMENTS

from .conftest import TOKEN, serving
from .toys import Clock, CountParams, CountRunner, ToySource, backend

PLAIN = {"prompt", "lines", "store_text", "layer_bits", "config"}
"""Texts that are only text: they name nothing on the machine that runs."""


class NamingParams(CountParams):
    """One of each kind."""

    experiment: ClassVar[str] = "count"
    text: str = Field("", json_schema_extra=names("file", "", "topics"))
    other: str = Field("", json_schema_extra=names("model", ""))
    adapter: str = Field(
        "packaged",
        json_schema_extra={
            **names("adapter", "packaged"),
            "suggestions": ["packaged", "of-the-operator", "of-another"],
        },
    )
    save: str = Field("", json_schema_extra=names("kept", ""))


class NamesQuestion(BaseModel):
    lists: ClassVar[dict[str, str]] = {"adapters": "adapter"}
    name: str = Field("", json_schema_extra=names("kept", ""))


class NamingRunner(CountRunner):
    def inspect(self, context: Any, facts: Any, name: str, params: Any) -> dict[str, Any]:
        if name == "names":
            return {"adapters": ["packaged", "of-the-operator", "of-a-stranger"], "more": 1}
        return super().inspect(context, facts, name, params)


def hosting(**settings: Any) -> HostedSettings:
    return HostedSettings(**{"models": ("toy",), "adapters": ("of-the-operator",), **settings})


def toy(monkeypatch: pytest.MonkeyPatch, runner: CountRunner | None = None) -> Any:
    """A local backend whose one experiment takes names."""
    runner = runner or NamingRunner()
    runner.inspections = {**runner.inspections, "names": NamesQuestion}
    local = backend(runner)
    known = local.experiment("count")
    monkeypatch.setattr(local, "_experiments", {"count": type(known)(**{**vars(known), "params": NamingParams})})
    return local


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostedBackend]:
    local = toy(monkeypatch)
    yield HostedBackend(local, hosting())
    local.close()


def ask_for(**params: object) -> RunRequest:
    return RunRequest(experiment="count", model="toy", params=dict(params))


@pytest.mark.parametrize("model", ["other", "/etc", "../toy", "~/models", "owner/name", "/srv/x.gguf", "TOY", ""])
def test_a_model_that_is_not_offered_is_refused_in_words(lab: HostedBackend, model: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: lab.run(RunRequest(experiment="count", model=model)),
        lambda: lab.inspect(InspectRequest(experiment="count", name="ask", model=model)),
        lambda: lab.experiments(model),
        lambda: lab.run(ask_for(other=model or "x")),
    ]
    for call in calls:
        with pytest.raises(ModelError, match="is not offered here") as refused:
            call()
        assert refused.value.remedy == "This lab is hosted; it offers toy."


def test_the_same_models_are_there_without_hosting() -> None:
    local = backend()
    assert {facts.id for facts in local.models()} == {"toy", "other"}
    assert local.experiments("other")
    local.close()


def test_only_offered_models_are_listed_and_one_that_is_gone_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    local = toy(monkeypatch)
    assert [f.id for f in HostedBackend(local, hosting(models=("gone", "toy"))).models()] == ["toy"]
    local.close()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"text": "/etc/passwd"}, "text is '/etc/passwd'. This lab is hosted: it reads no file"),
        ({"text": "notes.txt"}, "it reads no file"),
        ({"text": "wikitext"}, "it reads no file"),
        ({"adapter": "/srv/adapter"}, "adapter is '/srv/adapter', which is not offered here. Choose packaged, of-the-"),
        ({"adapter": "of-a-stranger"}, "not offered here"),
        ({"save": "mine"}, "save is 'mine'. This lab is hosted: nothing of a visitor is kept"),
        ({"prompt": "x" * 8001}, "prompt has 8,001 characters; this lab allows 8,000"),
    ],
)
def test_what_names_something_of_the_machine_is_refused(lab: HostedBackend, params: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words.replace(".", r"\.").replace("(", r"\(")):
        lab.run(ask_for(**params))


@pytest.mark.parametrize("params", [{}, {"text": "topics"}, {"other": "toy"}, {"adapter": "of-the-operator"}])
def test_what_is_offered_runs(lab: HostedBackend, params: dict[str, Any]) -> None:
    assert isinstance(list(lab.run(ask_for(**params)))[-1], RunFinished)


def test_a_question_keeps_nothing_and_lists_only_what_is_offered(lab: HostedBackend) -> None:
    question = InspectRequest(experiment="count", name="names", model="toy")
    assert lab.inspect(question) == {"adapters": ["packaged", "of-the-operator"], "more": 1}
    with pytest.raises(BadInput, match="nothing of a visitor is kept"):
        lab.inspect(InspectRequest(experiment="count", name="names", model="toy", params={"name": "mine"}))


def test_the_form_locks_what_is_refused(lab: HostedBackend) -> None:
    (info,) = lab.experiments("toy")
    fields = info.schema["properties"]
    assert fields["adapter"]["suggestions"] == ["packaged", "of-the-operator"]
    assert "reads no file" in fields["text"]["disabled"]
    assert "kept" in fields["save"]["disabled"]
    assert fields["other"]["disabled"] == "This lab is hosted: it offers toy alone."
    assert fields["adapter"]["description"] == "One of packaged, of-the-operator."
    assert "disabled" not in fields["adapter"]
    assert "disabled" not in fields["prompt"]


def texts_of(cls: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The fields of a class, nested ones too, that take any text: no enum, no pattern of a few words."""
    schema = cls.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    fields = {name: spec for part in parts for name, spec in part.get("properties", {}).items()}
    free = {n: s for n, s in fields.items() if '"type": "string"' in json.dumps(s) and "enum" not in json.dumps(s)}
    return {n: s for n, s in free.items() if "|" not in s.get("pattern", "") and "const" not in s}


def unmarked(cls: type[BaseModel]) -> set[str]:
    return {name for name, spec in texts_of(cls).items() if "names" not in spec} - PLAIN


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_text_of_every_experiment_says_what_it_names(name: str) -> None:
    experiment = EXPERIMENTS[name]
    assert unmarked(experiment.params) == set()
    for cls in experiment.load().inspections.values():
        assert unmarked(cls) == set()


def test_a_text_without_a_mark_would_be_seen() -> None:
    class Forgotten(ExperimentParams):
        path: str = "x"
        paths: tuple[str, ...] = ()
        prompt: str = ""
        marked: str = Field("", json_schema_extra=names("file", ""))

    assert unmarked(Forgotten) == {"path", "paths"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_real_experiments_lock_their_files(name: str) -> None:
    from samples import sample_facts

    source = ToySource(facts_by_id={"toy": sample_facts()})
    local = backend(source=source)
    local._experiments = {name: EXPERIMENTS[name]}
    lab = HostedBackend(local, HostedSettings(models=("toy",)))
    (info,) = lab.experiments("toy")
    marked = {field: spec for field, spec in info.schema["properties"].items() if "names" in spec}
    assert all("disabled" in spec for spec in marked.values())
    for field in marked:
        with pytest.raises(BadInput, match=f"{field} is|not offered here"):
            lab.run(RunRequest(experiment=name, model="toy", params={field: "elsewhere"}))
    local.close()


# over HTTP


@contextmanager
def hosted_server(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Any]:
    local = toy(monkeypatch)
    with serving(local, local.experiment("count").load(), hosting(**settings)) as served:
        yield served


def post(url: str, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {TOKEN}", **headers}
    return httpx.post(url + path, json=body, headers=headers, timeout=10)


def test_refusals_and_headers_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosted_server(monkeypatch) as served:
        with pytest.raises(ModelError, match=r"'/etc' is not offered here\. This lab is hosted; it offers toy\."):
            served.http.experiments("/etc")
        answers = [
            httpx.get(served.url + "/live"),
            httpx.get(served.url + "/health"),
            httpx.get(served.url + "/nothing"),
            post(served.url, "/runs", {"experiment": "count", "model": "/etc"}),
            post(served.url, "/runs", {"experiment": "count", "model": "toy"}),
            post(served.url, "/inspect", {"experiment": "count", "name": "ask", "model": "toy"}),
            httpx.post(served.url + "/runs", content=b"x", headers={"authorization": f"Bearer {TOKEN}"}),
        ]
        assert [a.status_code for a in answers] == [200, 401, 401, 422, 200, 200, 415]
        for answer in answers:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-frame-options"] == "DENY"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "server" not in answer.headers


def test_one_page_is_told_to_wait_and_another_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosted_server(monkeypatch, runs_per_minute=2, questions_per_minute=3) as served:
        for _ in range(2):
            assert isinstance(list(served.http.run(ask_for()))[-1], RunFinished)
        with pytest.raises(TooMany, match=r"more than 2 runs a minute\. Try again in") as refused:
            served.http.run(ask_for())
        assert 1 <= refused.value.retry_after_s <= 30
        assert isinstance(refused.value, Busy)
        other = HttpBackend(served.url, TOKEN)
        assert isinstance(list(other.run(ask_for()))[-1], RunFinished)
        other.close()
        question = {"experiment": "count", "name": "ask", "model": "toy"}
        statuses = [post(served.url, "/inspect", question, **{"x-lab-visitor": "one"}).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        late = post(served.url, "/inspect", question, **{"x-lab-visitor": "one"})
        assert late.json()["code"] == "rate"
        assert int(late.headers["retry-after"]) >= 1
        assert post(served.url, "/inspect", question, **{"x-lab-visitor": "two"}).status_code == 200


def test_a_rate_gives_back_by_the_minute_and_forgets_the_quiet() -> None:
    clock = Clock()
    rate = Rate(6, clock)
    assert [rate.take("a") for _ in range(6)] == [0] * 6
    assert rate.take("a") == 10
    assert rate.take("b") == 0
    clock.now = 9.0
    assert rate.take("a") == 1
    clock.now = 10.0
    assert rate.take("a") == 0
    assert rate.take("a", 100) == 60  # more than there ever is: when all is back
    for number in range(MOST_KEYS + 10):
        rate.take(str(number))
    assert len(rate._left) == MOST_KEYS


# settings


def test_settings_come_from_a_file_and_go_through_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lab.toml"
    path.write_text('models = ["toy", "models/mine"]\nvisitors = 3\nframed_by = ["https://school.example"]\n')
    settings = read_settings(path)
    assert settings == HostedSettings(models=("toy", "models/mine"), visitors=3, framed_by=("https://school.example",))
    monkeypatch.delenv(HOSTED, raising=False)
    assert hosted() is None
    monkeypatch.setenv(HOSTED, settings.model_dump_json())
    assert hosted() == settings
    limits = HostedSettings(deadline_s=7, stored_mib=2, new_tokens=5).limits()
    assert (limits.deadline_s, limits.stored_bytes, limits.new_tokens) == (7, 2 * 2**20, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("visitors = 0", "visitors is 0; it must be at least 1"),
        ("visitor = 3", "There is no parameter 'visitor'. Did you mean 'visitors'?"),
        ("visitors = ", "is not TOML"),
        ("\xff", "is not TOML"),
        ("models = []", "models has 0 items; it needs at least 1"),
        ('base_url = "lab"', "base_url is 'lab'"),
        ('framed_by = ["*; script-src *"]', "is no origin such as"),
        ('login = "password"', "login is 'password', which is not a choice. Choose 'token' or 'none'"),
    ],
)
def test_wrong_settings_are_said_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "lab.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput) as refused:
        read_settings(path)
    assert words in str(refused.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot be read"):
        read_settings(tmp_path / "no.toml")
