"""Folding of norms against whole models: the same logits, and no weights left."""

import copy

import pytest
import torch
from measured_transformer.analysis.folding import Divide, as_rms_model, fold_norms
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.parts.norms import RMSNorm


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


FOLDABLE = [
    {},
    {"tie_embeddings": True, "logit_scale": 0.5},
    {"activation": "swiglu", "positions": "rotary", "n_layers": 2},
    {"bias": False},
    {"attention_bias": False, "ffn_bias": False, "head_bias": True},
    {"norm": "rms"},
    {"norm": "rms", "norm_offset": 1.0},
    {"norm": "none"},
    {"parallel": True},
    {"parallel": True, "shared_norm": True, "activation": "swiglu"},
    {"shared_kv": True},
    {"attention_norm": False},
]


@pytest.mark.parametrize("changes", FOLDABLE)
def test_a_folded_model_has_the_same_logits_and_no_weights_in_its_norms(changes):
    for seed in range(3):
        model, tokens = random_model(seed, causal=True, placement="pre", **changes)
        before = copy.deepcopy(model.state_dict())
        folded = fold_norms(model)
        close(folded(tokens).detach(), model(tokens).detach())
        assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
        weights = [w for name, w in folded.named_parameters() if "norm" in name]
        assert all(w.eq(1 - model.config.norm_offset).all() for w in weights)
        if model.config.norm == "layer":
            assert not weights
            assert isinstance(folded.final_norm, Divide)
            rows = folded.blocks[0].feedforward.up.weight
            close(rows.sum(1), torch.zeros(len(rows), dtype=torch.float64))


def test_what_cannot_be_folded_is_refused():
    for changes, words in (
        ({"placement": "post"}, "pre-norm"),
        ({"head": "mlm"}, "'mlm'"),
        ({"head": "none"}, "'none'"),
        ({"embedding_norm": True}, "behind the embedding"),
    ):
        model, _ = random_model(0, causal=True, **changes)
        with pytest.raises(ValueError, match=words):
            fold_norms(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned"},
        {"positions": "rotary", "bias": False},
        {"positions": "rotary", "parallel": True, "shared_norm": True},
    ],
)
def test_a_model_becomes_one_with_rmsnorm(changes):
    for seed in range(3):
        model, tokens = random_model(seed, causal=True, placement="pre", **changes)
        twin = as_rms_model(model)
        close(twin(tokens).detach(), model(tokens).detach())
        assert isinstance(twin.final_norm, RMSNorm)
        assert twin.config.norm == "rms"
        with capture(twin, "*.residual_*") as seen:
            twin(tokens)
        assert max(state.mean(-1).abs().max() for state in seen.values()) < 1e-12
        with capture(model, "*.residual_*") as seen:
            model(tokens)
        assert min(state.mean(-1).abs().max() for state in seen.values()) > 1e-3


def test_not_every_model_becomes_one_with_rmsnorm():
    with pytest.raises(ValueError, match="'layer'"):
        as_rms_model(random_model(0, causal=True, norm="rms")[0])
    with pytest.raises(ValueError, match="fixed"):
        as_rms_model(random_model(0, causal=True, positions="sinusoidal")[0])
    with pytest.raises(ValueError, match="attention_norm=False"):
        as_rms_model(random_model(0, causal=True, placement="pre", attention_norm=False)[0])
