"""Probes and changes to trained models, against models whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.analysis.positions import (
    captured,
    changed_positions,
    class_probe_accuracy,
    equivariance_error,
    explained_by_position,
    loss_without_places,
    position_r2_by_layer,
    position_scores,
    position_vectors,
    probe_r2,
    score_map,
    task_loss,
    untrained,
)
from measured_transformer.analysis.sinusoids import explained_by_offset
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train
from torch import nn

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


class _Cumulative(nn.Module):
    """Adds up what came before when causal, and everything when not."""

    def forward(self, x: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
        return x.cumsum(1) if causal else x.sum(1, keepdim=True).expand_as(x)


def test_equivariance_error_is_zero_for_a_sum_and_not_for_a_running_sum() -> None:
    x = torch.tensor([[[1.0], [2.0], [4.0]]])
    order = torch.tensor([2, 1, 0])
    assert equivariance_error(_Cumulative(), x, order) == 0
    # 4, 6, 7 against 7, 3, 1
    assert equivariance_error(_Cumulative(), x, order, causal=True) == 6


def test_explained_by_position_of_hand_made_patterns() -> None:
    n = 4
    fixed = torch.eye(n).flip(1).expand(6, n, n)  # the same for all inputs
    flat = torch.full((6, n, n), 1 / n)  # nothing to explain
    content = torch.stack([torch.eye(n)[torch.full((n,), b % n)] for b in range(4)] + [flat[0]] * 2)
    pattern = torch.stack((fixed, flat, content), dim=1)
    shares = explained_by_position(pattern)
    assert shares[0] == pytest.approx(1)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0, abs=1e-6)  # every key is as often the one
    causal = torch.tril(torch.ones(n, n))
    causal = (causal / causal.sum(1, keepdim=True)).expand(2, 1, n, n)
    assert explained_by_position(causal, causal=True)[0] == 0


def test_the_probe_finds_what_is_there_and_nothing_else() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200, 10, 6, generator=generator)
    places = torch.arange(10.0)[None, :, None].expand(200, 10, 1)
    assert probe_r2(torch.cat((noise, places), dim=-1)) > 0.99
    assert probe_r2(noise) < 0.02
    assert probe_r2(torch.cat((noise, places), dim=-1), shuffle_seed=0) < 0.02
    with pytest.raises(ValueError, match="sequences"):
        probe_r2(noise[:1])


def test_the_probe_of_half_signal_half_noise_has_the_textbook_r2() -> None:
    generator = torch.Generator().manual_seed(1)
    places = torch.arange(20.0).expand(2000, 20)
    spread = np.arange(20).std()
    noisy = places + spread * torch.randn(2000, 20, generator=generator)
    assert probe_r2(noisy[..., None]) == pytest.approx(0.5, abs=0.03)


def test_the_class_probe_answers_positions_it_has_not_seen() -> None:
    classes = np.arange(60) // 20
    columns = np.eye(3)[classes]
    assert class_probe_accuracy(columns, classes, seed=0) == 1
    names = np.eye(60)  # a column a position: nothing carries over to others
    assert class_probe_accuracy(names, classes, seed=0) < 0.6


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_changed_positions_replace_what_is_added(scheme: str) -> None:
    model = make_model(TINY.replace(positions=scheme), causal=False, seed=0)
    bare = make_model(TINY.replace(positions="none"), causal=False, seed=0)
    bare.load_state_dict(
        {k: v for k, v in model.state_dict().items() if not k.startswith("positions")}
    )
    tokens = torch.randint(8, (2, 7), generator=torch.Generator().manual_seed(0))
    with changed_positions(model, torch.zeros(7, 16)), torch.no_grad():
        torch.testing.assert_close(model(tokens), bare(tokens), atol=1e-5, rtol=1e-5)
    assert position_vectors(bare, 7).abs().max() == 0


def test_task_loss_and_captured_use_the_evaluation_stream() -> None:
    task = Reversal(vocab=8, length=6)
    model = make_model(TINY, causal=False, seed=0)
    assert task_loss(model, task, seed=3) == pytest.approx(
        evaluate(model, task, seed=3, size=256).loss
    )
    seen = captured(model, task, "embedding", seed=3, size=5)
    assert seen["embedding"].shape == (5, 6, 16)


def test_position_is_read_by_layer_where_it_is() -> None:
    task = Reversal(vocab=8, length=6)
    with_positions = position_r2_by_layer(make_model(TINY, causal=False, seed=0), task, seed=0)
    without = position_r2_by_layer(
        make_model(TINY.replace(positions="none"), causal=False, seed=0), task, seed=0
    )
    assert with_positions.shape == (3,)
    assert with_positions[0] > 0.9
    assert (np.abs(without) < 0.1).all()


def test_taking_out_places_matters_only_to_models_that_have_them() -> None:
    task = Reversal(vocab=8, length=6)
    without = make_model(TINY.replace(positions="none"), causal=False, seed=0)
    plain = task_loss(without, task, seed=0)
    losses = loss_without_places(without, task, seed=0)
    assert len(losses) == 3
    assert losses == pytest.approx([plain] * 3, abs=0.05)
    trained = train(TINY, task, steps=150, learning_rate=1e-2, seed=0, batch_size=32).model
    assert loss_without_places(trained, task, seed=0)[0] > task_loss(trained, task, seed=0) + 0.5


def test_position_scores_are_those_of_a_model_with_silent_tokens() -> None:
    model = make_model(TINY.replace(norm="none"), causal=False, seed=0)
    with torch.no_grad():
        model.token_embedding.weight.zero_()
        model.blocks[0].attention_norm = nn.Identity()
        model.blocks[0].attention_norm.weight = torch.ones(16)
        vectors = position_vectors(model, 6)
        model.positions.table = vectors - vectors.mean(-1, keepdim=True)
    seen = captured(model, Reversal(vocab=8, length=6), "blocks.0.attention.scores", seed=0, size=1)
    torch.testing.assert_close(position_scores(model, 6), seen["blocks.0.attention.scores"][0])


def test_score_maps_show_each_scheme_for_what_it_is() -> None:
    one = Config(vocab=2, d_model=16, n_heads=1, n_layers=1, max_length=20)
    none = score_map(one.replace(positions="none"), 20)
    assert (none - none[0, 0]).abs().max() < 1e-5
    for scheme, relative in (("rotary", True), ("alibi", True), ("learned", False)):
        share = explained_by_offset(score_map(one.replace(positions=scheme), 20).double())
        assert (share > 0.999) == relative, scheme


def test_untrained_is_the_same_config_with_other_weights() -> None:
    model = train(TINY, Reversal(vocab=8, length=6), steps=2, learning_rate=1e-2, seed=5).model
    fresh = untrained(model, seed=5)
    assert fresh.config == model.config
    reference = make_model(TINY, causal=False, seed=5)
    for (name, a), (_, b) in zip(
        fresh.named_parameters(), reference.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert not torch.equal(fresh.unembedding.weight, model.unembedding.weight)
