"""Probes and changes to trained models, against models whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.analysis.positions import (
    captured,
    class_probe_accuracy,
    equivariance_error,
    position_r2_by_layer,
    position_scores,
    position_vectors,
    probe_r2,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
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


def test_position_is_read_by_layer_where_it_is() -> None:
    task = Reversal(vocab=8, length=6)
    with_positions = position_r2_by_layer(make_model(TINY, causal=False, seed=0), task, seed=0)
    without = position_r2_by_layer(
        make_model(TINY.replace(positions="none"), causal=False, seed=0), task, seed=0
    )
    assert with_positions.shape == (3,)
    assert with_positions[0] > 0.9
    assert (np.abs(without) < 0.1).all()


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
