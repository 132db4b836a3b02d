"""Answers with their probabilities, and probabilities that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from measured_transformer.analysis.calibration import answers, reliability
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import held_out
from measured_transformer.training.loop import evaluate, train
from measured_transformer.training.seeding import make_generator

NOISY = NoisyTranslation(symbols=6, length=8, pad_share=0.3, noise=0.2)


def test_answers_agree_with_the_score_of_the_loop() -> None:
    task = FixedSet(NOISY, size=50)
    config = Config(vocab=NOISY.vocab, d_model=16, n_layers=1, n_heads=2)
    run = train(config, task, steps=60, learning_rate=1e-2, seed=0, batch_size=16)
    for part in ("validation", "test"):
        score = evaluate(run.model, task, seed=3, size=128, part=part)
        batch = held_out(task, part).batch(make_generator(3, "evaluation"), 128)
        told = answers(run.model, batch)
        assert told.loss == pytest.approx(score.loss, abs=1e-5)
        assert told.accuracy == pytest.approx(score.accuracy)
        assert told.exact == pytest.approx(score.exact)
    assert (told.confidences <= 1).all()
    assert (told.confidences >= 1 / NOISY.vocab).all()


def test_calibration_error_by_hand() -> None:
    found = reliability([0.95, 0.95, 0.55, 0.55, 1.0], [True, False, True, True, True])
    # (0.95 + 0.95 + 1) / 3 promised, 2 of 3 kept; 0.55 promised, all kept
    expected = 0.6 * abs(2 / 3 - 2.9 / 3) + 0.4 * 0.45
    assert found.error == pytest.approx(expected)
    assert found.share[[5, 9]] == pytest.approx([0.4, 0.6])
    assert np.isnan(found.accuracy[0])


def test_a_model_that_keeps_its_promises_has_no_calibration_error() -> None:
    generator = np.random.default_rng(0)
    promised = generator.uniform(0.2, 1, 200_000)
    kept = generator.uniform(size=promised.size) < promised
    assert reliability(promised, kept).error < 0.005
    assert reliability(promised, generator.uniform(size=promised.size) < promised - 0.1).error == (
        pytest.approx(0.1, abs=0.005)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5], [True, False]), "got shapes"),
        (([], []), "at least one answer"),
        (([1.5], [True]), "between 0 and 1"),
    ],
)
def test_answers_that_do_not_fit_are_refused(unhooked, arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reliability(*arguments)
