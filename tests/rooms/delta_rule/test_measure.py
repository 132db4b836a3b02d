"""Layers that are compared differ in what stands in the place of attention, and are asked what can be known."""

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.rooms.delta_rule import figures, measure
from measured_book.rooms.delta_rule.measure import ARMS, LENGTHS, TOLD, task_of
from measured_transformer.training.loop import make_model
from measured_transformer.variants.delta import DeltaRule
from measured_transformer.variants.linear import LinearAttention

RESULT = load_result("delta_rule", "overwritten")


@pytest.fixture
def jobs(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    return measure.arm_trainings(0)


def test_arms_differ_in_what_stands_in_the_place_of_attention(jobs):
    kinds = {}
    for arm, job in jobs.items():
        model = make_model(job.config, causal=True, seed=0)
        if prepare := job.settings.get("prepare"):
            prepare(model)
        kinds[arm] = [type(block.attention) for block in model.blocks]
    assert kinds["linear"] == [LinearAttention]
    assert kinds["delta"] == [DeltaRule]
    assert kinds["delta twice"] == 2 * [DeltaRule]
    assert kinds["hybrid"][0] is DeltaRule
    assert kinds["hybrid"][1] is kinds["softmax"][0] is kinds["softmax twice"][1]
    assert {job.settings["steps"] for job in jobs.values()} == {measure.STEPS}
    assert {job.task for job in jobs.values()} == {task_of(TOLD)}


def test_only_softmax_alone_is_told_positions(jobs):
    told = {arm for arm, job in jobs.items() if job.config.positions != "none"}
    assert told == {"softmax", "softmax twice"}


@pytest.mark.parametrize("told", LENGTHS)
def test_guessing_any_value_that_a_key_had_is_far_from_right(told):
    batch = task_of(told).batch(torch.Generator().manual_seed(0), 2000)
    times = batch.gold["told"][batch.scored].double()
    assert float((1 / times).mean()) < (0.85 if told == 8 else 0.62)


def test_accuracies_are_shares_and_the_figure_shows_each_seed():
    assert set(RESULT.arm.values) == set(ARMS)
    assert ((RESULT.accuracy >= 0) & (RESULT.accuracy <= 1)).all()
    panels = figures.plot_overwritten(RESULT).figure.axes
    assert [len(panel.lines) for panel in panels] == [3 * (RESULT.sizes["seed"] + 1)] * 2
