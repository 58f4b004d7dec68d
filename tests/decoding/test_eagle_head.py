"""The trained draft head: its sums, its file, its data and training, and what the packaged one is worth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from eagle_heads import ROWS, busy_head
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.decoding.drafts.eagle import prompts, store
from lab.decoding.drafts.eagle.batch_decoder import BatchDecoder, Text
from lab.decoding.drafts.eagle.data import Data, Sample, batches
from lab.decoding.drafts.eagle.evaluate import figures
from lab.decoding.drafts.eagle.head import EagleHead, new_head
from lab.decoding.drafts.eagle.train import Recipe, Stage, fit
from lab.decoding.drafts.eagle.unroll import unroll
from lab.errors import ModelError

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def inputs(count: int = 9, texts: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return (
        torch.randint(0, 320, (texts, count), generator=generator),
        torch.randn(texts, count, 32, generator=generator),
    )


def test_it_starts_by_giving_the_feature_back(tiny: Tiny) -> None:
    head = new_head(tiny().model, ROWS, seed=1)
    ids, features = inputs()
    with torch.no_grad():
        estimate, _ = head(ids, features)
        alike = torch.cosine_similarity(estimate, features, dim=-1)
        # Mutation: any other start is far from it.
        far, _ = busy_head(tiny())(ids, features)
    assert alike.min() > 0.95
    assert torch.cosine_similarity(far, features, dim=-1).abs().mean() < 0.5


def test_its_cache_changes_nothing(tiny: Tiny) -> None:
    head = busy_head(tiny())
    ids, features = inputs()
    with torch.no_grad():
        whole, _ = head(ids, features)
        past, parts = None, []
        for piece in (slice(0, 4), slice(4, 5), slice(5, 9)):
            part, past = head(ids[:, piece], features[:, piece], past)
            parts.append(part)
        alone, _ = head(ids[:, 4:], features[:, 4:])
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-5)
    assert not torch.allclose(alone, whole[:, 4:], atol=1e-3)  # it does look back


def test_unrolled_is_what_drafting_step_by_step_gives(tiny: Tiny) -> None:
    head = busy_head(tiny())
    ids, features = inputs()
    with torch.no_grad():
        found = unroll(head, ids, features, 4)
        for known in (1, 4):
            estimate, past = head(ids[:, :known], features[:, :known])
            assert torch.allclose(found[0][:, :known], estimate, atol=1e-5)
            for depth in (2, 3, 4):
                position = known + depth - 2
                estimate, past = head(ids[:, position : position + 1], estimate[:, -1:], past)
                assert torch.allclose(found[depth - 1][:, position], estimate[:, 0], atol=1e-5)
                assert not torch.allclose(found[0][:, position], estimate[:, 0], atol=1e-3)


def saved(head: EagleHead, loaded: LoadedModel, file: Path, weight_hash: str | None = None) -> Path:
    chosen = loaded.facts.weight_hash if weight_hash is None else weight_hash
    store.save_head(head, store.HeadCard(loaded.facts.name, chosen, {}, {}, {}), file)
    return file


def test_a_file_comes_back_as_it_was(tiny: Tiny, tmp_path: Path) -> None:
    loaded = tiny()
    head = busy_head(loaded)
    again = store.load_head(loaded, saved(head, loaded, tmp_path / "head.safetensors"))
    for (name, weight), (_, other) in zip(head.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(weight.bfloat16().float(), other), name
    assert torch.equal(again.rows, torch.tensor(ROWS))
    assert torch.equal(again.output, loaded.model.lm_head.weight[ROWS])  # type: ignore[index,union-attr]
    assert not any(p.requires_grad for p in again.parameters())


def test_a_head_for_another_model_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    loaded, other = tiny(), tiny(seed=1)
    file = saved(busy_head(loaded), loaded, tmp_path / "head.safetensors")
    assert store.why_not(loaded, file) == ""
    with pytest.raises(ModelError) as refused:
        store.load_head(other, file)
    assert loaded.facts.weight_hash[:12] in str(refused.value)
    assert other.facts.weight_hash[:12] in str(refused.value)
    assert loaded.facts.name in str(refused.value)
    assert other.facts.name in str(refused.value)


def damaged(file: Path, change: Callable[[dict[str, Tensor], dict[str, str]], None]) -> None:
    with safe_open(str(file), "pt") as stored:
        metadata = dict(stored.metadata())
    tensors = load_file(file)
    change(tensors, metadata)
    save_file(tensors, file, metadata)


DAMAGE: dict[str, tuple[Callable[[dict[str, Tensor], dict[str, str]], Any], str]] = {
    "shape": (lambda t, _: t.update({"fc.weight": t["fc.weight"][:, :-1].contiguous()}), "fc.weight"),
    "dtype": (lambda t, _: t.update({"fc.weight": t["fc.weight"].float()}), "fc.weight"),
    "missing": (lambda t, _: t.pop("norm.weight"), "norm.weight"),
    "unknown": (lambda t, _: t.update({"extra": torch.zeros(1)}), "extra"),
    "rows": (lambda t, _: t.update({"rows": t["rows"] + 1000}), "rows"),
    "row order": (lambda t, _: t.update({"rows": t["rows"].flip(0).contiguous()}), "rows"),
    "no rows": (lambda t, _: t.pop("rows"), "rows"),
    "nan": (lambda t, _: t["fc.weight"].fill_(torch.nan), "finite"),
    "format": (lambda _, m: m.update({"format": "another 9"}), "another 9"),
    "card": (lambda _, m: m.update({"recipe": "{"}), "cannot be used"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    loaded = tiny()
    file = saved(busy_head(loaded), loaded, tmp_path / "head.safetensors")
    change, word = DAMAGE[kind]
    damaged(file, change)
    with pytest.raises(ModelError, match=word):
        store.load_head(loaded, file)


def test_no_file_and_no_safetensors_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.safetensors"):
        store.load_head(tiny(), tmp_path / "gone.safetensors")
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04" + b"x" * 100)
    with pytest.raises(ModelError, match="cannot be used"):
        store.load_head(tiny(), tmp_path / "pickle.safetensors")


def generated(loaded: LoadedModel, texts: int = 12, new: int = 24) -> tuple[list[Text], Tensor]:
    decoder = BatchDecoder(loaded.model, frozenset(range(40)), torch.Generator().manual_seed(4))
    made = [
        Text(ids, len(ids), t) for i in range(texts) for ids, t in [([1, *range(5, 8 + i)], (1.0, 0.7, 0.0)[i % 3])]
    ]
    decoder.generate(made, new)
    return made, decoder.mass


def test_generated_features_are_those_of_a_plain_forward(tiny: Tiny) -> None:
    loaded = tiny()
    model: Any = loaded.model
    made, mass = generated(loaded)
    assert len({len(text.ids) - text.prompt for text in made}) > 1  # some ended early
    for text in made:
        features = torch.cat(text.features).float()
        with torch.no_grad():
            plain = model.model(torch.tensor([text.ids[:-1]])).last_hidden_state[0]
            logits = model.lm_head(plain)
        assert torch.allclose(features, plain, atol=2e-2)  # half precision
        assert torch.allclose(
            torch.tensor(text.lse)[text.prompt - 1 :], logits.logsumexp(-1)[text.prompt - 1 :], atol=1e-3
        )
        if text.temperature == 0:
            assert logits.argmax(-1)[text.prompt - 1 :].tolist() == text.ids[text.prompt :]
    assert float(mass.sum()) == pytest.approx(sum(len(text.ids) - text.prompt for text in made), rel=1e-4)


def data_of(loaded: LoadedModel) -> Data:
    made, mass = generated(loaded)
    samples = [
        Sample(torch.tensor(t.ids), torch.cat(t.features), torch.tensor(t.lse), t.prompt, t.temperature) for t in made
    ]
    return Data(samples, mass, loaded.facts.weight_hash)


def test_training_lowers_the_loss_and_leaves_the_target_alone(tiny: Tiny) -> None:
    loaded = tiny()
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    data = data_of(loaded)
    head = new_head(loaded.model, data.mass.topk(160).indices.sort().values, seed=1)
    stages = Stage(25, 1, 3e-3, 0.05), Stage(10, 3, 1e-3, 0.0, 0.5)
    full = loaded.model.lm_head.weight  # type: ignore[union-attr]
    at_first = figures(head, full, data.samples)["alpha"]  # type: ignore[arg-type]
    seen: list[int] = []
    losses = fit(head, data, Recipe(stages, tokens=120, warm_up=3), seen.append, every=20)
    assert sum(losses[20:25]) < 0.9 * sum(losses[:5])
    assert seen == [20, 35]
    later = figures(head, full, data.samples)["alpha"]  # type: ignore[arg-type]
    assert all(b > a for a, b in zip(at_first, later, strict=True))
    for name, weight in loaded.model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    assert not any(p.requires_grad or p.grad is not None for p in loaded.model.parameters())


def test_batches_hold_every_text_once(tiny: Tiny) -> None:
    data = data_of(tiny())
    judged = sum(int(batch.judged.sum()) for batch in batches(data.samples, 90, torch.Generator().manual_seed(1)))
    # Of each text's generated tokens the head can judge all but the first.. the one after the prompt needs x_{s+1}.
    assert judged == sum(len(s.tokens) - 2 - max(s.prompt - 2, 0) for s in data.samples)


def test_held_out_prompts_share_no_template_and_no_topic() -> None:
    for _, templates, topics in prompts.KINDS.values():
        for entries in (templates, topics):
            train, held_out = (set(prompts.split(entries, held_out=h)) for h in (False, True))
            assert train
            assert held_out
            assert not train & held_out
            assert train | held_out == set(entries)
    train, held_out = (prompts.make_prompts(400, held_out=h, seed=1) for h in (False, True))
    assert not {p.text for p in train} & {p.text for p in held_out}
    assert {p.kind for p in train} == {p.kind for p in held_out} == set(prompts.KINDS)
    assert train == prompts.make_prompts(400, held_out=False, seed=1)


def test_the_packaged_file() -> None:
    file = store.PACKAGED
    assert file.stat().st_size < 10_000_000
    head = file.read_bytes()[:9]
    assert int.from_bytes(head[:8], "little") < 100_000
    assert head[8:] == b"{"  # a safetensors header, no pickle
    tensors = load_file(file)
    assert {t.dtype for name, t in tensors.items() if name != "rows"} == {torch.bfloat16}
    card = store.read_card(file)
    assert card.target == "smollm2-135m-instruct"
    assert len(card.weight_hash) == 64
    assert card.recipe["generated_tokens"] > 0
    text = (file.parent / "CARD.md").read_text(encoding="utf-8")
    for name in ("alpha_sampled", "agreement_greedy"):
        for value in card.figures[name]:
            assert f"{value:.3f}" in text, name
    assert "Apache-2.0" in text
    json.dumps(card.figures)


# The model's own words on held-out prompts, greedy and drawn: user's message, answer.
ANSWERS = (
    (
        "Write a short essay about parenting.",
        "Parenting is a multifaceted profession that requires a deep understanding of both the "
        "emotional and practical "
        "aspects of parenting. Parenting is not just about providing a loving and supportive "
        "environment, but it is also "
        "about creating a nurturing and caring environment that supports the well-being of both parents and their "
        "children. Parenting is a holistic approach that involves not only the physical and emotional "
        "aspects but also",
    ),
    (
        "Give step by step advice on the moon landing.",
        "The moon landing is a monumental event that has captivated humanity for centuries. Here's a "
        "step-by-step guide "
        "to the moon landing:\n\n1. **Launch**: The Apollo 11 moon landing occurred on July 20, 1969, "
        "when astronauts",
    ),
    (
        "Write a short essay about the Renaissance.",
        "Characters from the Renaissance era offer rich material for a historical essay. The advent of "
        "art and literature "
        "during the Renaissance gave rise to new artistic movements and innovations. This shiftable "
        "style across various "
        "arts has allowed stories that once dealt with different subjects to be edited, transformed and "
        "made to be more",
    ),
    (
        "Give step by step advice on mountain climbing.",
        "Encouraged, here's a step-by-step guide to mountain climbing:\n\n1. Choose the Right Location: "
        "Start by checking "
        "the peak you want to climb, taking into account the geographical features of the chosen location. Remember, "
        "there are many climbing spots around the world, from Chile to Everest BaseCamp.",
    ),
)
FLOORS = (0.3, 0.25, 0.22)
"""Of alpha at depth 1 to 3 on these positions."""


@pytest.mark.model
def test_the_packaged_head_is_worth_its_floor(packaged_model: LoadedModel) -> None:
    from lab.models.prompts import encode_prompt

    model: Any = packaged_model.model
    samples = []
    for question, answer in ANSWERS:
        prompt = encode_prompt(packaged_model, question, chat=True)
        tokens = torch.tensor([*prompt, *packaged_model.tokenizer(answer)["input_ids"]])
        with torch.no_grad():
            features = model.model(tokens[None, :-1]).last_hidden_state[0]
            lse = model.lm_head(features).logsumexp(-1)
        samples.append(Sample(tokens, features, lse, len(prompt), 1.0))
    head = store.load_head(packaged_model)
    alpha = figures(head, model.lm_head.weight, samples, depths=3)["alpha"]
    assert all(value > floor for value, floor in zip(alpha, FLOORS, strict=True)), alpha

    # Mutation: the same numbers in another order are worth nothing.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_(weight.flatten()[torch.randperm(weight.numel(), generator=generator)].view_as(weight))
    shuffled = figures(head, model.lm_head.weight, samples, depths=3)["alpha"]
    assert all(value < floor / 2 for value, floor in zip(shuffled, FLOORS, strict=True)), shuffled
