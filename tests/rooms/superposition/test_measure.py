"""Toy models, autoencoders and scores, on cases whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.superposition import measure as m
from measured_transformer.models.config import Config
from measured_transformer.training.loop import make_model

RESULTS = load_results("superposition")


def test_every_result_is_of_this_code() -> None:
    for one in measurements_of("superposition").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_the_hand_example() -> None:
    w = m.polygon(5)
    x = torch.zeros(2, 5, dtype=torch.float64)
    x[0, 0] = 1
    x[1, [0, 2]] = 1
    before = x @ w.T @ w
    near, far = math.cos(math.radians(72)), math.cos(math.radians(144))
    assert before[0].tolist() == pytest.approx([1, near, far, far, near])
    assert before[1].tolist() == pytest.approx([1 + far, 2 * near, 1 + far, near + far, near + far])
    assert m.read_back(w, x[:1])[0, 2:4].tolist() == [0, 0]


@pytest.mark.parametrize(("p", "r"), [(1.0, 1.0), (0.3, 0.4), (0.05, 7.0)])
def test_closed_losses_agree_with_draws(p: float, r: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = m.sparse_features(400_000, torch.tensor([p]), 2, generator)[0].double()
    importance = torch.tensor([1.0, r])
    guess = [0.0, p / 2]

    def loss(w: list[float], b: list[float]) -> float:
        column = torch.tensor([w]).double()
        read = m.read_back(column, x, torch.tensor(b))
        return float((importance * (x - read).square()).sum(1).mean())

    found = [loss([1, 0], guess), loss([0, 1], guess[::-1]), loss([1, -1], [0, 0])]
    assert list(m.strategy_losses(p, r).values()) == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize("r", [0.1, 0.5, 1.0, 3.0])
def test_the_border_is_where_the_cheapest_way_changes(r: float) -> None:
    at = m.border(min(r, 1 / r))
    shared = m.PHASES.index("superposed")
    assert m.predicted_phase(0.99 * at, r) == shared
    assert m.predicted_phase(min(1.0, 1.01 * at), r) == (0 if r <= 1 else 1)


def test_quadrature_has_the_moments_of_the_features() -> None:
    points, cases = m.two_features_inputs()
    assert cases.sum(1).tolist() == pytest.approx([1] * 4)
    means = cases.double() @ points.double()
    assert means.flatten().tolist() == pytest.approx([0, 0, 0.5, 0, 0, 0.5, 0.5, 0.5], abs=1e-6)
    squares = cases.double() @ points.double().square()
    assert squares[3].tolist() == pytest.approx([1 / 3, 1 / 3])


def test_phases_of_known_weights() -> None:
    weight = torch.tensor([[1.0, 0.1], [0.0, -1.0], [1.0, -0.9]])
    assert [m.PHASES[i] for i in m.phase_of(weight)] == list(m.PHASES)


def test_shares_add_up_to_the_dimensions_of_a_tight_frame() -> None:
    assert m.shares_of_a_dimension(m.polygon(5)).tolist() == pytest.approx([0.4] * 5)
    drawn = torch.linalg.qr(torch.randn(9, 4, generator=torch.Generator().manual_seed(0))).Q.T
    assert float(m.shares_of_a_dimension(drawn).sum()) == pytest.approx(4, abs=1e-5)


def test_welch_bound_is_kept_by_drawn_and_met_by_regular_vectors() -> None:
    simplex = torch.eye(4, dtype=torch.float64) - 0.25
    unit = simplex / simplex.norm(dim=0)
    assert float((unit.T @ unit).fill_diagonal_(0).abs().max()) == pytest.approx(
        m.welch_bound(3, 4)
    )
    drawn = torch.randn(3, 9, generator=torch.Generator().manual_seed(1))
    cosines = torch.nn.functional.normalize(drawn, dim=0)
    assert float((cosines.T @ cosines).fill_diagonal_(0).abs().max()) > m.welch_bound(3, 9)


def test_the_best_of_some_tries_is_kept() -> None:
    toys = m.Toys(
        torch.arange(4.0).view(4, 1, 1), torch.zeros(4, 1), torch.tensor([2.0, 1.0, 3.0, 4.0])
    )
    assert toys.best(2).weight.flatten().tolist() == [1, 2]


def test_a_child_never_comes_without_its_parent() -> None:
    known = m.make_world(3)
    x = known.draw(5000, torch.Generator().manual_seed(0)) > 0
    child, parent = x[:, -m.FAMILIES :], x[:, : m.FAMILIES]
    assert bool((child <= parent).all())
    assert bool(child.any())
    company = known.company("with its child", torch.Generator().manual_seed(0)) > 0
    assert company.sum(-1).unique().tolist() == [2]
    alone = known.company("alone", torch.Generator().manual_seed(0))
    assert (alone > 0).sum(-1).unique().tolist() == [1]


def test_independent_components_are_found() -> None:
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(6000, 4, generator=generator).pow(3)
    mix = torch.randn(4, 4, generator=generator)
    found = source @ mix @ m.independent_components(source @ mix, generator)
    both = torch.corrcoef(torch.cat((source, found), 1).T)[:4, 4:].abs()
    assert float(both.amax(1).min()) > 0.95


def test_labels_hold_where_they_should() -> None:
    kinds, held = m.labels()
    assert set(kinds) == set(m.KINDS)
    assert held.shape == (len(kinds), m.WINDOWS * (64 - m.SEEN_FROM))
    half = held.shape[1] // 2
    assert int(held[:, :half].sum(1).min()) >= m.FEWEST
    assert int(held[:, half:].sum(1).min()) >= m.FEWEST
    one = [i for i, kind in enumerate(kinds) if kind == "character"]
    assert int(held[one].sum(0).max()) == 1, "one character at a time"


def test_states_and_losses_of_a_model_that_is_left_alone() -> None:
    config = Config(vocab=m.PROSE.vocab, d_model=16, n_layers=1, n_heads=2)
    model = make_model(config, causal=True, seed=0).eval()
    inputs, _ = m.asked()
    seen = m.states_of(model, inputs[:3])
    assert seen[m.TAP].shape == (3 * (64 - m.SEEN_FROM), 16)
    assert m.loss_with(model, lambda s: s) == pytest.approx(math.log(m.PROSE.vocab), abs=1.5)


def test_results_have_the_sizes_that_the_page_names() -> None:
    assert RESULTS["pairs"].phase.shape == (10, 17, 17)
    assert m.TRIES * m.predicted_phases().size == 2312
    assert np.isfinite(RESULTS["language"].best.values).all()
