"""Arms begin with the weights that they should, results hold, and what is gathered from them is right."""

import dataclasses

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.one_head import measure as chapter
from measured_book.rooms.one_head.figures import of_working_layer
from measured_book.rooms.one_head.measure import (
    INSURANCE,
    LARGE_RATES,
    PrunedTo,
    arm_job,
    batch_of,
    encoder_job,
    mean_maps,
    pattern_falls,
)
from measured_book.rooms.one_head.pruning import gradient_importance, keep_by_layer, prune_heads
from measured_book.rooms.one_head.reading import ideal_share, same_label
from measured_transformer.training.loop import make_model, train

RESULTS = load_results("one_head")


def same(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("name", LARGE_RATES)
def test_the_model_that_is_pruned_is_the_tuned_one(name):
    assert LARGE_RATES[name] == arm_job(name, "whole", 0, INSURANCE).settings["learning_rate"]
    with pytest.raises(ValueError, match="whole, wide, scratch or pruned"):
        arm_job(name, "cut", 0)


def test_a_pruned_arm_trains_and_cuts_a_large_model(monkeypatch):
    small = dataclasses.replace(INSURANCE["recall"], steps=3)
    monkeypatch.setattr(chapter, "INSURANCE", {"recall": small})
    seeds = []

    def watched(*args, seed, **options):
        seeds.append(seed)
        return train(*args, seed=seed, **options)

    monkeypatch.setattr(chapter, "train", watched)
    fresh, again, other = (
        make_model(small.config(2), causal=True, seed=seed) for seed in (1, 1, 2)
    )
    for model in (fresh, again, other):
        PrunedTo("recall", 0.01)(model)
    assert same(fresh, again)
    assert not same(fresh, other)
    whole = train(
        small.config(8), small.task, seed=seeds[0], steps=3, learning_rate=0.01, **small.options(3)
    ).model
    ranked = gradient_importance(whole, batch_of(small.task, seeds[0], "ranking", 64))
    assert same(prune_heads(whole, keep_by_layer(ranked, 2)), fresh)


def test_four_wide_heads_have_as_many_weights_as_eight():
    setting = chapter.SETTINGS["reversal"]
    sizes = {
        sum(p.numel() for p in make_model(config, causal=False, seed=0).parameters())
        for config in (setting.config(8), setting.config(4, 16))
    }
    assert len(sizes) == 1


def test_an_encoder_that_mirrors_falls_when_it_looks_evenly():
    model = dataclasses.replace(encoder_job(0, 1.6e-2)).train().model
    assert mean_maps(model, 0).shape == (2, 4, 12, 12)
    assert max(pattern_falls(model, 0, "even")) > 0.3
    assert max(pattern_falls(model, 0, "mean")) < 0.1


def test_the_ideal_mirror_head_goes_by_place_alone():
    assert ideal_share() == pytest.approx(1)


def test_labels_are_compared_with_those_of_the_next_seed():
    roles = RESULTS["roles"]
    code = roles.code.sel(state="tuned").transpose("seed", "layer", "head").values
    expected = [np.mean(code[i] == code[(i + 1) % len(code)]) for i in range(len(code))]
    assert same_label(roles).values == pytest.approx(expected)


def test_the_working_layer_is_the_one_that_loses_most():
    spares = RESULTS["spares"]
    alone, together = of_working_layer(spares)
    zero = spares.sel(rate="tuned", how="zero")
    assert together.values == pytest.approx(zero.together.max("layer").values)
    assert alone.sizes == {"seed": zero.sizes["seed"], "head": 4}


def test_curves_begin_alike_and_end_alike():
    orders = RESULTS["orders"]
    for count in (0, 16):
        spread = orders.curve.sel(removed=count).std("order")
        assert float(spread.max()) < 1e-5
    assert float((orders.curve.sel(removed=16) - orders.curve.sel(removed=0)).min()) > 0
