"""Sparse autoencoders on states that were made by hand, and scores of units whose meaning is known."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.analysis import autoencoders as m


def test_an_autoencoder_keeps_k_and_takes_known_states_apart() -> None:
    eye = torch.eye(4)
    sparse = m.SparseAutoencoder(eye, torch.zeros(4), eye, torch.zeros(4), 2)
    x = torch.tensor([[3.0, 1.0, 2.0, -4.0]])
    assert sparse.encode(x).tolist() == [[3, 0, 2, 0]]
    assert sparse.decode(sparse.encode(x)).tolist() == [[3, 0, 2, 0]]
    assert (
        m.explained(
            x.repeat(2, 1) * torch.tensor([[1.0], [2.0]]),
            x.repeat(2, 1) * torch.tensor([[1.0], [2.0]]),
        )
        == 1
    )
    known = torch.nn.functional.normalize(
        torch.randn(10, 6, generator=torch.Generator().manual_seed(0)), dim=1
    )

    def states():
        generator = torch.Generator().manual_seed(1)
        while True:
            on = torch.rand(128, 10, generator=generator) < 0.08
            yield on * (0.5 + torch.rand(128, 10, generator=generator)) @ known

    found = m.fit_autoencoder(
        states(), 6, 16, torch.Generator().manual_seed(2), k=2, steps=600, learning_rate=1e-2
    )
    assert float(m.best_match(known, found.decoder)[0].mean()) > 0.9
    assert found.decoder.norm(dim=1).tolist() == pytest.approx([1] * 16, abs=1e-5)


def test_scores_find_the_unit_that_names_a_property() -> None:
    generator = torch.Generator().manual_seed(0)
    held = torch.rand(3, 4000, generator=generator) < 0.1
    units = torch.randn(4000, 5, generator=generator)
    units[:, 1] += 8 * held[2]
    units[:, 4] -= 8 * held[0]  # speaks by falling silent, which does not count
    scores = m.score(units, held)
    assert float(scores.best[2]) > 0.9
    assert float(scores.best[[0, 1]].max()) < 0.4
    assert float(scores.own[1]) > 0.9
    assert float(scores.swapped[1]) < 0.4
    probe = m.probe_f1(units, held)
    assert probe[[0, 2]].min() > 0.9
    assert probe[1] < 0.4


def test_a_probe_finds_what_single_units_do_not_say() -> None:
    generator = torch.Generator().manual_seed(0)
    held = torch.rand(2, 4000, generator=generator) < 0.2
    hidden = torch.randn(4000, generator=generator)
    states = torch.stack((hidden + held[0].float(), hidden), 1)
    probe = m.probe_f1(states, held)
    assert float(probe[0]) > 0.9
    assert float(probe[1]) < 0.45
    assert float(m.score(states, held).best[0]) < 0.6


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [m.cosine_after_warmup(step, 100, 10) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates.index(max(rates)) in (9, 10)
    assert rates[-1] < 0.001


def test_batches_come_from_the_states() -> None:
    drawn = next(m.batches(torch.arange(6.0).view(3, 2), torch.Generator().manual_seed(0)))
    assert drawn.shape == (256, 2)
    assert set(map(tuple, drawn.tolist())) == {(0, 1), (2, 3), (4, 5)}
