"""Instruments that hold few logits at a time, or leave positions out, find what they find on the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import (
    Component,
    accuracy,
    effects,
    feedforwards,
    heads,
    loss,
)
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.lens import fit_tuned_lens, lens_logits
from measured_transformer.analysis.patching import patched
from measured_transformer.analysis.residual import (
    Ledger,
    ledger,
    random_model,
    stream_norms,
    token_spread,
    write_cosines,
    write_ratios,
)
from measured_transformer.analysis.states import turns
from measured_transformer.analysis.tuned_lens import tuned_logits
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.task import Batch


def a_model():
    model, _ = random_model(4, causal=True, n_layers=3, n_heads=2, d_model=16)
    return model


def a_batch(seed=0, size=7):
    """Sequences of which each has another number of scored positions, and one has none."""
    draws = torch.Generator().manual_seed(seed)
    tokens = torch.randint(11, (size, 6), generator=draws)
    scored = torch.arange(5) < torch.arange(size)[:, None]
    place = torch.arange(size)
    return Batch(tokens[:, :-1], tokens[:, 1:], scored, gold={"place": place})


# Lenses --------------------------------------------------------------------------------------------


def test_a_lens_keeps_what_is_asked_for_of_each_depth():
    model, tokens = a_model(), a_batch().inputs
    whole = lens_logits(model, tokens)
    assert torch.equal(lens_logits(model, tokens, keep=lambda x: x[:, -1, :3]), whole[:, :, -1, :3])
    some = lens_logits(model, tokens, positions=[1, -1])
    torch.testing.assert_close(some, whole[:, :, [1, 4]])
    with pytest.raises(ValueError, match=r"positions must lie in -5\.\.4, got 5"):
        lens_logits(model, tokens, positions=5)


def test_a_tuned_lens_keeps_what_is_asked_for_of_each_depth():
    model, batch = a_model(), a_batch()
    lens = fit_tuned_lens(model, batch, seed=0, steps=3)
    whole = tuned_logits(model, lens, batch.inputs)
    best = tuned_logits(model, lens, batch.inputs, positions=-1, keep=lambda x: x.argmax(-1))
    assert torch.equal(best, whole[:, :, [-1]].argmax(-1))


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_depth_by_depth_the_maps_are_the_same(at_once):
    model, batch = a_model(), a_batch()
    given = {"seed": 0, "steps": 20, "size": 4}
    whole = fit_tuned_lens(model, batch, **given)
    with capture(model, "logits", every_call=True) as seen:
        found = fit_tuned_lens(model, batch, **given, at_once=at_once)
    held = [one.shape[:2].numel() for one in seen["logits"][1:]]  # the first is the model's own run
    assert max(held) == 4 * min(at_once, 3)
    torch.testing.assert_close(found.weight, whole.weight)
    torch.testing.assert_close(found.bias, whole.bias)
    assert np.abs(whole.gap[0] - whole.gap[1]).max() > 1e-3
    for one, other in zip(found.gap, whole.gap, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    with pytest.raises(ValueError, match="a positive number of depths, got 0"):
        fit_tuned_lens(model, batch, seed=0, at_once=0)


# Ablation and patching -----------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [accuracy, loss])
@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_effects_of_few_sequences_at_a_time_are_those_of_all_together(how, metric):
    model, batch, reference = a_model(), a_batch(0), a_batch(1)
    parts = [*heads(model), *feedforwards(model), [*heads(model)[1:3], *feedforwards(model)[:1]]]
    given = {"how": how, "reference": reference, "metric": metric}
    whole = effects(model, parts, batch, **given)
    with capture(model, "logits", every_call=True) as seen:
        found = effects(model, parts, batch, **given, rows=3)
    assert max(len(one) for one in seen["logits"]) == 3
    np.testing.assert_allclose(found, whole, atol=1e-12)
    assert np.abs(whole).max() > 1e-3
    every = effects(model, parts[:2], batch, **given, rows=100)
    np.testing.assert_allclose(every, whole[:2], atol=1e-12)


def test_a_metric_of_few_sequences_gets_what_belongs_to_them():
    batch = replace(a_batch(), scored=torch.ones(7, 5, dtype=torch.bool))
    rows: list[list[int]] = []

    def mean_place(_model, part):
        rows.append(part.gold["place"].tolist())
        return float(part.gold["place"].double().mean())

    assert (
        effects(a_model(), heads(a_model())[:1], batch, how="zero", metric=mean_place, rows=3) == 0
    )
    assert rows == [[0, 1, 2], [3, 4, 5], [6]] * 2


def test_what_does_not_fit_is_said_of_few_sequences_too():
    model, batch = a_model(), a_batch()
    for given, words in [
        ({"how": "zero", "rows": 0}, "a positive number of sequences, got 0"),
        ({"how": "mean", "rows": 2}, "give a reference"),
        ({"how": "resample", "reference": a_batch(1, 6), "rows": 2}, "got 6 for 7"),
    ]:
        with pytest.raises(ValueError, match=words):
            effects(model, heads(model), batch, **given)


def test_patching_reads_the_logits_where_the_target_does():
    model, clean, other = a_model(), a_batch(0).inputs, a_batch(1).inputs
    target = answer_logit(-1, clean[:, 0])
    parts = [Component("blocks.1.attention.mixed", 1), Component("blocks.0.feedforward.out")]
    whole = patched(model, clean, other, parts, target, positions=[2, 3])
    with capture(model, "logits", every_call=True) as seen:
        found = patched(model, clean, other, parts, target, positions=[2, 3], read_at=-1)
    assert [one.shape[1] for one in seen["logits"]] == [1, 1]
    torch.testing.assert_close(found, whole)
    earlier = patched(model, clean, other, parts, answer_logit(3, clean[:, 0]))
    first = answer_logit(0, clean[:, 0])
    torch.testing.assert_close(patched(model, clean, other, parts, first, read_at=[3, -1]), earlier)


# Positions that are left out -----------------------------------------------------------------------

STATISTICS = {
    "norms": (lambda account, **given: stream_norms(account.states, **given)),
    "ratios": write_ratios,
    "cosines": write_cosines,
    "spread": (lambda account, **given: token_spread(account.states, **given)),
    "turns": (lambda account, **given: turns(account.states, **given)),
}


@pytest.mark.parametrize("of", STATISTICS.values(), ids=STATISTICS)
def test_positions_that_are_left_out_count_for_nothing(of):
    account = ledger(a_model(), a_batch().inputs)
    rest = Ledger(account.names, account.states[:, :, 1:], account.writes[:, :, 1:])
    for chosen in (slice(1, None), [1, 2, 3, -1], torch.arange(5) > 0):
        np.testing.assert_array_equal(of(account, positions=chosen), of(rest))
    assert not np.allclose(of(account), of(rest))
    sink = Ledger(account.names, account.states.clone(), account.writes.clone())
    sink.states[:, :, 0] *= 1e3
    sink.writes[:, :, 0] *= -1e3
    np.testing.assert_array_equal(of(sink, positions=slice(1, None)), of(rest))
    with pytest.raises(ValueError, match="at least one of 5 positions, got none"):
        of(account, positions=[])
