"""Mixtures of experts: what is counted, against counts by hand, and what was predicted, against what came."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.mixture_of_experts import measure as me
from measured_transformer.training.loop import make_model
from measured_transformer.variants.experts import Routed

RESULTS = load_results("mixture_of_experts")


@pytest.mark.parametrize("name", measurements_of("mixture_of_experts"))
def test_results_are_those_of_this_code(name):
    assert standing(measurements_of("mixture_of_experts")[name]).state in HOLDS


@pytest.mark.parametrize("name", me.PREDICTIONS)
def test_each_prediction_has_the_verdict_that_the_page_discusses(name):
    assert me.judged(name, RESULTS).verdict.value == me.PREDICTIONS[name].verdict


def test_routed_arms_have_as_many_neurons_in_all_and_in_use():
    for name, rules in me.ROUTED.items():
        assert (rules.experts + rules.shared) * rules.width == max(me.DENSE), name
        assert (rules.active + rules.shared) * rules.width == me.WIDTH, name
    costs = {name: me.cost(name)[1] for name in me.ARMS}
    routed = [costs[name] for name in me.ROUTED]
    assert max(routed) <= costs["dense 16"] < costs["dense 64"]
    assert costs["dense 8"] == 2 * 2 * 32 * 8


def test_what_is_explained_by_hand():
    of = torch.tensor([0, 0, 1, 1])
    assert me.explained(of, of) == pytest.approx(1)
    assert me.explained(of, torch.tensor([0, 1, 0, 1])) == pytest.approx(0)
    assert me.explained(of, torch.tensor([0, 1, 2, 3])) == pytest.approx(1)
    assert me.explained(torch.zeros(4, dtype=torch.long), of) == 0.0
    # half of the choices are known, of a choice of one bit that is one half
    half = me.explained(torch.tensor([0, 0, 1, 1, 0, 1]), torch.tensor([0, 0, 0, 0, 1, 2]))
    assert half == pytest.approx(1 / 3)


def test_sharing_counts_every_token_once():
    model = make_model(me.BASE, causal=True, seed=3)
    Routed(8, 8)(model)
    found = me.sharing(model.eval(), seed=3)
    assert found.load.sum() == pytest.approx(1)
    assert (np.diff(found.load) <= 0).all()
    assert 1 <= found.busiest <= 8
    assert 0 < found.evenness < 1
    even = me.Sharing(np.full(8, 0.125), 0.0, 0.0)
    assert (even.busiest, even.idle, even.evenness) == (1, 0, pytest.approx(1))
    alone = me.Sharing(np.eye(8)[0], 0.0, 0.0)
    assert (alone.busiest, alone.idle, alone.evenness) == (8, 7, 0)
