"""The spread of logits."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.chapters.norm_placement.measure import logit_deviation
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator

TASK = Reversal(vocab=5, length=5)


MODEL = make_model(Config(vocab=5, d_model=8, n_layers=1, n_heads=1), causal=False, seed=0)


def test_the_spread_of_logits_is_around_each_positions_mean():
    model = make_model(Config(vocab=5, d_model=16, n_layers=1), causal=False, seed=0)
    batch = TASK.batch(make_generator(7, "evaluation"), 64)
    with torch.no_grad():
        logits = model(batch.inputs).double()
    expected = logits.var(dim=-1, correction=0).mean().sqrt()
    assert logit_deviation(model, TASK, seed=7) == pytest.approx(float(expected), rel=1e-5)
