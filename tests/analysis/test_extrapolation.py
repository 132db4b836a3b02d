"""Longer sequences, against models whose answer is known and against counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_transformer.analysis.extrapolation import attention_window, excess_loss
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.training.seeding import make_generator

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_a_shift_changes_only_schemes_that_know_where_they_are(scheme: str) -> None:
    config = TINY.replace(positions=scheme, max_length=40)
    task = Lag(vocab=8, length=10)
    run = train(config, task, steps=5, learning_rate=1e-2, seed=3)
    here = excess_loss(run.model, task, seed=0, length=10)
    there = excess_loss(run.model, task, seed=0, length=10, shift=20)
    moved = np.nanmax(np.abs(here - there))
    assert (moved > 1e-3) == (scheme in ("sinusoidal", "learned"))


def test_excess_loss_is_evaluation_minus_the_ideal() -> None:
    task = Lag(vocab=8, length=10)
    model = make_model(TINY, causal=True, seed=0)
    score = evaluate(model, task, seed=4, size=64)
    excess = excess_loss(model, task, seed=4, length=10)
    assert np.isnan(excess[:2]).all()
    batch = task.batch(make_generator(4, "evaluation"), 64)
    wanted = score.loss_by_position - task.ideal_loss(batch).numpy()
    np.testing.assert_allclose(excess[2:], wanted[2:], atol=1e-5)


def test_the_attention_window_cuts_off_exactly_beyond_its_width() -> None:
    model = make_model(TINY.replace(n_layers=1), causal=True, seed=0)
    tokens = torch.randint(8, (1, 9), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 8
    with attention_window(model, 4), torch.no_grad():
        before, after = model(tokens), model(changed)
    same = torch.isclose(before, after).all(-1)[0].tolist()
    assert same == [False] * 4 + [True] * 5
    with attention_window(model, 4), capture(model, "*.pattern") as seen:
        model(tokens)
    pattern = seen["blocks.0.attention.pattern"]
    torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 2, 9))
    with attention_window(model, None), torch.no_grad():
        torch.testing.assert_close(
            model(tokens), make_model(TINY.replace(n_layers=1), causal=True, seed=0)(tokens)
        )


def test_excess_loss_of_induction_is_the_loss_where_the_rule_is_certain() -> None:
    task = Induction(vocab=8, length=12, shortest=3, longest=6)
    model = make_model(TINY, causal=True, seed=0)
    excess = excess_loss(model, task, seed=4, length=12)
    wanted = evaluate(model, task, seed=4, size=64).loss_by_position
    assert np.isnan(excess[:3]).all()
    np.testing.assert_allclose(excess[6:], wanted[6:], atol=1e-5)
