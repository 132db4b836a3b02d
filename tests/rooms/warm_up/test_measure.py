"""What the chapter on warm-up measures, against what is known by other ways."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.warm_up import measure, reading
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import train

RESULTS = load_results("warm_up")
TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=2, n_heads=2)


def test_every_result_is_of_this_code():
    for one in measurements_of("warm_up").values():
        assert standing(one).state in HOLDS, standing(one).why


@pytest.mark.parametrize("trainings", [measure.tuned_trainings, measure.text_trainings])
def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid(trainings):
    for job in trainings(0).values():
        rate = job.settings["learning_rate"]
        assert measure.TUNED_RATES[0] < rate < measure.TUNED_RATES[-1]


def test_a_late_warm_up_begins_at_the_full_rate():
    factors = [measure.LateWarmup(2, 4)(step) for step in range(7)]
    assert factors == [1, 1, 0.25, 0.5, 0.75, 1, 1]
    with pytest.raises(ValueError, match="negative"):
        measure.LateWarmup(-1, 4)


def test_arms_change_what_they_say():
    for arm in measure.ARMS:
        placement, changed = measure.remedy(arm)
        assert placement == ("pre" if arm == "pre-norm" else "post")
        assert bool(changed) is (arm not in ("at once", "pre-norm"))
    with pytest.raises(ValueError, match="arm must be one of"):
        measure.remedy("hope")


def test_the_best_rate_is_chosen_on_other_seeds():
    remedies = RESULTS["remedies"]
    rates = reading.best_for_others(remedies, "warm-up")
    seed = remedies.seed.values[0]
    others = np.log(remedies.steps.sel(arm="warm-up").drop_sel(seed=seed)).mean("seed")
    assert float(rates.sel(seed=seed)) == remedies.rate.values[int(others.argmin())]
    steps = reading.at_best(remedies, arm="warm-up", what="steps")
    expected = remedies.steps.sel(arm="warm-up", seed=seed, rate=float(rates.sel(seed=seed)))
    assert float(steps.sel(seed=seed)) == float(expected)


def test_counts_of_the_line_up_fit_one_another():
    remedies = RESULTS["remedies"]
    assert reading.per_cell(remedies) == remedies.sizes["seed"]
    for arm in measure.ARMS:
        here = reading.learned(remedies, arm=arm)
        everywhere = reading.learned_anywhere(remedies, arm=arm)
        assert 0 <= here <= everywhere == float(reading.rates_that_work(remedies, arm=arm).sum())
        low, high = reading.share_learned(remedies, arm=arm)
        assert low <= here / reading.per_cell(remedies) <= high


def test_a_warning_comes_one_to_ten_steps_ahead():
    spikes = RESULTS["spikes"]
    for signal in spikes.signal.values.tolist():
        assert 0 <= reading.warned(spikes, signal=signal) <= 1
        assert 1 <= reading.lead(spikes, signal=signal) <= 10
    assert reading.chance_warned() == pytest.approx(0.05, abs=0.002)


def test_cures_are_compared_with_runs_of_the_same_seeds():
    bare, clipped = measure.spikes_trainings(10)["high"], measure.cures_trainings(10)["clipped"]
    assert bare.seed == clipped.seed
    assert bare.settings["learning_rate"] == clipped.settings["learning_rate"]
    assert bare.config == clipped.config
    first = RESULTS["spikes"].spikes.sel(run="high", seed=RESULTS["cures"].seed)
    fewer = reading.fewer_spikes(RESULTS["spikes"], RESULTS["cures"], cure="QK-norm")
    cured = RESULTS["cures"].spikes.sel(cure="QK-norm")
    assert fewer.values.tolist() == [a - b for a, b in zip(first.values, cured.values, strict=True)]


def test_an_alarm_stays_within_its_budget_on_other_runs():
    spikes = RESULTS["spikes"]
    for signal in spikes.signal.values:
        found = reading.operating(spikes, signal)
        false = 1000 * float(found["false_alarms"].sum()) / float(spikes.calm.sum())
        assert false < 2 * reading.BUDGET  # chosen on the others, so nearly
        assert (found["warned"] <= spikes.spikes.sel(run="high")).all()


def test_snapshots_are_states_of_one_training():
    given = {"learning_rate": 0.01, "seed": 3, "batch_size": 4, "clip": None}
    shots = measure.snapshots(CONFIG, TASK, [0, 1, 3], **given)
    whole = train(CONFIG, TASK, steps=3, **given)
    assert shots[0].divisors is None
    assert shots[2].gradient_norms.tolist() == whole.gradient_norms.tolist()
    for found, expected in zip(shots[2].model.parameters(), whole.model.parameters(), strict=True):
        assert found.equal(expected)


def test_an_update_is_as_long_as_the_difference_and_shifts_nothing_when_there_is_none():
    given = {"learning_rate": 0.01, "seed": 3, "batch_size": 4, "clip": None}
    first, second = measure.snapshots(CONFIG, TASK, [0, 1], **given)
    batch = TASK.batch(measure.make_generator(0, "evaluation"), 8)
    size = sum(weight.numel() for weight in first.model.parameters())
    assert measure.update_norm(first.model, second.model) == pytest.approx(
        0.01 * size**0.5, rel=0.05
    )
    assert measure.prediction_shift(first.model, first.model, batch) == pytest.approx(0, abs=1e-6)
    assert measure.prediction_shift(first.model, second.model, batch) > 0
