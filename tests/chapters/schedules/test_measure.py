"""Schedules are compared by what was tried: trials are counted, budgets summed, gaps read at equal loss."""

import math

import numpy as np
import pytest
from measured_transformer.chapters.schedules import measure as analysis
from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, train
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Noam,
    WarmupStableDecay,
)

RNG = np.random.default_rng(0)


def trial(losses: tuple[float, ...]) -> analysis.Trial:
    return analysis.Trial("constant", Constant(), 0.01, losses, 1.0)


def test_every_contender_gets_the_same_number_of_trials():
    grid = (0.001, 0.004, 0.016)
    counts = {
        name: len(shapes) * (len(analysis.spread(grid, 6)) if name == "constant" else 3)
        for name, shapes in analysis.contenders(200).items()
    }
    assert set(counts.values()) == {6}


def test_names_of_shapes_say_their_constants():
    shapes = {
        name: made
        for group in analysis.contenders(200).values()
        for name, made in group.items()
        if "-" in name
    }
    for name, made in shapes.items():
        number = float(name.partition("-")[2])
        told = {
            InverseSquareRoot: lambda s: s.warmup,
            ExponentialDecay: lambda s: s.time_constant,
            WarmupStableDecay: lambda s: s.decay,
        }[type(made)](made)
        assert told == pytest.approx(number)
    with pytest.raises(ValueError, match="20 steps"):
        analysis.contenders(19)


def test_bystanders_end_with_the_training():
    made = {name: next(iter(of.values())) for name, of in analysis.bystanders(300).items()}
    assert made["cosine"](300) == pytest.approx(0)
    assert made["straight line"](300) == pytest.approx(0)
    assert [made["stairs"](step) for step in (0, 99, 100, 200, 299)] == pytest.approx(
        [1, 1, 0.3, 0.09, 0.09]
    )
    assert made["warm-up alone"](299) == 1


def test_spread_rates_keep_the_span_and_are_even_in_the_logarithm():
    rates = analysis.spread((0.001, 0.002, 0.016), 5)
    assert (rates[0], rates[-1]) == (0.001, 0.016)
    assert np.allclose(np.diff(np.log(rates)), math.log(2), atol=2e-3)
    for bad in ((0.1,), (0.1, 0.2)):
        with pytest.raises(ValueError, match="at least two rates"):
            analysis.spread(bad, 1)


def test_the_sum_of_an_exponential_decay_is_that_of_its_series():
    for tau in (5.0, 50.0):
        assert analysis.summed_rate(ExponentialDecay.lasting(tau), 0.01, 2000) == pytest.approx(
            0.01 / (1 - math.exp(-1 / tau))
        )
    assert analysis.summed_rate(Constant(), 0.01, 30) == pytest.approx(0.3)


def test_trials_are_what_training_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no book around: nothing is stored
    task, config = Reversal(vocab=4, length=4), Config(vocab=4, d_model=8, n_layers=1, n_heads=2)
    shapes, profile = {"root-2": InverseSquareRoot(2), "constant": Constant()}, Profile()
    found = analysis.tune_shapes(
        "test", shapes, config, task, rates=(0.01, 0.03), steps=3, profile=profile, batch_size=4
    )
    assert [(t.shape, t.rate) for t in found] == [
        (name, rate) for name in shapes for rate in (0.01, 0.03)
    ]
    seeds = profile.seeds(quick=2, stream="tuning")
    alone = [
        train(
            config,
            task,
            steps=3,
            learning_rate=0.03,
            seed=seed,
            schedule=InverseSquareRoot(2),
            batch_size=4,
        )
        for seed in seeds
    ]
    assert list(found[1].losses) == [evaluate(r.model, task, seed=r.seed).loss for r in alone]
    assert found[1].summed == pytest.approx(alone[0].rates.sum())


def test_the_best_trial_has_the_smallest_mean():
    spread, steady, gone = trial((0.1, 0.9)), trial((0.4, 0.4)), trial((0.0, math.inf))
    assert analysis.best([spread, gone, steady]) is steady
    for none in ([], [gone]):
        with pytest.raises(ValueError, match="finite loss"):
            analysis.best(none)


def test_separation_is_the_area_under_the_curve():
    scores = RNG.integers(0, 10, 60).astype(float)  # with ties
    failed = RNG.random(60) < 0.4
    pairs = [(low, high) for low in scores[failed] for high in scores[~failed]]
    share = np.mean([(low < high) + (low == high) / 2 for low, high in pairs])
    assert analysis.separation(scores, failed) == pytest.approx(share)
    assert analysis.separation(np.array([5.0, 1.0]), np.array([True, False])) == 0
    for all_alike in (np.ones(4, bool), np.zeros(4, bool)):
        with pytest.raises(ValueError, match="failures"):
            analysis.separation(np.arange(4.0), all_alike)


def test_a_running_mean_looks_back_only():
    values = RNG.normal(size=30)
    means = analysis.running_mean(values, 7)
    for step in range(30):
        assert means[step] == pytest.approx(values[max(0, step - 6) : step + 1].mean())
    with pytest.raises(ValueError, match="window"):
        analysis.running_mean(values, 0)


def test_gaps_are_read_where_training_losses_are_equal():
    training = np.array([2.0, 1.0, 0.5, 0.8])
    assert analysis.at_equal_training_loss(training, training + 0.3, 0.75) == pytest.approx(0.3)
    assert analysis.at_equal_training_loss(training, 2 * training, 0.75) == pytest.approx(0.75)
    assert analysis.at_equal_training_loss(training, 2 * training, 0.5) == pytest.approx(0.5)
    for level in (2.5, 0.4):
        with pytest.raises(ValueError, match="falls past"):
            analysis.at_equal_training_loss(training, training, level)


def test_noam_lies_on_the_formula_and_a_longer_warmup_does_not():
    assert max(analysis.noam_deviations(64, 50, 400)) < 1e-12
    off = analysis.noam_deviations(64, 50, 400, longer=1)
    assert off[1] == pytest.approx(1 - math.sqrt(50 / 51), rel=1e-6)
    assert off[0] >= off[1] * 0.5
    assert Noam(64, 50).peak == pytest.approx(64**-0.5 * 50**-0.5)
    with pytest.raises(ValueError, match="past the warm-up"):
        analysis.noam_deviations(64, 50, 50, longer=1)
