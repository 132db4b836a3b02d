"""A raffle: nothing comes twice, tokens come as often as they have tickets, and the best guess is known."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.tasks.raffle import Raffle
from measured_transformer.training.seeding import make_generator
from torch.nn import functional as F


def test_no_token_comes_twice_and_each_answer_is_the_next() -> None:
    batch = Raffle(vocab=9, length=6).batch(make_generator(0, "evaluation"), 50)
    for row, answers in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        drawn = [*row, answers[-1]]
        assert len(set(drawn)) == 7
        assert answers == drawn[1:]
    assert batch.scored.all()


def test_tickets_decide_how_often_a_token_is_drawn_first() -> None:
    task = Raffle(vocab=4, length=1)
    first = task.batch(make_generator(1, "evaluation"), 20000).inputs[:, 0]
    shares = torch.bincount(first, minlength=4).double() / len(first)
    assert torch.allclose(shares, task.weights() / task.weights().sum(), atol=0.015)


def test_the_best_guess_leaves_out_what_is_gone_and_beats_every_other() -> None:
    task = Raffle(vocab=6, length=4)
    batch = task.batch(make_generator(2, "evaluation"), 4000)
    best = task.best_logits(batch)
    assert torch.isinf(best.gather(-1, batch.inputs[..., None])).all()
    flatter = 0.5 * best
    counts = task.weights().log().expand_as(best)
    losses = [
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).item()
        for logits in (best, flatter, counts)
    ]
    assert losses[0] < min(losses[1:])


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="more tokens than positions"):
        Raffle(vocab=4, length=4)
    with pytest.raises(ValueError, match="fewer positions"):
        Raffle(vocab=4, length=2).batch(make_generator(0, "evaluation"), 1, length=4)
