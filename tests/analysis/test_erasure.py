"""Erasers against what is proved of them: nothing left to a linear probe, and no shorter way to that."""

import pytest
import torch
from measured_transformer.analysis.erasure import (
    leace,
    mean_gap,
    mean_projection,
    moved,
    nullspace,
)
from measured_transformer.analysis.probing import fit_probe
from measured_transformer.analysis.readers import fit_reader

POINTS = torch.tensor([[1.0, 3.0], [-5.0, -3.0], [5.0, 3.0], [-1.0, -3.0]], dtype=torch.float64)
CLASSES = torch.tensor([0, 0, 1, 1])


def drawn(seed: int, *, n_labels: int = 3, width: int = 6, size: int = 400):
    """Correlated states whose classes have different means."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(n_labels, (size,), generator=draws)
    mix = torch.randn(width, width, generator=draws, dtype=torch.float64)
    means = torch.randn(n_labels, width, generator=draws, dtype=torch.float64)
    noise = torch.randn(size, width, generator=draws, dtype=torch.float64)
    return noise @ mix + means[labels] + 5, labels


def majority(labels):
    return float(labels.bincount().max()) / len(labels)


@pytest.mark.parametrize("fit", [leace, mean_projection])
@pytest.mark.parametrize("seed", range(5))
def test_after_erasing_no_linear_probe_beats_the_majority(fit, seed):
    states, labels = drawn(seed)
    erased = fit(states, labels, n_labels=3)(states)
    assert mean_gap(states, labels, n_labels=3) > 0.1
    assert mean_gap(erased, labels, n_labels=3) < 1e-12
    probe = fit_probe(erased, labels, n_labels=3, penalty=1e-9)
    assert (probe.answers(erased) == labels).double().mean() <= majority(labels) + 1e-9
    # The cross-entropy of the best logistic probe is the entropy of the shares.
    shares = labels.bincount().double() / len(labels)
    read = fit_reader(erased, labels, n_labels=3, penalty=0.0, steps=100)
    gained = read(erased).gather(1, labels[:, None]).mean() - (shares * shares.log()).sum()
    assert abs(float(gained)) < 1e-6


def test_the_hand_example_of_the_chapter():
    erase, project = (fit(POINTS, CLASSES, n_labels=2) for fit in (leace, mean_projection))
    left = torch.tensor([[3.0, 3.0], [-3.0, -3.0], [3.0, 3.0], [-3.0, -3.0]]).double()
    torch.testing.assert_close(erase(POINTS), left)
    torch.testing.assert_close(project(POINTS), POINTS * torch.tensor([0.0, 1.0]).double())
    assert (erase(POINTS) - POINTS).square().sum(1).mean().item() == pytest.approx(4)
    assert (project(POINTS) - POINTS).square().sum(1).mean().item() == pytest.approx(13)
    assert erase.rank == project.rank == 1


@pytest.mark.parametrize("seed", range(3))
def test_no_affine_map_with_equal_means_moves_the_states_less(seed):
    """Against a search: Newton's method in all maps x - (A x + b) whose classes end with one mean."""
    states, labels = drawn(seed, n_labels=2, width=3)
    x = states - states.mean(0)
    direction = x[labels == 1].mean(0) - x[labels == 0].mean(0)
    # Row by row: minimise E (a.x)^2 under a.direction = direction_i, by its own Lagrange system.
    covariance = x.T @ x / len(x)
    system = torch.zeros(4, 4, dtype=torch.float64)
    system[:3, :3], system[:3, 3], system[3, :3] = 2 * covariance, direction, direction
    rows = [
        torch.linalg.solve(system, torch.cat((torch.zeros(3).double(), value[None])))[:3]
        for value in direction
    ]
    least = (x @ torch.stack(rows).T).square().sum(1).mean() / x.square().sum(1).mean()
    erase = leace(states, labels, n_labels=2)
    assert moved(states, erase(states)) == pytest.approx(float(least), rel=1e-9)
    project = mean_projection(states, labels, n_labels=2)
    assert moved(states, erase(states)) <= moved(states, project(states)) + 1e-12


def test_leace_is_a_projection_and_moves_only_between_the_means():
    states, labels = drawn(1)
    erase = leace(states, labels, n_labels=3)
    torch.testing.assert_close(erase(erase(states)), erase(states))
    torch.testing.assert_close(erase.taken @ erase.taken, erase.taken)
    assert erase.rank == 2
    torch.testing.assert_close(erase(states).mean(0), states.mean(0))


def test_what_never_changes_does_no_harm():
    states, labels = drawn(2)
    constant = torch.full((len(states), 1), 7.0, dtype=torch.float64)
    twice = torch.cat((states, constant, states[:, :1]), 1)
    erased = leace(twice, labels, n_labels=3)(twice)
    torch.testing.assert_close(erased[:, :6], leace(states, labels, n_labels=3)(states))
    torch.testing.assert_close(erased[:, 6:7], constant)
    torch.testing.assert_close(erased[:, 7], erased[:, 0])


def test_one_round_of_nullspace_projection_leaves_something_and_all_rounds_nothing():
    states, labels = drawn(3, n_labels=2)
    gaps = [
        mean_gap(nullspace(states, labels, n_labels=2, rounds=rounds)(states), labels, n_labels=2)
        for rounds in (1, 6)
    ]
    assert gaps[0] > 1e-3
    assert gaps[1] < 1e-9
    assert nullspace(states, labels, n_labels=2, rounds=4).rank == 4


def test_states_keep_their_precision_and_their_axes():
    states, labels = drawn(4)
    erase = leace(states, labels, n_labels=3)
    many = states.float().reshape(20, 20, 6)
    found = erase(many)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.flatten(0, 1), erase(states).float(), atol=1e-4, rtol=1e-4)


def test_labels_must_fit():
    with pytest.raises(ValueError, match="label from 0 to 1 for each of 4"):
        leace(POINTS, torch.tensor([0, 1, 2, 0]), n_labels=2)
    with pytest.raises(ValueError, match="at least one round"):
        nullspace(POINTS, CLASSES, n_labels=2, rounds=0)
