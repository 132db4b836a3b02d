"""Snapshots against trainings of that length, updates and shifts against known changes."""

import pytest
import torch
from measured_book.rooms.warm_up.measure import (
    prediction_shift,
    snapshots,
    update_norm,
)
from measured_transformer.analysis.sharpness import flat
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator

TASK = Reversal(vocab=3, length=2)
CONFIG = Config(vocab=3, d_model=2, n_layers=1, n_heads=1, d_ff=3, activation="gelu")
SETTINGS = {
    "learning_rate": 0.02,
    "seed": 1,
    "batch_size": 8,
    "clip": None,
    "schedule": Constant(3),
}


def equal(one, other):
    return all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_each_snapshot_is_a_training_of_that_length():
    for shot in snapshots(CONFIG, TASK, [0, 1, 4, 5], **SETTINGS):
        assert equal(shot.model, train(CONFIG, TASK, steps=shot.step, **SETTINGS).model)


def test_divisors_are_those_of_adam():
    beta, eps = 0.9, 1e-3
    found = snapshots(CONFIG, TASK, [0, 3], betas=(0.8, beta), eps=eps, **SETTINGS)
    assert found[0].divisors is None
    square = torch.zeros(())
    batches = make_generator(1, "training")
    for step in range(3):
        model = train(CONFIG, TASK, steps=step, betas=(0.8, beta), eps=eps, **SETTINGS).model
        batch = TASK.batch(batches, 8)
        loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
        gradient = flat(torch.autograd.grad(loss, list(model.parameters())))
        square = beta * square + (1 - beta) * gradient**2
    expected = (square / (1 - beta**3)).sqrt() + eps
    torch.testing.assert_close(flat(found[1].divisors), expected, rtol=1e-4, atol=1e-7)


def test_steps_must_rise():
    with pytest.raises(ValueError, match="must rise"):
        snapshots(CONFIG, TASK, [3, 1], **SETTINGS)


def test_update_norm_and_shift_of_known_changes():
    one, other = (make_model(CONFIG, causal=False, seed=2) for _ in range(2))
    batch = TASK.batch(make_generator(2, "evaluation"), 8)
    assert update_norm(one, other) == 0
    assert prediction_shift(one, other, batch) == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for weight in other.parameters():
            weight += 0.1
    count = sum(weight.numel() for weight in one.parameters())
    assert update_norm(one, other) == pytest.approx(0.1 * count**0.5, rel=1e-4)
    p, q = (torch.softmax(predict(m, batch), -1).double() for m in (one, other))
    expected = (p * (p / q).log()).sum(-1).mean()
    assert prediction_shift(one, other, batch) == pytest.approx(float(expected), rel=1e-4)
    assert prediction_shift(one, other, batch) > 0
