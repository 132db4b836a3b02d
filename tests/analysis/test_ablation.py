"""Ablation must find the component that does the work, in models where it is known which one does."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import (
    Component,
    ablated,
    accuracy,
    effects,
    feedforwards,
    heads,
    loss,
)
from measured_transformer.analysis.handmade import heads_model, induction_model, reversal_model
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model

TASK = Reversal(vocab=5, length=4)


def batch(seed=0, size=200):
    return TASK.batch(torch.Generator().manual_seed(seed), size)


def reversing(roles=("uniform", "mirror", "next")):
    return heads_model(list(roles), vocab=5, length=4, read=1)


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_only_the_head_that_does_the_work_matters(how):
    model = reversing()
    found = effects(model, heads(model), batch(), how=how, reference=batch(1))
    assert found[[0, 2]].tolist() == [0, 0]
    assert found[1] < -0.6


def test_the_mean_pattern_of_a_head_that_goes_by_place_is_its_pattern():
    model = reversing()
    patterns = heads(model, "pattern")
    by = {
        how: effects(model, patterns, batch(), how=how, reference=batch(1))
        for how in ("mean", "even")
    }
    assert np.abs(by["mean"]).max() == 0
    assert by["even"][1] < -0.4


def test_a_constant_contribution_matters_to_zero_alone():
    model = reversal_model(vocab=5, length=4)
    with torch.no_grad():  # the head's place among values: always the same, whatever the tokens
        model.token_embedding.weight.zero_()
    part = heads(model)
    other = batch(1)
    whole = model(batch().inputs)
    for how in ("mean", "resample"):
        with ablated(model, part, how, reference=other):
            assert torch.allclose(model(batch().inputs), whole)


def test_mean_and_resample_take_what_the_reference_says():
    model, own, other = reversing(), batch(0, 3), batch(1, 3)
    tap = "blocks.0.attention.mixed"
    with capture(model, tap) as seen:
        model(other.inputs)
    with capture(model, tap) as before:
        model(own.inputs)
    for how, expected in [
        ("mean", seen[tap].mean(0, keepdim=True).expand(3, -1, -1, -1)),
        ("resample", seen[tap][[1, 2, 0]]),
        ("zero", torch.zeros_like(seen[tap])),
    ]:
        with (
            ablated(model, [Component(tap, 1)], how, reference=other),
            capture(model, tap) as changed,
        ):
            model(own.inputs)
        assert torch.allclose(changed[tap][:, 1], expected[:, 1])
        assert torch.equal(changed[tap][:, [0, 2]], before[tap][:, [0, 2]])
    order = torch.tensor([2, 2, 0])
    with (
        ablated(model, [Component(tap)], "resample", reference=other, order=order),
        capture(model, tap) as changed,
    ):
        model(own.inputs)
    assert torch.equal(changed[tap], seen[tap][order])


def test_the_model_is_left_as_it_was():
    model = reversing()
    whole = model(batch().inputs)
    with ablated(model, heads(model), "mean", reference=batch(1)):
        assert not torch.equal(model(batch().inputs), whole)
    assert torch.equal(model(batch().inputs), whole)


def test_even_keeps_to_the_keys_that_may_be_seen():
    model = induction_model(vocab=6, length=5)
    tokens = torch.randint(6, (50, 5), generator=torch.Generator().manual_seed(0))
    data = batch()
    reference = type(data)(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))
    tap = "blocks.0.attention.pattern"
    with (
        ablated(model, [Component(tap)], "even", reference=reference),
        capture(model, tap) as seen,
    ):
        model(tokens)
    assert torch.equal(seen[tap].triu(1), torch.zeros_like(seen[tap]))
    assert torch.allclose(seen[tap].sum(-1), torch.ones(()).double())


def test_groups_are_taken_away_together():
    model = heads_model(["mirror", "mirror"], vocab=5, length=4, read=0)
    with torch.no_grad():  # both notes are read: either head is enough
        model.unembedding.weight[:, -5:] = torch.eye(5)
    each = heads(model)
    found = effects(model, [each[0], each[1], each], batch(), how="zero")
    assert found[:2].tolist() == [0, 0]
    assert found[2] < -0.6


def test_metrics():
    model = reversal_model(vocab=5, length=4)
    assert accuracy(model, batch()) == 1
    assert loss(model, batch()) == pytest.approx(np.log(np.e + 4) - 1)
    rise = effects(model, heads(model), batch(), how="zero", metric=loss)
    assert rise[0] == pytest.approx(np.log(5) - np.log(np.e + 4) + 1)


def test_components_of_an_encoder_decoder():
    config = Config(vocab=5, d_model=8, n_heads=2, n_layers=2)
    model = make_model(config, causal=True, source=True, seed=0)
    assert isinstance(model, EncoderDecoder)
    assert len(heads(model)) == 2 * (2 + 2 + 2)
    assert heads(model)[0] == Component("encoder.blocks.0.attention.mixed", 0)
    assert [c.tap.split(".")[0] for c in feedforwards(model)] == ["encoder"] * 2 + ["decoder"] * 2


def test_errors_say_what_is_missing(unhooked):
    model = reversing()
    with pytest.raises(ValueError, match="give a reference"):
        effects(model, heads(model), batch(), how="mean")
    with (
        pytest.raises(ValueError, match="zero, mean, resample"),
        ablated(model, heads(model), "noise"),
    ):
        pass
    with (
        pytest.raises(ValueError, match="as many"),
        ablated(model, heads(model), "resample", reference=batch(1, 7)),
    ):
        model(batch().inputs)
    with pytest.raises(ValueError, match="heads are seen at"):
        heads(model, "out")
