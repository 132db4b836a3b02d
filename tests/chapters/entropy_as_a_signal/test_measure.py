"""Stacked runs are those of the library's own training; areas are those of Mann and Whitney."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.chapters.entropy_as_a_signal.measure import (
    Setting,
    Watched,
    area,
    distance_from_typical,
    drawn_settings,
    pattern_entropy,
    shuffled_areas,
    watch,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.initialisation import Scaled
from scipy.stats import mannwhitneyu

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=2, n_heads=2, d_ff=16)


def test_each_run_is_that_of_the_library_alone():
    settings = [Setting(0.01, 1.0, 5), Setting(0.01, 2.0, 5), Setting(0.002, 0.5, 5)]
    (found,) = watch(
        CONFIG, TASK, [settings], seeds=[5], steps=30, look_at=20, batch_size=4, look_back=3
    )
    for steps, losses in ((20, found.loss), (30, found.final)):
        for place, setting in enumerate(settings):
            run = train(
                CONFIG,
                TASK,
                steps=steps,
                learning_rate=setting.rate,
                seed=5,
                batch_size=4,
                prepare=Scaled(setting.scale),
            )
            test = TASK.batch(make_generator(5, "evaluation"), 64)
            with torch.no_grad():
                loss = cross_entropy(run.model(test.inputs), test.targets, test.scored)
            assert losses[place] == pytest.approx(float(loss), rel=1e-4)
            if steps == 20:
                seen = pattern_entropy(run.model, test.inputs)
                assert found.entropy[place] == pytest.approx(seen, abs=1e-4)
                lengths = np.log(run.gradient_norms[-3:]).mean()
                assert found.gradient[place] == pytest.approx(lengths, abs=1e-3)


def test_groups_have_their_own_batches_and_a_run_that_diverges_leaves_the_others_alone():
    quiet, wild = Setting(0.01, 1.0, 5), Setting(math.inf, 1.0, 5)
    how = {"steps": 6, "look_at": 4, "batch_size": 4, "look_back": 2}
    alone = watch(CONFIG, TASK, [[quiet]], seeds=[1], **how)[0]
    pair, other = watch(CONFIG, TASK, [[quiet, wild], [quiet]], seeds=[1, 2], **how)
    assert pair.final[0] == pytest.approx(alone.final[0], rel=1e-4)
    assert other.final[0] != pytest.approx(alone.final[0], rel=1e-4)
    assert pair.final[1] == math.inf
    assert pair.failed(TASK)[1]
    assert np.isfinite(pair.gradient).all()
    with pytest.raises(ValueError, match="a seed a group"):
        watch(CONFIG, TASK, [[quiet]], seeds=[1, 2], **how)
    with pytest.raises(ValueError, match="look_at"):
        watch(CONFIG, TASK, [[quiet]], seeds=[1], **how | {"look_at": 7})


def test_failing_is_ending_above_half_of_the_bag():
    half = TASK.bag_loss() / 2
    ends = np.array([half - 0.01, half + 0.01, math.inf, math.nan])
    nothing = np.zeros(4)
    seen = Watched((Setting(1.0, 1.0, 0),) * 4, nothing, nothing, nothing, nothing, ends)
    assert seen.failed(TASK).tolist() == [False, True, True, True]


def test_settings_are_drawn_evenly_in_logarithms_and_within_their_range():
    settings = drawn_settings(3, 400, rates=(1e-3, 1e-1), scales=(0.5, 2.0))
    assert settings == drawn_settings(3, 400, rates=(1e-3, 1e-1), scales=(0.5, 2.0))
    rates = np.log10([one.rate for one in settings])
    scales = np.log2([one.scale for one in settings])
    assert -3 <= rates.min() < -2.9 < -1.1 < rates.max() <= -1
    assert abs(rates.mean() + 2) < 0.1
    assert abs(scales.mean()) < 0.1
    assert len({one.seed for one in settings}) == 400
    assert not {one.seed for one in settings} & {one.seed for one in drawn_settings(4, 400)}
    with pytest.raises(ValueError, match="in order"):
        drawn_settings(0, 3, rates=(1e-1, 1e-3))


def test_entropy_is_one_where_attention_is_even_and_small_where_scores_are_huge():
    inputs = TASK.batch(torch.Generator().manual_seed(0), 8).inputs
    model = make_model(CONFIG, causal=False, seed=0)
    between = pattern_entropy(model, inputs)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.mul_(1000)
    assert pattern_entropy(model, inputs) < 0.1 < between < 1
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.zero_()
            block.attention.query.bias.zero_()
    assert pattern_entropy(model, inputs) == pytest.approx(1, abs=1e-6)


def test_areas_are_those_of_mann_and_whitney():
    rng = np.random.default_rng(0)
    for scores in (rng.normal(size=30), rng.integers(0, 4, size=30).astype(float)):
        failed = rng.random(30) < 0.4
        u = mannwhitneyu(scores[failed], scores[~failed]).statistic
        assert area(scores, failed) == pytest.approx(u / (failed.sum() * (~failed).sum()))
        assert area(-scores, failed) == pytest.approx(1 - area(scores, failed))
    assert area(np.ones(3), np.array([True, True, True])) == 0.5


def test_distance_is_taken_from_the_good_runs_of_other_groups():
    groups = [np.array([0.0, 1.0]), np.array([0.5, 0.9]), np.array([0.7, 0.1])]
    failed = [np.array([True, True]), np.array([False, True]), np.array([False, True])]
    found = distance_from_typical(groups, failed)
    assert found[0] == pytest.approx([0.6, 0.4])
    assert found[1] == pytest.approx([0.2, 0.2])
    assert found[2] == pytest.approx([0.2, 0.4])
    with pytest.raises(ValueError, match="did not fail"):
        distance_from_typical(groups[:1], failed[:1])


def test_shuffled_labels_tell_nothing():
    rng = np.random.default_rng(1)
    scores = [rng.normal(size=12) for _ in range(6)]
    failed = [score > 0 for score in scores]
    assert np.mean([area(s, bad) for s, bad in zip(scores, failed, strict=True)]) == 1
    found = shuffled_areas(scores, failed, times=300, seed=0)
    assert found.shape == (300,)
    assert abs(found.mean() - 0.5) < 0.02
    assert found.max() < 0.85
