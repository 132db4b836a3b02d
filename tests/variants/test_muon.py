"""Muon against the singular value decomposition, its formula, and Adam where Adam is what it says."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import make_model, train
from measured_transformer.variants.gradients import trains_alone
from measured_transformer.variants.muon import COEFFICIENTS, Muon, orthogonalise
from torch import nn

TASK = Reversal(vocab=4, length=4)
CONFIG = Config(vocab=4, d_model=8, n_layers=1, n_heads=2)
GIVEN = {"learning_rate": 0.01, "seed": 3, "batch_size": 4, "clip": None}
OWN = {"optimiser": "SGD", "betas": (0.0, 0.0), "prepare": Muon(), "after_step": trains_alone}


def drawn(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6), (1, 5)])
def test_directions_stay_and_only_singular_values_change(shape):
    matrix = drawn(*shape)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    wanted = s / s.norm()
    a, b, c = COEFFICIENTS
    for _ in range(5):
        wanted = a * wanted + b * wanted**3 + c * wanted**5
    found = orthogonalise(matrix)
    torch.testing.assert_close(found, u @ wanted.diag() @ v, rtol=1e-5, atol=1e-5)
    assert wanted.min() > 0.6
    assert wanted.max() < 1.25


def test_with_the_coefficients_of_the_cubic_it_is_the_orthogonal_factor(monkeypatch):
    monkeypatch.setattr("measured_transformer.variants.muon.COEFFICIENTS", (1.5, -0.5, 0.0))
    matrix = drawn(5, 9)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    torch.testing.assert_close(orthogonalise(matrix, steps=40), u @ v, rtol=1e-9, atol=1e-9)


def test_where_a_singular_value_begins_decides_how_near_to_one_it_ends():
    values = torch.logspace(-3, 0, 400, dtype=torch.float64)
    a, b, c = COEFFICIENTS
    ends = values
    for _ in range(5):
        ends = a * ends + b * ends**3 + c * ends**5
    near = ends[values > 0.003]
    assert near.min() > 0.675
    assert near.max() < 1.215


def test_a_factor_on_the_matrix_changes_nothing_and_zeros_stay():
    matrix = drawn(4, 7)
    torch.testing.assert_close(
        orthogonalise(1000 * matrix), orthogonalise(matrix), rtol=1e-5, atol=0
    )
    assert not orthogonalise(torch.zeros(3, 4)).any()


def test_three_steps_by_hand():
    model = make_model(CONFIG, causal=False, seed=1)
    Muon()(model)
    weight = model.blocks[0].feedforward.down.weight
    bias = model.blocks[0].feedforward.down.bias
    embedding = model.token_embedding.weight
    momentum = torch.zeros_like(weight)
    m, v = torch.zeros_like(embedding), torch.zeros_like(embedding)
    for step in range(1, 4):
        drawn_weight, drawn_embedding = (
            drawn(*w.shape, seed=step).float() for w in (weight, embedding)
        )
        for one in model.parameters():
            one.grad = None
        loss = (drawn_weight * weight).sum() + (drawn_embedding * embedding).sum() + 7 * bias.sum()
        loss.backward()
        momentum = 0.95 * momentum + drawn_weight
        ahead = drawn_weight + 0.95 * momentum
        wanted = 0.2 * max(weight.shape) ** 0.5 * orthogonalise(ahead)
        torch.testing.assert_close(weight.grad, wanted)
        m = 0.9 * m + 0.1 * drawn_embedding
        v = 0.98 * v + 0.02 * drawn_embedding**2
        adam = (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-8)
        torch.testing.assert_close(embedding.grad, adam, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(bias.grad, torch.ones_like(bias))


def test_a_step_is_as_long_as_the_formula_says():
    before = make_model(CONFIG, causal=False, seed=3)
    after = train(CONFIG, TASK, steps=1, **GIVEN, **OWN).model
    for name, weight in after.named_parameters():
        moved = (weight - dict(before.named_parameters())[name]).detach()
        if weight.ndim == 2 and name.startswith("blocks"):
            assert moved.square().mean().sqrt().item() == pytest.approx(0.002, rel=0.4), name


def test_it_learns():
    losses = train(CONFIG, TASK, steps=60, **GIVEN, **OWN).losses
    assert losses[-10:].mean() < losses[:10].mean() - 0.1


def test_what_it_cannot_do_is_told():
    with pytest.raises(ValueError, match="momentum"):
        Muon(momentum=1.0)
    translation = NoisyTranslation(symbols=6, length=6, pad_share=0.4)
    config = Config(vocab=translation.vocab, d_model=8, n_layers=1, n_heads=2)
    with pytest.raises(ValueError, match="Decoder or an Encoder"):
        train(config, translation, steps=1, **GIVEN, **OWN)
    assert isinstance(make_model(CONFIG, causal=False, seed=0), nn.Module)
