"""What the chapter on schedules measures, against what is known by other ways."""

import math

import numpy as np
import pytest
import torch
import xarray
from measured_book.evidence.results import load_results
from measured_book.rooms.schedules import measure, reading
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Noam,
)

RESULTS = load_results("schedules")
RNG = np.random.default_rng(0)


def test_no_tuned_peak_stands_at_the_edge_of_its_grid():
    for found, grid in (
        (RESULTS["text"]["rate"], measure.TEXT_RATES),
        (RESULTS["lengths"]["rate"], measure.TEXT_RATES),
        (RESULTS["repeated"]["rate"], measure.RATES),
    ):
        assert grid[0] < float(found.min()) <= float(found.max()) < grid[-1]
    for _, rate in measure.CHOSEN.values():
        assert measure.RATES[0] < rate < measure.RATES[-1]


def test_the_sum_of_an_exponential_decay_is_that_of_its_series():
    for tau in (5.0, 50.0):
        found = measure.summed_rate(ExponentialDecay.lasting(tau), 0.01, 2000)
        assert found == pytest.approx(0.01 / (1 - math.exp(-1 / tau)))
    assert measure.summed_rate(Constant(), 0.01, 30) == pytest.approx(0.3)
    assert reading.total(schedule="root") == pytest.approx(
        sum(1e-3 * InverseSquareRoot(100)(step) for step in range(1000))
    )


def test_no_step_of_adam_is_longer_than_the_page_says():
    beta1, beta2 = 0.9, 0.98
    longest = 0.0
    for count in range(1, 600):  # the most by Cauchy and Schwarz, with both corrections
        back = np.arange(count)
        first = (1 - beta1) * beta1**back / (1 - beta1**count)
        second = (1 - beta2) * beta2**back / (1 - beta2**count)
        longest = max(longest, float(np.sqrt((first**2 / second).sum())))
    assert round(longest, 2) == 1.70


def test_noam_lies_on_the_formula_and_a_longer_warmup_does_not():
    assert max(measure.noam_deviations(64, 50, 400)) < 1e-12
    off = measure.noam_deviations(64, 50, 400, longer=1)
    assert off[1] == pytest.approx(1 - math.sqrt(50 / 51), rel=1e-6)
    assert off[0] >= off[1] * 0.5
    assert [f"{Noam(512, w).peak:.5f}" for w in (4000, 8000)] == ["0.00070", "0.00049"]
    with pytest.raises(ValueError, match="past the warm-up"):
        measure.noam_deviations(64, 50, 50, longer=1)


def test_walkers_in_the_valley_go_where_the_page_says():
    fast, slow, cooled = (measure.valley_path(walker) for walker in ("fast", "slow", "cooled"))
    assert fast[1:5, 1].tolist() == [1, -1, 1, -1]
    assert fast[20].tolist() == pytest.approx([2.0, -1.0])
    assert cooled[20:, 1].round(2).tolist() == [-1, 0, -0.25, -0.09, -0.15]
    assert round(cooled[-1, 0], 2) == 2.09
    assert abs(slow[-1, 1]) == pytest.approx(0.1 / 1.9, rel=0.1)
    # ten times as far below the start, nearly
    heights = [reading.stands(walker=one, step=24) for one in ("cooled", "slow")]
    assert 8 < heights[0] / heights[1] < 10
    heights = measure.valley_height(np.ones(2), np.array([0.3, 0.3 + 1e-6]))
    assert np.diff(heights)[0] / 1e-6 == pytest.approx(0.3, abs=1e-5)


def test_a_schedule_of_half_the_length_shares_its_plateau():
    long, short = (measure.text_schedule("cooldown", n) for n in (480, 240))
    constant = measure.text_schedule("constant")
    assert [short(s) for s in range(193)] == [constant(s) for s in range(193)]
    assert [long(s) for s in range(385)] == [constant(s) for s in range(385)]
    assert long(480) == short(240) == 0
    with pytest.raises(ValueError, match="no schedule 'hope'"):
        measure.text_schedule("hope")


def test_a_run_of_a_cooldown_is_the_constant_run_until_it_branches():
    settings = {"steps": 8, "learning_rate": 0.01, "seed": 3, "batch_size": 2}
    runs = [
        train(measure.SPEAKER, measure.TEXT, schedule=measure.text_schedule(kind, 20), **settings)
        for kind in ("constant", "cooldown")
    ]
    assert runs[0].losses.tolist() == runs[1].losses.tolist()


def test_the_annealing_area_is_the_double_sum():
    rates = RNG.random(12)
    found = measure.annealing_area(rates, 0.7, warmup=3)
    for t in range(12):
        double = sum(
            (rates[k - 1] - rates[k]) * 0.7 ** (i - k)
            for i in range(t + 1)
            for k in range(3, i + 1)
        )
        assert found[t] == pytest.approx(double)


def test_a_law_is_found_again_in_losses_that_follow_it():
    at = list(range(10, 101, 5))
    falling, flat = np.linspace(0.01, 0.0, 100), np.full(100, 0.01)
    power = measure.POWERS[40]
    truth = measure.Law(1.0, 0.2, 3.0, power, 0.95, 0.0)
    curves = [(rates, at, truth(rates, 0)[np.array(at) - 1]) for rates in (flat, falling)]
    found = measure.fit_law(curves, warmup=0)
    assert (found.kept, found.power) == (0.95, power)
    assert (found.floor, found.scale, found.gain) == pytest.approx((1.0, 0.2, 3.0), rel=1e-3)
    alone = measure.fit_law(curves, warmup=0, annealing=False)
    assert alone.gain == 0
    assert alone.error > 100 * max(found.error, 1e-12)


def test_loss_at_the_weights_of_a_model_is_its_loss():
    model = make_model(measure.SPEAKER, causal=True, seed=4).eval()
    batch = measure._looked_on(0)
    score = evaluate(model, measure.TEXT, seed=0, size=measure.LOOKED_ON)
    assert measure.loss_at(measure.weights_of(model), batch) == pytest.approx(score.loss, rel=1e-5)
    with pytest.raises(ValueError, match=r"expected \d+ weights"):
        measure.loss_at(torch.zeros(3), batch)


def test_gaps_are_read_where_training_losses_are_equal():
    training = np.array([2.0, 1.0, 0.5, 0.8])
    assert measure.at_equal_training_loss(training, training + 0.3, 0.75) == pytest.approx(0.3)
    assert measure.at_equal_training_loss(training, 2 * training, 0.75) == pytest.approx(0.75)
    assert measure.at_equal_training_loss(training, 2 * training, 0.5) == pytest.approx(0.5)
    for level in (2.5, 0.4):
        with pytest.raises(ValueError, match="falls past"):
            measure.at_equal_training_loss(training, training, level)


def test_the_final_runs_what_the_race_has_chosen_on_other_seeds():
    race = RESULTS["race"]
    for schedule, setting in measure.CHOSEN.items():
        shape, rate = setting
        shapes = [name for name in measure.SHAPES if name.partition(",")[0] == schedule]
        others = race.loss.sel(shape=shapes).mean("seed")
        assert float(others.sel(shape=shape, rate=rate)) == float(others.min())
    assert set(measure.CHOSEN) == set(measure.SCHEDULES)
    raced = {job.seed for seed in race.seed.values for job in measure.race.jobs(int(seed)).values()}
    last = {
        job.seed
        for seed in RESULTS["final"].seed.values
        for job in measure.final.jobs(int(seed)).values()
    }
    assert not raced & last


def test_sums_tell_failures_where_they_decide():
    sums = reading.sums_of()
    assert sums.shape == (len(measure.SHAPES), len(measure.RATES))
    assert np.allclose(sums[0], measure.STEPS * np.array(measure.RATES))
    loss = np.where(sums < np.median(sums), 2.0, 0.1)[None]
    axes = {"seed": [0], "shape": list(measure.SHAPES), "rate": list(measure.RATES)}
    race = xarray.Dataset({"loss": xarray.DataArray(loss, dims=tuple(axes), coords=axes)})
    assert reading.told_by_the_sum(race, measure.RATES) == [1.0]
    race["loss"].loc[{"shape": "constant", "rate": 3.2e-2}] = 2.0
    assert reading.told_by_the_sum(race, measure.RATES)[0] < 1
    assert reading.too_high(race) == [3.2e-2]
