"""What the chapter on layer norm measures, against closed forms, torch's own and models changed by hand."""

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.layer_norm import measure, reading
from measured_book.rooms.layer_norm.measure import (
    by_formula,
    clocked,
    drawn_vectors,
    epsilon_outside,
    layer_by_formula,
    norm_divisors,
    norm_matrix,
    peaks,
    probed_matrix,
    projector,
    singular_values,
    variation,
)
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.training.loop import make_model, train
from torch import nn
from torch.nn import functional as F

RESULTS = load_results("layer_norm")


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


def test_divisors_are_deviations():
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


def test_every_check_holds_and_its_control_fails():
    found = RESULTS["identities"].isel(seed=0)
    broken = found.error.max("draw") > 1e-9
    assert found.check.values[broken.values].tolist() == ["epsilon outside"]
    assert float(found.control.min()) > 1e-3


def test_a_peak_is_the_largest_over_the_median():
    x = torch.tensor([[1.0, -2.0, 30.0], [4.0, 4.0, -4.0]])
    assert peaks(x).tolist() == [15.0, 1.0]


def test_a_spike_stands_where_it_is_put():
    x = torch.randn(2, 3, 4)
    high = 7 * float(x.square().mean().sqrt())
    for start_only, where in ((True, [0]), (False, [0, 1, 2])):
        found = measure._spiked(7.0, start_only=start_only)(x.clone())
        assert torch.allclose(found[:, where, 0], torch.tensor(high))
        found[:, where, 0] = x[:, where, 0]
        assert torch.equal(found, x)


def test_a_lone_spike_stands_in_one_token_of_each_window():
    x, at = torch.randn(2, 3, 4), torch.tensor([0, 2])
    found = measure._spiked_at(7.0, at)(x)
    high = 7 * float(x.square().mean().sqrt())
    assert torch.allclose(found[torch.arange(2), at, 0], torch.tensor(high))
    found[torch.arange(2), at, 0] = x[torch.arange(2), at, 0]
    assert torch.equal(found, x)


def test_a_shift_reaches_no_sublayer_behind_a_layer_norm_and_the_start_does_not_count():
    batch = measure.PROSE.batch(torch.Generator().manual_seed(0), 2)
    losses = {}
    for norm in measure.NORMS:
        model = make_model(measure.prose_config(norm), causal=True, seed=0).eval()
        changes = {"nothing": {}, "shifted": {measure.MIDDLE: measure._shifted(3.0)}}
        losses[norm] = [measure.changed_loss(model, batch, changes[name]) for name in changes]
        logits = model(batch.inputs)[:, 1:].detach().flatten(0, 1)
        by_hand = float(F.cross_entropy(logits, batch.targets[:, 1:].flatten()))
        assert losses[norm][0] == pytest.approx(by_hand, rel=1e-5)
    first, second = losses["LayerNorm"]
    assert second == pytest.approx(first, abs=1e-4)
    first, second = losses["RMSNorm"]
    assert abs(second - first) > 1e-2


def test_a_model_that_guesses_is_as_far_off_as_one_that_diverged():
    run = train(measure.SIX, measure.TASK, seed=0, steps=1, learning_rate=1e-3, batch_size=2)
    with torch.no_grad():
        for weight in run.model.parameters():
            weight.fill_(math.nan)
    best = measure.TASK.bayes_loss()
    assert measure.excess(run, 3) == pytest.approx(math.log(24) - best, abs=0.1)


def test_no_arm_is_best_at_the_edge_of_the_grid():
    best = RESULTS["arms"].excess.mean("seed").argmin("rate").values
    assert best.min() > 0
    assert best.max() < len(measure.RATES) - 1


def test_the_committed_times_are_of_many_rounds():
    for name in ("LayerNorm", "RMSNorm", "RMSNorm, written out"):
        assert clocked(name).size >= 10
        assert clocked(name).min() > 0
    with pytest.raises(ValueError, match="RMSNorm"):
        clocked("BatchNorm")
    assert np.isclose(
        reading.kernel_ratio(), np.median(clocked("RMSNorm")) / np.median(clocked("LayerNorm"))
    )
