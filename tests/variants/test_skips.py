"""Blocks with one skip connection against blocks written by hand."""

import pytest
import torch
from measured_transformer.analysis.residual import ledger, random_model
from measured_transformer.variants.skips import OneSkip


@pytest.mark.parametrize("around", ["attention", "feedforward"])
def test_the_other_sublayer_replaces_the_stream(around):
    model, tokens = random_model(3, n_layers=2)
    x = ledger(model, tokens).states[0]
    OneSkip(around)(model)
    with torch.no_grad():
        for block in model.blocks:
            write = block.attention(block.attention_norm(x))
            x = x + write if around == "attention" else write
            write = block.feedforward(block.feedforward_norm(x))
            x = x + write if around == "feedforward" else write
        torch.testing.assert_close(model(tokens), model.unembed(x))


def test_weights_stay_and_have_their_names():
    model, _ = random_model(3, n_layers=2)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    OneSkip("attention")(model)
    assert dict.fromkeys(before, True) == {
        name: torch.equal(weight, before[name]) for name, weight in model.named_parameters()
    }


@pytest.mark.parametrize("changes", [{"placement": "post"}, {"residual": False}])
def test_blocks_of_another_kind_are_refused(changes):
    model, _ = random_model(3, **changes)
    with pytest.raises(ValueError, match="pre-norm"):
        OneSkip("attention")(model)
