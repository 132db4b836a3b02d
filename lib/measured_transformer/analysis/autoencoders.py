"""Sparse autoencoders, and how well single units of any basis can be described.

A model's states are encoded as sums of few directions out of many, after Huben et al. (2024) and Bricken et al.
(2023). What comes out has to be judged: by how much of the states it keeps, and by how well a unit, be it a
latent, a neuron or a random direction, names properties of the text on places that nothing was chosen on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

# An autoencoder -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SparseAutoencoder:
    """States as sums of a few directions out of many.

    Attributes:
        encoder, encoder_bias: what each latent reads, a row each, and what it adds to it.
        decoder: what each latent writes, a row each, of length one.
        centre: subtracted before and added afterwards.
        k: how many latents of a state may speak; None for as many as are positive.
    """

    encoder: Float[Tensor, "latent d_model"]
    encoder_bias: Float[Tensor, "latent"]
    decoder: Float[Tensor, "latent d_model"]
    centre: Float[Tensor, "d_model"]
    k: int | None = None

    def encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch latent"]:
        """The activation of each latent in a state."""
        z = ((x - self.centre) @ self.encoder.T + self.encoder_bias).relu()
        if self.k is None:
            return z
        top = z.topk(self.k, dim=1)
        return torch.zeros_like(z).scatter(1, top.indices, top.values)

    def decode(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch d_model"]:
        """The state that the latents reconstruct."""
        return z @ self.decoder + self.centre


def fit_autoencoder(
    states: Iterator[Float[Tensor, "batch d_model"]],
    d_model: int,
    latents: int,
    generator: torch.Generator,
    *,
    k: int | None = None,
    penalty: float = 0.0,
    steps: int,
    learning_rate: float,
) -> SparseAutoencoder:
    """Train an autoencoder with Adam, a warm-up of 100 steps and a cosine.

    Args:
        states: batches of what is to be taken apart.
        d_model, latents: width of a state, and number of latents.
        generator: of the initial directions.
        k: keep the k largest latents of each state (TopK).
        penalty: what the sum of the latents costs (L1).
        steps: number of batches.
        learning_rate: at its highest.
    """
    decoder = F.normalize(torch.randn(latents, d_model, generator=generator), dim=1)
    encoder, bias = decoder.clone().requires_grad_(), torch.zeros(latents, requires_grad=True)
    decoder, centre = decoder.requires_grad_(), torch.zeros(d_model, requires_grad=True)
    updates = torch.optim.Adam([encoder, bias, decoder, centre])
    for step in range(steps):
        x = next(states)
        sparse = SparseAutoencoder(encoder, bias, decoder, centre, k)
        z = sparse.encode(x)
        wrong = (x - sparse.decode(z)).square().sum(1).mean()
        loss = wrong + penalty * z.sum(1).mean()
        updates.zero_grad()
        loss.backward()
        updates.param_groups[0]["lr"] = learning_rate * cosine_after_warmup(step, steps, 100)
        updates.step()
        with torch.no_grad():
            decoder /= decoder.norm(dim=1, keepdim=True)
    return SparseAutoencoder(encoder.detach(), bias.detach(), decoder.detach(), centre.detach(), k)


def cosine_after_warmup(step: int, steps: int, warmup: int) -> float:
    """Share of the highest learning rate: a rise over the first steps, times half a cosine."""
    return min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / steps))


def batches(states: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of 256 states, drawn with replacement, without end."""
    while True:
        yield states[torch.randint(len(states), (256,), generator=generator)]


def explained(x: Float[Tensor, "batch d_model"], y: Float[Tensor, "batch d_model"]) -> float:
    """Share of the variance of states that their reconstructions explain."""
    return float(1 - (x - y).square().sum() / (x - x.mean(0)).square().sum())


def best_match(
    true: Float[Tensor, "feature d_model"], found: Float[Tensor, "latent d_model"]
) -> tuple[Float[Tensor, "feature"], Int[Tensor, "feature"]]:
    """For each feature the largest cosine with a latent's direction, and that latent; all of length one."""
    cosine = (true @ found.T).max(1)
    return cosine.values, cosine.indices


# What units answer to -----------------------------------------------------------------------------

FEWEST = 20
"""So often a property must come, and a unit speak, in each half of the text that judges."""
QUANTILES = tuple(1 - 2 ** (-i / 2) for i in range(2, 19))
"""Thresholds that a unit may have: from one half of its values up to one in five hundred."""


@dataclass(frozen=True)
class Scores:
    """How well single units name properties of the text, by F1 on text that nothing was chosen on.

    Attributes:
        best: for each property the F1 of the unit that names it best.
        own: for each unit that speaks often enough the F1 of the property that it names best.
        swapped: the same with another unit in its place.
        per_unit: as `own`, but for every unit.
    """

    best: Float[Tensor, "property"]
    own: Float[Tensor, "unit"]
    swapped: Float[Tensor, "unit"]
    per_unit: Float[Tensor, "every"]


def score(units: Float[Tensor, "place unit"], held: Bool[Tensor, "property place"]) -> Scores:
    """Choose units, properties and thresholds on the first half of the places, then score them on the second.

    A unit names a place when it lies above a threshold, one of seventeen quantiles of its own values.
    """
    half, n = len(units) // 2, units.shape[1]
    threshold = torch.quantile(units[:half], torch.tensor(QUANTILES), dim=0)  # (quantile, unit)

    def f1(values: Tensor, true: Tensor) -> Tensor:
        named = (values[:, None] > threshold).float().flatten(1)
        both = true.float() @ named
        sizes = named.sum(0) + true.float().sum(1)[:, None]
        return (2 * both / sizes.clamp(min=1)).view(len(true), len(QUANTILES), n)

    chosen, judged = f1(units[:half], held[:, :half]), f1(units[half:], held[:, half:])
    best = judged.flatten(1).gather(1, chosen.flatten(1).argmax(1, keepdim=True))[:, 0]
    pick = chosen.flatten(0, 1).argmax(0)  # property and quantile of each unit
    by_unit = judged.flatten(0, 1)
    spoken = ((units[:half] > 0).sum(0) >= FEWEST) & ((units[half:] > 0).sum(0) >= FEWEST)
    each = torch.arange(n)
    own, swapped = by_unit[pick, each], by_unit[pick, each.roll(1)]
    return Scores(best, own[spoken], swapped[spoken], own)


def probe_f1(
    states: Float[Tensor, "place d_model"], held: Bool[Tensor, "property place"]
) -> Float[Tensor, "property"]:
    """F1 of a linear probe for each property: ridge regression and a threshold, both from the first half."""
    half = len(states) // 2
    x, y = states[:half].double(), held[:, :half].double().T
    moments = x.T @ x + 0.1 * torch.eye(x.shape[1], dtype=torch.float64)
    says = (states.double() @ torch.linalg.solve(moments, x.T @ (y - y.mean(0)))).float()
    threshold = torch.quantile(says[:half], torch.tensor(QUANTILES), dim=0)

    def f1(values: Tensor, true: Tensor) -> Tensor:
        named = values > threshold[:, None]
        return 2 * (named & true.T).sum(1) / (named.sum(1) + true.sum(1)).clamp(min=1)

    best = f1(says[:half], held[:, :half]).argmax(0, keepdim=True)
    return f1(says[half:], held[:, half:]).gather(0, best)[0]
