"""Remedies change what they say and nothing else; spikes and areas against hand-made sequences."""

import numpy as np
import pytest
from measured_transformer.analysis.curves import area_under_curve
from measured_transformer.chapters.warm_up.measure import Held, followed, jumps, quiet_branches
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.training.schedules import Constant
from scipy import stats

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=2, n_heads=2)


def weights(model):
    return {name: weight.detach() for name, weight in model.named_parameters()}


def test_held_weights_do_not_move_and_then_move_at_the_full_rate():
    settings = {"learning_rate": 0.01, "seed": 3, "batch_size": 4}
    fresh = weights(make_model(CONFIG, causal=False, seed=3))
    for steps, schedule, moves in (
        (3, Held(3), False),
        (4, Held(3), True),
        (1, Held(0), True),
    ):
        run = train(CONFIG, TASK, steps=steps, schedule=schedule, **settings)
        found = weights(run.model)
        assert any(not found[name].equal(fresh[name]) for name in fresh) is moves
    assert [Held(2)(step) for step in range(4)] == [0, 0, 1, 1]


def test_averages_go_on_while_weights_are_held():
    settings = {"learning_rate": 0.01, "seed": 3, "batch_size": 4}
    held = weights(train(CONFIG, TASK, steps=4, schedule=Held(3), **settings).model)
    fresh = weights(make_model(CONFIG, causal=False, seed=3))
    first = weights(train(CONFIG, TASK, steps=1, schedule=Constant(), **settings).model)
    name = "blocks.0.feedforward.up.weight"
    step = (held[name] - fresh[name]).abs()
    assert (first[name] - fresh[name]).abs().median() == pytest.approx(0.01, rel=1e-3)
    assert step.median() < 0.009  # averaged over four gradients, not the sign of one


@pytest.mark.parametrize("steps", [-1, True])
def test_held_takes_whole_numbers_of_steps(steps):
    with pytest.raises(ValueError, match="whole number"):
        Held(steps)


def test_held_has_no_negative_steps():
    with pytest.raises(ValueError, match="counted from 0"):
        Held(1)(-1)


def test_quiet_branches_divides_what_writes_to_the_stream_and_nothing_else():
    model = make_model(CONFIG, causal=False, seed=1)
    before = {name: weight.clone() for name, weight in weights(model).items()}
    quiet_branches(model)
    writers = 0
    for name, weight in weights(model).items():
        writes = name.endswith(("attention.output.weight", "feedforward.down.weight"))
        writers += writes
        assert weight.equal(before[name] / 8 if writes else before[name])
    assert writers == 2 * CONFIG.n_layers


def test_a_jump_is_measured_from_the_median_before_it_alone():
    values = np.array([1.0, 5.0, 2.0, 9.0, 2.0])
    found = jumps(values, window=3)
    assert np.isnan(found[:3]).all()
    assert found[3:].tolist() == [9 - 2, 2 - 5]


def test_events_are_foretold_by_earlier_steps_only():
    events = np.zeros(8, dtype=bool)
    events[[3, 7]] = True
    assert np.flatnonzero(followed(events, within=2)).tolist() == [1, 2, 5, 6]


def test_area_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    scores, events = rng.integers(0, 5, 40).astype(float), rng.random(40) < 0.4
    pairs = [(a > b) + (a == b) / 2 for a in scores[events] for b in scores[~events]]
    assert area_under_curve(scores, events) == pytest.approx(np.mean(pairs))
    assert area_under_curve(stats.rankdata(scores), events) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("events", [np.ones(3, dtype=bool), np.zeros(3, dtype=bool)])
def test_an_area_needs_both_kinds(events):
    with pytest.raises(ValueError, match="both kinds"):
        area_under_curve(np.arange(3.0), events)
