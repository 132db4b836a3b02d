"""First losses in double precision: the same on all machines, another one for any change."""

import os

import numpy as np
import pytest
import torch
from measured_book.measuring import openings
from measured_book.measuring.jobs import job
from measured_book.measuring.openings import AGREES, double_opening, first_losses
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import seeding
from measured_transformer.training.loop import train

TASK = Reversal(vocab=5, length=5)
SMALL = Config(vocab=5, d_model=16, n_heads=2, n_layers=2)
DEEP = Config(vocab=5, d_model=32, n_heads=2, n_layers=12, norm="none", activation="relu")


def asked(config=SMALL, seed=0, **options):
    given = {"steps": 30, "learning_rate": 4e-3, "batch_size": 16, **options}
    return job(config, TASK, seed, **given)


def test_they_are_those_of_the_training_up_to_rounding() -> None:
    with openings._in_double():
        run = train(SMALL, TASK, seed=0, steps=10, learning_rate=4e-3, batch_size=16)
    np.testing.assert_allclose(double_opening(asked()), run.losses, rtol=1e-12)
    single = first_losses(asked(), 20)
    alone = train(SMALL, TASK, seed=0, steps=30, learning_rate=4e-3, batch_size=16)
    assert single == alone.losses[:20].tolist()


def test_no_trace_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEASURED_DEVICE", raising=False)
    before = torch.get_rng_state()
    double_opening(asked())
    assert torch.get_default_dtype() == torch.float32
    assert "MEASURED_DEVICE" not in os.environ
    assert torch.equal(torch.get_rng_state(), before)


def test_what_no_machine_agrees_in_is_not_kept() -> None:
    """Twelve blocks without norms: rounding grows ten-thousandfold a step."""
    kept = double_opening(asked(DEEP, learning_rate=5e-4))
    assert 1 <= len(kept) < 5
    assert len(double_opening(asked())) == openings.DOUBLE_STEPS


def test_a_short_training_has_no_more_than_its_steps() -> None:
    assert len(double_opening(asked(steps=3))) == 3


def far(a, b):
    """Whether two openings differ by more than machines may."""
    length = min(len(a), len(b))
    return bool((np.abs(np.subtract(a[:length], b[:length])) > AGREES * np.abs(a[:length])).any())


@pytest.mark.parametrize(
    "changed",
    [
        {"config": SMALL.replace(norm_eps=1e-6)},
        {"config": SMALL.replace(norm_eps=1.001e-5)},
        {"seed": 1},
        {"betas": (0.9, 0.981)},
        {"eps": 2e-8},
        {"learning_rate": 4.0001e-3},
        {"clip": 0.999},
        {"weight_decay": 1e-4},
        {"label_smoothing": 1e-6},
        {"batch_size": 17},
    ],
)
def test_a_small_change_shows(changed: dict) -> None:
    before = double_opening(asked())
    assert not far(before, first_losses(asked(), double=True))
    assert far(before, first_losses(asked(**changed), double=True))


def test_a_seed_off_by_one_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    before, kept = double_opening(asked()), seeding.derived_seed
    monkeypatch.setattr(seeding, "derived_seed", lambda seed, purpose: kept(seed, purpose) + 1)
    assert far(before, first_losses(asked(), double=True))
