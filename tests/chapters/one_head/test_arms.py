"""Arms of the comparison begin with the weights that they should, and each gets a rate from the grid."""

import dataclasses

import numpy as np
import pytest
import torch
from measured_transformer.chapters.pruning.measure import (
    LoadWeights,
    PrunedTo,
    Study,
    cut,
    gradient_importance,
    keep_by_layer,
    pruned,
    tuned,
)
from measured_transformer.evidence.profile import Profile
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model

STUDY = Study(Reversal(4, 4), width=16, steps=3, further=2, batch_size=8, rows=6)


def same(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_sizes_are_those_of_eight_heads():
    assert (STUDY.config(8).head_width, STUDY.config(2).head_width) == (2, 2)
    wide = STUDY.config(4, wide=True)
    assert (wide.n_heads, wide.head_width) == (4, 4)
    weights = {
        sum(p.numel() for p in make_model(c, causal=False, seed=0).parameters())
        for c in (STUDY.config(8), wide)
    }
    assert len(weights) == 1


def test_halves_share_no_sequence_stream():
    halves = [STUDY.half(0, purpose).inputs for purpose in ("rank", "measure", "reference")]
    assert not any(torch.equal(halves[i], halves[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(STUDY.half(0, "rank").inputs, halves[0])


def test_what_is_measured_on_was_not_ranked_on():
    study = dataclasses.replace(STUDY, task=Reversal(2, 6), rows=40)  # there are 64 sequences
    ranked, measured = (study.half(3, purpose) for purpose in ("rank", "measure"))
    assert len(measured.inputs) == len(measured.targets) == len(measured.scored) == 40
    assert torch.equal(measured.targets, measured.inputs.flip(1))
    assert not {tuple(r) for r in ranked.inputs.tolist()} & {
        tuple(r) for r in measured.inputs.tolist()
    }
    with pytest.raises(ValueError, match="too few"):
        dataclasses.replace(study, task=Reversal(1, 2)).half(0, "measure")


def test_training_on_begins_where_the_other_ended():
    model = STUDY.whole(0, 0.01)
    smaller = pruned(model, STUDY.half(0, "rank"), 2)
    before = {name: weight.clone() for name, weight in smaller.state_dict().items()}
    after = STUDY.trained_on(smaller, 0, 1e-6)
    assert not same(after, smaller)
    for name, weight in after.state_dict().items():
        assert torch.allclose(weight, before[name], atol=1e-5)
        assert torch.equal(smaller.state_dict()[name], before[name])
    assert STUDY.scratch(2, 0, 0.01).config == smaller.config


def test_a_pruned_arm_trains_and_cuts_a_large_model():
    fresh = make_model(STUDY.config(2), causal=False, seed=1)
    again = make_model(STUDY.config(2), causal=False, seed=1)
    other = make_model(STUDY.config(2), causal=False, seed=2)
    prepare = PrunedTo(STUDY, 0.01)
    for model in (fresh, again, other):
        prepare(model)
    assert same(fresh, again)
    assert not same(fresh, other)
    seeds = []

    class Watched(Study):
        def whole(self, seed, learning_rate, *, wide=False):
            seeds.append(seed)
            return super().whole(seed, learning_rate, wide=wide)

    watched = Watched(**{f.name: getattr(STUDY, f.name) for f in dataclasses.fields(STUDY)})
    PrunedTo(watched, 0.01)(make_model(STUDY.config(2), causal=False, seed=1))
    whole = STUDY.whole(seeds[0], 0.01)
    assert seeds[0] % 10 == 3
    ranked = gradient_importance(whole, STUDY.half(seeds[0], "rank"))
    assert same(cut(whole, keep_by_layer(ranked, 2)), fresh)
    LoadWeights(whole)(model := make_model(STUDY.config(8), causal=False, seed=5))
    assert same(model, whole)


def test_every_arm_gets_a_rate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rates = (1e-3, 1e-2)
    found = tuned("made", STUDY, profile=Profile("quick", 7), rates=rates)
    assert set(found) == {"8", "wide", "2", "4", "to 2", "to 4", "to 8"}
    assert set(found.values()) <= set(rates)


@pytest.mark.parametrize("wide", [False, True])
def test_whole_models_learn(wide):
    study = dataclasses.replace(STUDY, steps=60, batch_size=16)
    model = study.whole(0, 0.01, wide=wide)
    data = study.half(3, "measure")
    with torch.no_grad():
        logits = model(data.inputs)
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), data.targets)
    assert float(loss) < np.log(4)
