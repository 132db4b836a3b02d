"""The bench for finished models, on hand-made models and against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer import Config, Decoder, Encoder
from measured_transformer.analysis import bench
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.handmade import previous_token_model
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.task import Batch

CONFIG = Config(
    vocab=20, d_model=12, n_layers=2, n_heads=3, positions="learned", max_length=16, head="none"
)
TEXTS = bench.texts_of(
    [[1, 5, 6, 7, 2], [1, 9, 5, 2], [1, 8, 8, 3, 2], [1, 4, 4, 5, 2]], special=(1, 2)
)


@pytest.fixture(scope="module")
def model() -> Encoder:
    torch.manual_seed(0)
    return Encoder(CONFIG).eval().requires_grad_(False)


def test_every_parameter_is_on_the_map(model: Encoder) -> None:
    assert sum(bench.parameter_map(model).values()) == sum(p.numel() for p in model.parameters())


def test_shuffling_keeps_the_numbers_and_changes_no_given_model(model: Encoder) -> None:
    before = [p.clone() for p in model.parameters()]
    other = bench.shuffled(model, torch.Generator().manual_seed(3))
    for old, mine, theirs in zip(before, model.parameters(), other.parameters(), strict=True):
        assert torch.equal(old, mine)
        assert torch.equal(mine.flatten().sort().values, theirs.flatten().sort().values)
    assert not torch.equal(model.token_embedding.weight, other.token_embedding.weight)


def test_a_head_for_the_previous_token_is_found() -> None:
    model = previous_token_model(vocab=5, length=4)
    assert isinstance(model, Decoder)
    texts = bench.texts_of([[0, 3, 1, 4], [0, 2, 2, 1]], special=(0,))
    atlas = bench.attention_atlas(model, texts, {"first": [0]})
    assert atlas["previous"][0, 0] == pytest.approx(1.0, abs=1e-6)
    assert atlas["distance"][0, 0] == pytest.approx(1.0, abs=1e-6)
    assert atlas["first"][0, 0] == pytest.approx(
        1 / 3, abs=1e-6
    )  # of three words, one stands behind it


def test_weights_of_an_atlas_are_sums_over_patterns(model: Encoder) -> None:
    atlas = bench.attention_atlas(model, TEXTS, {"ends": [1, 2]})
    total, count = torch.zeros(2, 3), 0
    for group in TEXTS.groups:
        for text, pattern in zip(group, bench.patterns_of(model, group).unbind(1), strict=True):
            for query in range(1, len(text) - 1):
                total += pattern[:, :, query, 0] + pattern[:, :, query, -1]
                count += 1
    np.testing.assert_allclose(atlas["ends"], (total / count).numpy(), atol=1e-6)
    even = bench.even_attention(TEXTS, {"ends": [1, 2]}, causal=False)
    assert even["entropy"] == pytest.approx(1.0)
    assert even["ends"] == pytest.approx((9 * 2 / 5 + 2 * 2 / 4) / 11)


def test_what_is_carried_is_what_the_head_writes(model: Encoder) -> None:
    ratio, share = bench.carried(model, TEXTS, [1])
    at, other, parts, count = 0.0, 0.0, 0.0, 0
    for group in TEXTS.groups:
        with capture(model, "blocks.1.attention.values", "blocks.1.attention.pattern") as seen:
            model(group)
        out = model.blocks[1].attention.output.weight[:, 4:8]
        lengths = (seen["blocks.1.attention.values"][:, 1] @ out.T).norm(dim=-1)
        weighted = seen["blocks.1.attention.pattern"][:, 1] * lengths[:, None]
        at, other = at + float(lengths[:, 0].sum()), other + float(lengths[:, 1:-1].sum())
        parts += float((weighted[..., 0] / weighted.sum(-1))[:, 1:-1].sum())
        count += lengths[:, 1:-1].numel()
    assert ratio[1, 1] == pytest.approx((at / 4) / (other / count), rel=1e-5)
    assert share[1, 1] == pytest.approx(parts / count, rel=1e-5)


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_taking_heads_away_one_by_one_is_ablation(model: Encoder, how: bench.How) -> None:
    tokens = TEXTS.groups[1]
    found = bench.vectors_without_heads(model, tokens, how)
    batch = Batch(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))
    gone = [Component("blocks.1.attention.mixed", 2)]
    with ablated(model, gone, how, reference=batch):
        expected = bench.sentence_vectors(model, bench.texts_of(tokens.tolist()))
    torch.testing.assert_close(found[1, 2], expected)
    with pytest.raises(ValueError, match="zero, mean or resample"):
        bench.vectors_without_heads(model, tokens, "even")


def test_a_skipped_block_hands_on_what_enters_it(model: Encoder) -> None:
    tokens = TEXTS.groups[1]
    with bench.skipped(model, 0):
        states = bench.stream_of(model, tokens)
    torch.testing.assert_close(states[0], states[1])
    assert not torch.equal(states[1], states[2])


def test_words_stay_with_their_texts(model: Encoder) -> None:
    words = bench.read_words(model, TEXTS)
    assert words.tokens.tolist() == [9, 5, 5, 6, 7, 8, 8, 3, 4, 4, 5]
    assert words.texts.tolist() == [1, 1, 0, 0, 0, 2, 2, 2, 3, 3, 3]
    assert words.places.tolist() == [1, 2, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    vectors = bench.sentence_vectors(model, TEXTS)
    own = model(torch.tensor([[1, 9, 5, 2]]))[0].mean(0)
    torch.testing.assert_close(vectors[1], own / own.norm())


def test_texts_need_tokens() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        bench.texts_of([[1], []])
