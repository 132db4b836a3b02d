"""Exercises of the chapter on superposition."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/feed-forward/superposition"


@exercise(_CHAPTER)
def neighbours(answer: Answer) -> None:
    """The five numbers that are read in the pentagon, after a ReLU, when features 1 and 2 are on."""
    found = tensor(answer.numbers("1", "2", "3", "4", "5"), (5,)).double()
    demand(
        not close(found, torch.tensor([1.309, 1.309, -0.5, -1.618, -0.5]), 0.01),
        "these are the readings before the ReLU",
    )
    demand(
        not close(found, torch.tensor([1.0, 1.0, 0, 0, 0]), 0.01),
        "each of the two also hears the other",
    )
    demand(
        not close(found[:2], torch.tensor([0.191, 0.191]), 0.01),
        "these two are neighbours: their cosine is positive",
    )
    right = torch.tensor([1.309, 1.309, 0, 0, 0])
    wrong = [i + 1 for i in range(5) if not close(found[i], right[i], 0.01)]
    named = ", ".join(map(str, wrong))
    demand(not wrong, f"look again at {named}: add what it hears of 1 to what it hears of 2")


def _case(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, biases, inputs and importances of a small toy model."""
    w, b = normal(3, 5, seed=seed), normal(5, seed=seed + 10)
    return w, b, normal(7, 5, seed=seed + 20).relu(), normal(5, seed=seed + 30).abs()


@exercise(_CHAPTER)
def toy_loss(answer: Answer) -> None:
    """Write `toy_loss(w, b, x, importance)`: weighted squared error of ReLU(W^T W x + b), mean over inputs."""
    for seed in range(3):
        w, b, x, importance = _case(seed)
        found = number(answer(w, b, x, importance))
        before = x @ w.T @ w + b
        wrong = (x - before.relu()).square()
        right = float((importance * wrong).sum(1).mean())
        near = {
            float((importance * (x - before).square()).sum(1).mean()): "where is the ReLU?",
            float(
                (importance * (x - (before - b).relu()).square()).sum(1).mean()
            ): "where is the bias?",
            float(wrong.sum(1).mean()): "the features differ in importance",
            float((importance * wrong).mean()): "over features it is a sum, not a mean",
            float((importance * wrong).sum()): "over inputs it is a mean, not a sum",
        }
        for value, words in near.items():
            demand(not close(found, value) or close(found, right), words)
        demand(close(found, right), f"it gives {found:.4g}; go through the formula from the inside")


@exercise(_CHAPTER)
def border(answer: Answer) -> None:
    """Write `border(r)`: the density below which two features share a dimension."""
    for r in (1.0, 0.5, 0.1, 2.0, 10.0):
        found = number(answer(r))
        rho = min(r, 1 / r)
        right = 4 * rho / (2 + 5 * rho)
        if r > 1:
            demand(
                not close(found, 4 * r / (2 + 5 * r)),
                f"for r={r:g} it gives {found:.3g}: above 1 it is the first feature that would be lost",
            )
        demand(
            not close(found, 2 * rho / (1 + rho)),
            f"for r={r:g} it gives {found:.3g}: the variance of a feature has a second term, p^2/4",
        )
        demand(
            close(found, right),
            f"for r={r:g} it gives {found:.3g}; set the two losses equal and divide by p",
        )


@exercise(_CHAPTER)
def shares(answer: Answer) -> None:
    """Write `shares(w)`: the share of a dimension of each column."""
    square = torch.tensor([[1.0, 0, -1, 0], [0, 1, 0, -1]]).double()
    found = tensor(answer(square), (4,))
    demand(close(found, torch.full((4,), 0.5)), "two opposite columns have one half each")
    for seed in range(3):
        w = normal(3, 6, seed=seed)
        found = tensor(answer(w), (6,))
        length = w.norm(dim=0)
        unit = w / length
        demand(
            not close(found, 1 / (unit.T @ unit).square().sum(1)),
            "the other columns come with their own lengths",
        )
        demand(
            not close(found, length**2 / (w.T @ w).square().sum(1)),
            "under the sum the column itself has length one",
        )
        right = length**2 / (unit.T @ w).square().sum(1)
        demand(close(found, right), "not for columns of different lengths")


@exercise(_CHAPTER)
def train_toy(answer: Answer) -> None:
    """Write `train_toy()`: the weights of a trained toy model, five features in two dimensions."""
    w = tensor(answer(), (2, 5)).double()
    length = w.norm(dim=0)
    kept = int((length > 0.5).sum())
    demand(
        kept == 5,
        f"{kept} of the five columns are longer than one half: take the best of more tries",
    )
    unit = w / length
    cosines = (unit.T @ unit).fill_diagonal_(-1.0)
    demand(
        float(cosines.max()) < 0.45,
        f"two columns have a cosine of {float(cosines.max()):.2f}, in a regular pentagon it is 0.31: more "
        "tries, or more steps",
    )
    demand(
        not close(length, torch.ones(5), 1e-4) or float(cosines.max()) > 0.32,
        "this is the pentagon made by hand; let training find it, and its lengths",
    )


@exercise(_CHAPTER)
def top(answer: Answer) -> None:
    """Write `top(z, k)`: the k largest positive entries of each row, all others zero."""
    for seed, k in ((0, 1), (1, 3), (2, 8)):
        z = normal(6, 8, seed=seed)
        found = tensor(answer(z, k), (6, 8))
        kept = z.topk(k, dim=1)
        signed = torch.zeros_like(z).scatter(1, kept.indices, kept.values)
        right = signed.relu()
        size = z.abs().topk(k, dim=1).indices
        by_size = torch.zeros_like(z).scatter(1, size, z.gather(1, size))
        demand(not close(found, signed) or close(found, right), "what is negative is not kept")
        demand(
            not (close(found, by_size) or close(found, by_size.relu())) or close(found, right),
            "the largest, not the largest in magnitude",
        )
        demand(
            not close(found, (right > 0).double()) or close(found, right),
            "keep the entries themselves, not ones",
        )
        whole = z.flatten().topk(6 * k).values[-1]
        demand(
            not close(found, torch.where(z >= whole, z, 0.0).relu()) or close(found, right),
            "the k largest of each row, not of all rows together",
        )
        demand(close(found, right), f"for k={k} other entries are kept")


@exercise(_CHAPTER)
def find(answer: Answer) -> None:
    """Write `find(states, latents, k)`: the directions of a sparse autoencoder's latents."""
    true = F.normalize(normal(24, 12, seed=5), dim=1)
    generator = torch.Generator().manual_seed(6)
    on = torch.rand(8000, 24, generator=generator) < 0.06
    amount = on * (0.5 + torch.rand(8000, 24, generator=generator))
    given = tensor(answer((amount.double() @ true).float(), 32, 2), (32, 12)).double()
    demand(
        close(given.norm(dim=1), torch.ones(32), 1e-3),
        "the directions should have length one, so that no latent says little and writes much",
    )
    cosine = float((true @ given.T).amax(1).mean())
    demand(
        cosine > 0.85,
        f"the mean largest cosine with the true directions is {cosine:.2f}, which is too little "
        "(32 random ones have some 0.55)",
    )


@exercise(_CHAPTER)
def found_again(answer: Answer) -> None:
    """Write `found_again(true, found)`: mean over true directions of the largest cosine with a found one."""
    for seed in range(3):
        true, found = 2 * normal(5, 4, seed=seed), 3 * normal(7, 4, seed=seed + 10)
        cosine = F.normalize(true, dim=1) @ F.normalize(found, dim=1).T
        given = number(answer(true, found))
        right = float(cosine.amax(1).mean())
        demand(
            not close(given, float((true @ found.T).amax(1).mean())),
            "directions may have any length",
        )
        demand(
            not close(given, float(cosine.amax(0).mean())),
            "this asks for each direction found whether it is a true one",
        )
        demand(
            not close(given, float(cosine.max())),
            "each true direction counts, not the luckiest alone",
        )
        demand(
            not close(given, float(cosine.abs().amax(1).mean())) or close(given, right),
            "a direction and its opposite are two",
        )
        demand(close(given, right), f"it gives {given:.4g}")
