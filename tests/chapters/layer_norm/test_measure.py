"""Formulas, geometry and folding of norms against torch's own, closed forms and whole models."""

import copy

import numpy as np
import pytest
import torch
from measured_transformer.analysis.residual import random_model
from measured_transformer.chapters.layer_norm.measure import (
    Divide,
    NormRun,
    as_rms_model,
    by_formula,
    drawn_vectors,
    epsilon_outside,
    fold_norms,
    freezing_errors,
    layer_by_formula,
    measured_norms,
    norm_divisors,
    norm_matrix,
    probed_matrix,
    projector,
    singular_values,
    size_by_definition,
    size_outside,
    variation,
)
from measured_transformer.internals.capture import capture
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from torch import nn
from torch.nn import functional as F


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("seed", range(5))
def test_the_formula_is_torchs_and_the_code_is_not(seed):
    x, gamma, beta = drawn_vectors(seed, rows=3)
    d = x.shape[1]
    close(by_formula(x, gamma, beta), F.layer_norm(x, (d,), gamma, beta, eps=0.0))
    with_bessel = (by_formula(x, gamma, beta, unbiased=True) - beta) / gamma
    close(with_bessel.norm(dim=1), torch.full((3,), (d - 1) ** 0.5, dtype=torch.float64))
    by_hand = torch.stack([(row - row.mean()) / (row.std() + 0.1) for row in x])
    close(epsilon_outside(x, gamma, beta, eps=0.1), by_hand * gamma + beta)


def test_entries_that_are_all_the_same_have_no_norm():
    ones = torch.ones(8, dtype=torch.float64)
    assert by_formula(ones, ones, ones).isnan().all()
    assert epsilon_outside(ones, ones, 0 * ones, eps=1e-5).eq(0).all()


@pytest.mark.parametrize("deviation", [1e-7, 1e-3, 1.0])
def test_sizes_are_those_of_what_comes_out(deviation):
    x = torch.randn(5, 12, dtype=torch.float64)
    x = deviation * by_formula(x, torch.ones(12), torch.zeros(12)) + 2
    eps = 1e-5
    defined = F.layer_norm(x, (12,), eps=eps).square().mean(1).sqrt().numpy()
    np.testing.assert_allclose(
        size_by_definition(np.full(5, deviation), eps=eps), defined, rtol=1e-6
    )
    coded = epsilon_outside(x, torch.ones(12), torch.zeros(12), eps=eps)
    found = size_outside(np.full(5, deviation), d_model=12, eps=eps)
    np.testing.assert_allclose(found, coded.square().mean(1).sqrt().numpy(), rtol=1e-6)


def test_drawn_vectors_spread_over_widths_and_sizes():
    drawn = [drawn_vectors(seed, rows=50)[0] for seed in range(60)]
    widths = {x.shape[1] for x in drawn}
    assert min(widths) < 8
    assert max(widths) > 150
    spreads = torch.stack([x.std() for x in drawn])
    assert spreads.min() < 0.3
    assert spreads.max() > 3
    close(drawn[3], drawn_vectors(3, rows=50)[0])


def test_a_projector_takes_one_direction_out():
    u, x = torch.randn(2, 6, dtype=torch.float64)
    matrix = projector(u)
    close(matrix @ u, torch.zeros(6, dtype=torch.float64))
    close(matrix @ matrix, matrix)
    close(x @ matrix, x - (x @ u) / (u @ u) * u)
    close(x @ projector(torch.ones_like(x)), x - x.mean())
    with pytest.raises(ValueError, match="length zero"):
        projector(torch.zeros(3))


@pytest.mark.parametrize("seed", range(4))
def test_the_matrix_of_a_norm_is_what_the_norm_does(seed):
    x, gamma, beta = drawn_vectors(seed)
    norm = LayerNorm(len(gamma), eps=0.0).double()
    with torch.no_grad():
        norm.weight.copy_(gamma)
        norm.bias.copy_(beta)
    sigma = x[0].std(correction=0)
    close(x @ norm_matrix(gamma, sigma) + beta, norm(x).detach(), 1e-9)
    close(probed_matrix(norm, sigma), norm_matrix(gamma, sigma))


def test_two_singular_values_are_zero_and_the_others_the_inverse_deviation():
    x = 3 * torch.randn(9, dtype=torch.float64) + 1
    found = singular_values(x)
    np.testing.assert_allclose(found[:7], 1 / x.std(correction=0).item(), rtol=1e-9)
    assert found[7:].max() < 1e-12
    gamma = torch.rand(9, dtype=torch.float64) + 0.5
    stretched = singular_values(x, gamma)
    assert stretched[-3] > 0.4 / x.std(correction=0)
    assert stretched[7:].max() < 1e-12


@pytest.mark.parametrize(("placement", "norm_first"), [("post", False), ("pre", True)])
def test_layers_by_formula_are_torchs(placement, norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=norm_first, batch_first=True)
    layer = layer.double().eval()
    with torch.no_grad():
        for norm in (layer.norm1, layer.norm2):
            norm.weight.add_(0.3 * torch.randn(8))
            norm.bias.add_(0.3 * torch.randn(8))
        x = torch.randn(2, 5, 8, dtype=torch.float64)
        close(layer_by_formula(x, layer, placement=placement), layer(x))
        other = "pre" if placement == "post" else "post"
        assert (layer_by_formula(x, layer, placement=other) - layer(x)).abs().max() > 1e-3
    with pytest.raises(ValueError, match="sideways"):
        layer_by_formula(x, layer, placement="sideways")


FOLDABLE = [
    {},
    {"tie_embeddings": True, "logit_scale": 0.5},
    {"activation": "swiglu", "positions": "rotary", "n_layers": 2},
    {"bias": False},
    {"attention_bias": False, "ffn_bias": False, "head_bias": True},
    {"norm": "rms"},
    {"norm": "none"},
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
        assert all(w.eq(1).all() for w in weights)
        if model.config.norm == "layer":
            assert not weights
            assert isinstance(folded.final_norm, Divide)
            rows = folded.blocks[0].attention.query.weight
            close(rows.sum(1), torch.zeros(len(rows), dtype=torch.float64))
            assert set(norm_divisors(folded, tokens)) == set(norm_divisors(model, tokens))


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
    "changes", [{"positions": "learned"}, {"positions": "rotary", "bias": False}]
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


def test_divisors_are_deviations_and_freezing_them_at_their_own_value_costs_nothing():
    model, tokens = random_model(1, causal=True, placement="pre", n_layers=2)
    found = norm_divisors(model, tokens)
    assert list(found) == [
        *(f"blocks.{i}.{part}_norm" for i in range(2) for part in ("attention", "feedforward")),
        "final_norm",
    ]
    with capture(model, "blocks.0.residual_pre") as seen:
        model(tokens)
    states = seen["blocks.0.residual_pre"]
    close(found["blocks.0.attention_norm"], (states.var(-1, correction=0) + 1e-5).sqrt())
    assert variation(torch.tensor([2.0, 2.0])) == 0

    errors = freezing_errors(model, tokens)
    assert list(errors) == list(found)
    norm = model.blocks[0].attention_norm
    true = norm(states)
    ratio = found["blocks.0.attention_norm"] / found["blocks.0.attention_norm"].mean()
    held = (true - norm.bias) * ratio[..., None] + norm.bias
    expected = float(((held - true).norm() / true.norm()).detach())
    assert errors["blocks.0.attention_norm"] == pytest.approx(expected, rel=1e-9)
    one = tokens[:1, :1]
    assert max(freezing_errors(model, one).values()) < 1e-12
    with pytest.raises(ValueError, match="'post'"):
        freezing_errors(random_model(0, causal=True, placement="post")[0], tokens)


def handmade_run() -> NormRun:
    def row(name, each):
        return {"part": "norms", "width": 8, "tokens": 4, "passes": "forward, backward", "name": name,
                "seconds": float(np.median(each)), "each": each}  # fmt: skip

    rows = [row("LayerNorm", [1.0, 2.0, 3.0, 4.0]), row("RMSNorm", [2.0, 4.0, 6.0, 8.0])]
    return NormRun({"device": "none"}, 4, rows)


def test_times_are_ratios_of_the_same_rounds():
    run = handmade_run()
    assert run.widths == (8,)
    assert run.tokens == 4
    assert run.ratio(8) == pytest.approx((2.0, 2.0, 2.0))
    assert run.set_medians("LayerNorm", 8, 2).tolist() == [1.5, 3.5]
    with pytest.raises(ValueError, match="1 to 4"):
        run.set_medians("LayerNorm", 8, 5)
    with pytest.raises(ValueError, match="RMSNorm"):
        run.seconds("BatchNorm", 8)


def test_the_committed_run_says_what_it_was():
    run = measured_norms()
    assert run.machine["threads"] == 1
    assert run.machine["precision"] == "float32"
    assert run.rounds >= 10
    assert 256 in run.widths
    for width in run.widths:
        for written_out in (False, True):
            ratio, low, high = run.ratio(width, written_out=written_out)
            assert low <= ratio <= high
