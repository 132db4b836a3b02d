"""What the chapter on warm-up measures, against what is known by other ways."""

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.warm_up import measure, reading
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import train

RESULTS = load_results("warm_up")
TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=2, n_heads=2)


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


def test_shares_lie_within_their_bounds():
    solved, spikes = RESULTS["remedies"].solved, RESULTS["spikes"]
    for arm in measure.ARMS:
        low, high = reading.share_learned(RESULTS["remedies"], arm=arm)
        assert low <= solved.sel(arm=arm, rate=measure.SAME_RATE).mean() <= high
    for signal in spikes.signal.values.tolist():
        assert 0 <= reading.warned(spikes, signal=signal) <= 1


def test_cures_are_compared_with_runs_of_the_same_seeds():
    bare, clipped = measure.spikes_trainings(10)["high"], measure.cures_trainings(10)["clipped"]
    assert bare.seed == clipped.seed
    assert bare.settings["learning_rate"] == clipped.settings["learning_rate"]
    assert bare.config == clipped.config


def test_an_alarm_stays_within_its_budget_on_other_runs():
    spikes = RESULTS["spikes"]
    for signal in spikes.signal.values:
        chosen = {"threshold": reading.thresholds(spikes, signal)}
        here = spikes.sel(signal=signal)
        false = 1000 * float(here.false_alarms.isel(chosen).sum()) / float(spikes.calm.sum())
        assert false < 2 * reading.BUDGET  # chosen on the others, so nearly
        assert (here.warned.isel(chosen) <= spikes.spikes).sel(run="high").all()


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
