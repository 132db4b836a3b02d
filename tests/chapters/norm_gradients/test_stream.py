"""Gradients on their way down the stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.chapters.norm_gradients.measure import (
    gradient_cosines,
    share_closed,
    spread,
)
from measured_transformer.models.config import Config
from measured_transformer.models.token_positions import find_positions
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator

TASK = Reversal(vocab=5, length=5)


MODEL = make_model(Config(vocab=5, d_model=8, n_layers=1, n_heads=1), causal=False, seed=0)


def test_cosines_against_gradients_taken_by_hand():
    config = Config(vocab=5, d_model=16, n_layers=2, n_heads=2)
    model = make_model(config, causal=False, seed=0)
    batch = TASK.batch(make_generator(0, "test"), 8)
    found = gradient_cosines(model, batch)
    entering = model.embed(batch.inputs, find_positions(batch.inputs))[0].detach()
    states = []
    x = entering.requires_grad_()
    states.append(x)
    for block in model.blocks:
        x = block(x)
        x.retain_grad()
        states.append(x)
    cross_entropy(model.unembed(x), batch.targets, batch.scored).backward()
    last = states[-1].grad.flatten()
    expected = [float(torch.cosine_similarity(s.grad.flatten(), last, dim=0)) for s in states]
    assert found == pytest.approx(expected, abs=1e-4)
    assert found[-1] == pytest.approx(1)


def test_the_spread_is_a_ratio_and_wants_gradients():
    assert spread(np.array([[1.0, 4.0], [3.0, 3.0]])) == pytest.approx([4, 1])
    with pytest.raises(ValueError, match="every block"):
        spread(np.array([0.0, 1.0]))


def test_the_share_of_a_gap():
    slow, fast = np.log([400.0, 200.0]), np.log([200.0, 100.0])
    assert share_closed(slow, slow, fast) == pytest.approx([0, 0])
    assert share_closed(slow, fast, fast) == pytest.approx([1, 1])
    assert share_closed(slow, (slow + fast) / 2, fast) == pytest.approx([0.5, 0.5])
    with pytest.raises(ValueError, match="slower on average"):
        share_closed(fast, slow, slow)
