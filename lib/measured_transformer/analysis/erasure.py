r"""Erases a property from states, so that no linear map can read it.

Three erasers, all of them affine maps that are fitted on states and labels and can then be applied to other
states. With the mean $\mu$ of the states they take $M (x - \mu)$ away from a state $x$.

- `mean_projection` takes away all along the differences of the classes' means, at right angles.
- `leace` (Belrose et al., 2023, "LEACE: Perfect linear concept erasure in closed form", section 4) makes the
  classes' means equal as well, and of all affine maps that do it is the one that moves the states least.
- `nullspace` fits a linear probe, takes away what it reads, fits the next one, and so on: INLP (Ravfogel et
  al., 2020, "Null it out"), the eraser of amnesic probing (Elazar et al., 2021).

Where the classes have equal means, no linear probe with a constant has a smaller convex loss than the best
constant answer (Belrose et al., section 3). `mean_gap` measures how far that is from being the case.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.analysis.probing import fit_probe

NEGLIGIBLE = 1e-9
"""Directions whose variance is below this share of the largest count as constant."""


@dataclass(frozen=True)
class Eraser:
    r"""An affine map that erases a property: $x$ becomes $x - M (x - \mu)$.

    Attributes:
        centre: the mean of the states that it was fitted on.
        taken: the matrix M.
        rank: dimension of the space that M maps to.
    """

    centre: Float[Tensor, "d_model"]
    taken: Float[Tensor, "d_model d_model"]
    rank: int

    def __call__(self, states: Float[Tensor, "*state d_model"]) -> Float[Tensor, "*state d_model"]:
        """The states without the property, in the precision that they came in."""
        exact = states.double()
        return (exact - (exact - self.centre) @ self.taken.T).to(states.dtype)


def leace(
    states: Float[Tensor, "example d_model"], labels: Int[Tensor, "example"], *, n_labels: int
) -> Eraser:
    r"""The eraser that makes the class means equal while moving the states least.

    With $W = \Sigma_{XX}^{-1/2}$ and P the orthogonal projection onto the columns of $W \Sigma_{XZ}$ it is
    $M = W^{-1} P W$: in coordinates in which the states are white, an orthogonal projection.

    Args:
        states: one row an example.
        labels: from 0 to `n_labels` - 1.
        n_labels: number of labels.

    Raises:
        ValueError: when the labels do not fit the states.

    >>> states = torch.tensor([[0.0, 1.0], [2.0, 1.0], [1.0, 3.0], [3.0, 3.0]])
    >>> erase = leace(states, torch.tensor([0, 0, 1, 1]), n_labels=2)
    >>> mean_gap(erase(states), torch.tensor([0, 0, 1, 1]), n_labels=2) < 1e-6
    True
    """
    x, z = _centred(states, labels, n_labels)
    covariance, crossed = x.T @ x / len(x), x.T @ z / len(x)
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > NEGLIGIBLE * values.max()
    values, vectors = values[kept], vectors[:, kept]
    white = vectors * values.rsqrt() @ vectors.T
    back = vectors * values.sqrt() @ vectors.T
    basis = _basis(white @ crossed)
    return Eraser(states.double().mean(0), back @ basis @ basis.T @ white, basis.shape[1])


def mean_projection(
    states: Float[Tensor, "example d_model"], labels: Int[Tensor, "example"], *, n_labels: int
) -> Eraser:
    """The eraser that projects out the span of the differences of the class means.

    Args:
        states: one row an example.
        labels: from 0 to `n_labels` - 1.
        n_labels: number of labels.

    Raises:
        ValueError: when the labels do not fit the states.
    """
    x, z = _centred(states, labels, n_labels)
    basis = _basis(x.T @ z / len(x))
    return Eraser(states.double().mean(0), basis @ basis.T, basis.shape[1])


def nullspace(
    states: Float[Tensor, "example d_model"],
    labels: Int[Tensor, "example"],
    *,
    n_labels: int,
    rounds: int,
) -> Eraser:
    """The eraser that projects out the directions of successive linear probes (INLP).

    The probes are the ridge regressions of `probing.fit_probe`, on states that are centred but not scaled by
    this function; each is fitted on what the ones before it have left.

    Args:
        states: one row an example.
        labels: from 0 to `n_labels` - 1.
        n_labels: number of labels.
        rounds: number of probes.

    Raises:
        ValueError: when the labels do not fit the states, or there is no round.
    """
    if rounds < 1:
        raise ValueError(f"expected at least one round, got {rounds}")
    x, _ = _centred(states, labels, n_labels)
    read = torch.zeros(x.shape[1], 0, dtype=x.dtype)
    for _ in range(rounds):
        left = x - x @ read @ read.T
        probe = fit_probe(left, labels, n_labels=n_labels)
        # In the coordinates of the states: the probe divides each entry by its scale.
        found = probe.weight / probe.scale[:, None]
        read = _basis(torch.cat((read, _basis(found - read @ (read.T @ found))), 1))
    return Eraser(states.double().mean(0), read @ read.T, read.shape[1])


def mean_gap(
    states: Float[Tensor, "example d_model"], labels: Int[Tensor, "example"], *, n_labels: int
) -> float:
    """Largest covariance of an entry of the states with a label's indicator; 0 where all means are equal.

    Raises:
        ValueError: when the labels do not fit the states.
    """
    x, z = _centred(states, labels, n_labels)
    return float((x.T @ z / len(x)).abs().max())


def moved(
    before: Float[Tensor, "example d_model"], after: Float[Tensor, "example d_model"]
) -> float:
    """Mean squared distance that states have moved, in units of their variance (summed over entries)."""
    spread = (before.double() - before.double().mean(0)).square().sum(-1).mean()
    return float((after.double() - before.double()).square().sum(-1).mean() / spread)


def _centred(
    states: Tensor, labels: Tensor, n_labels: int
) -> tuple[Float[Tensor, "example d_model"], Float[Tensor, "example label"]]:
    if (
        labels.shape != states.shape[:1]
        or not 0 <= int(labels.min()) <= int(labels.max()) < n_labels
    ):
        raise ValueError(
            f"expected a label from 0 to {n_labels - 1} for each of {len(states)} states, got shape "
            f"{tuple(labels.shape)} with values from {int(labels.min())} to {int(labels.max())}"
        )
    x = states.double()
    z = torch.nn.functional.one_hot(labels, n_labels).double()
    return x - x.mean(0), z - z.mean(0)


def _basis(columns: Float[Tensor, "d_model column"]) -> Float[Tensor, "d_model rank"]:
    """An orthonormal basis of what the columns span."""
    left, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    return left[:, sizes > 1e-9 * sizes.max().clamp_min(1e-300)]
