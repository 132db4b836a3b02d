"""Weights of one rotary pairing do in the other's code what they did before."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.interop.pairing import convert_pairing, pairing_order
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(1, 1), (4, 4), (4, 2)])
def test_a_converted_model_gives_the_same_logits_and_an_unconverted_one_others(n_heads, n_kv_heads):
    torch.manual_seed(0)
    config = Config(
        vocab=11, d_model=32, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=8, positions="rotary"
    )
    ours = Decoder(config).double()
    theirs = Decoder(config.replace(rotary_pairing="halves")).double()
    theirs.load_state_dict(ours.state_dict())
    tokens = torch.randint(11, (2, 30))
    with torch.no_grad():
        for bias in (b for n, b in theirs.named_parameters() if n.endswith("bias")):
            bias.normal_()
        ours.load_state_dict(theirs.state_dict())
        wanted = ours(tokens)
        assert (theirs(tokens) - wanted).abs().max() > 1e-3
        for block in theirs.blocks:
            for projection in (block.attention.query, block.attention.key):
                for tensor in (projection.weight, projection.bias):
                    tensor.copy_(convert_pairing(tensor, 8, to="halves"))
        assert torch.allclose(theirs(tokens), wanted, atol=1e-12)


def test_it_is_the_reordering_by_which_llama_was_converted():
    weight = torch.randn(3 * 8, 5)
    viewed = weight.view(3, 4, 2, 5).transpose(1, 2).reshape(24, 5)
    assert torch.equal(convert_pairing(weight, 8, to="halves"), viewed)


@pytest.mark.parametrize("d_head", [2, 8, 12])
def test_there_and_back_changes_nothing(d_head):
    weight = torch.randn(2 * d_head, 3)
    there = convert_pairing(weight, d_head, to="halves")
    assert torch.equal(convert_pairing(there, d_head, to="interleaved"), weight)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="even number of entries, got d_head=3"):
        pairing_order(3, to="halves")
    with pytest.raises(ValueError, match="whole heads of 4 rows each, got 6"):
        convert_pairing(torch.zeros(6, 2), 4, to="halves")
