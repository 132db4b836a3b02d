"""Arms of a comparison differ in the way of their decay or in the rule for their depth, and in nothing else."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.ladder import LONG, RATES, SMALL, steps_for
from measured_book.rooms.decay_and_depth import figures, measure
from measured_book.rooms.decay_and_depth.measure import DEPTHS, RULES, STRENGTHS, WAYS
from measured_transformer.training.loop import make_model
from measured_transformer.variants.decay import IndependentDecay, room_for_decay

UNDECAYED, DECAYS, QUARTERED, DEEP = (
    load_result("decay_and_depth", name) for name in ("undecayed", "decays", "quartered", "depths")
)
OWN = ("optimiser", "weight_decay", "prepare", "after_step")


@pytest.fixture
def tuned(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: 0.032)


def test_ways_of_decay_differ_in_nothing_else(tuned):
    jobs = {way: measure.decayed(way, strengths[1], 3) for way, strengths in WAYS.items()}
    shared = [{k: v for k, v in job.settings.items() if k not in OWN} for job in jobs.values()]
    assert shared[0] == shared[1] == shared[2]
    assert len({(job.config, job.task) for job in jobs.values()}) == 1
    own = {way: [job.settings[name] for name in OWN] for way, job in jobs.items()}
    hook = IndependentDecay(WAYS["independent"][1], jobs["independent"].settings["schedule"])
    assert own == {
        "decoupled": ["AdamW", WAYS["decoupled"][1], None, None],
        "coupled": ["Adam", WAYS["coupled"][1], None, None],
        "independent": ["AdamW", 0.0, room_for_decay, hook],
    }


def test_each_window_comes_once(tuned):
    job = measure.decayed("coupled", 1e-4, 0)
    assert job.settings["steps"] == steps_for(SMALL, LONG)
    assert job.task.windows == job.settings["steps"] * job.settings["batch_size"]
    assert job.task.passes == 1


def test_strengths_of_the_ways_pull_alike_at_the_best_peak():
    for decoupled, coupled, independent in zip(*WAYS.values(), strict=True):
        assert independent == pytest.approx(0.032 * decoupled)
        assert coupled == pytest.approx(1e-3 * decoupled)


def test_a_quarter_of_the_peak_is_a_quarter_of_the_best(tuned):
    whole, quarter = (measure.decayed("decoupled", 0.3, 1, share=s) for s in (1.0, 0.25))
    assert quarter.settings["learning_rate"] == 0.25 * whole.settings["learning_rate"]
    peaks = DECAYS.rate.sel(strength="middle", way=QUARTERED.way)
    assert (QUARTERED.rate == 0.25 * peaks).all()


@pytest.mark.parametrize("depth", DEPTHS)
def test_weights_are_counted_and_each_sees_five_tokens(depth):
    model = make_model(measure.deep(depth), causal=True, seed=0)
    weights = sum(weight.numel() for weight in model.parameters())
    assert weights == measure.weights_at(depth)
    assert measure.steps_at(depth) * 16 * 64 / weights == pytest.approx(5, abs=0.02)


def test_rules_are_the_same_at_the_base_depth_and_differ_in_the_rule_alone():
    jobs = measure.depth_trainings(4)
    assert {(depth, rule) for rule, depth, _ in jobs if depth == 2} == {(2, "standard")}
    assert len(jobs) == (1 + 2 * len(RULES)) * len(RATES)
    rest = [
        {k: v for k, v in jobs[rule, 8, RATES[0]].settings.items() if k not in ("prepare", "eps")}
        for rule in RULES
    ]
    assert rest[0] == rest[1] == rest[2]
    assert [jobs[rule, 8, RATES[0]].settings["eps"] for rule in RULES] == [1e-8, 2.5e-9, 2.5e-9]
    assert (DEEP.loss.sel(depth=2, rule="root") == DEEP.loss.sel(depth=2, rule="standard")).all()


def test_the_best_rate_lies_where_a_parabola_has_its_lowest_point():
    rates = [2.0**k for k in range(-8, -2)]
    for lowest in (-6.7, -5.0, -4.2):
        losses = [1 + 0.3 * (math.log2(rate) - lowest) ** 2 for rate in rates]
        assert measure.lowest(rates, losses) == pytest.approx(lowest)
    assert measure.lowest(rates, [5, 4, 3, 2, 1, 0]) == -3
    assert measure.lowest(rates, [0, 1, 2, 3, 4, 5]) == -8


def test_moves_are_slopes_of_the_best_rates():
    for seed in DEEP.seed:
        for rule in RULES:
            best = DEEP.best.sel(seed=seed, rule=rule).values
            assert float(DEEP.move.sel(seed=seed, rule=rule)) == pytest.approx(
                (best[2] - best[0]) / 2
            )


def test_a_run_that_diverged_counts_as_a_guess():
    class Diverged:
        diverged = True

    assert measure.held_out(Diverged(), 0) == pytest.approx(math.log(256))


def test_figures_show_each_seed():
    left, right = figures.plot_decays(UNDECAYED, DECAYS, QUARTERED).figure.axes
    assert len(left.lines) == len(WAYS) * (DECAYS.sizes["seed"] + 1)
    assert [label.get_text() for label in left.get_xticklabels()] == ["none", *STRENGTHS]
    assert len(right.get_yticklabels()) == 2
    for panel in figures.plot_depths(DEEP).figure.axes:
        assert len(panel.lines) == len(DEPTHS) * (DEEP.sizes["seed"] + 2)


def test_losses_are_those_of_models_that_learned():
    for values in (UNDECAYED.loss, DECAYS.loss):
        assert np.isfinite(values).all()
        assert float(values.max()) < math.log(256)
    assert torch.isfinite(torch.tensor(DEEP.loss.values)).all()


def test_the_rate_that_deep_models_keep_was_best_for_two_blocks():
    two = DEEP.loss.sel(rule="standard", depth=DEPTHS[0]).mean("seed")
    assert float(two.rate[int(two.argmin("rate"))]) == measure.KEPT
    for rule, job in measure.carried_trainings(0).items():
        assert job.settings["learning_rate"] == measure.KEPT
        assert job.seed >= measure.FRESH, rule


def test_rules_are_the_same_for_two_blocks():
    two = DEEP.loss.sel(depth=DEPTHS[0])
    assert (two == two.sel(rule="standard")).all()
