r"""More features than dimensions, and an autoencoder that is to take them apart again.

First toy models after Elhage et al. (2022), $x' = \operatorname{ReLU}(W^\top W x + b)$, many of them trained
at once: the phases of two features in one dimension, polygons in two, and the share of a dimension that each of
eighty features gets. Then a world whose features are known, and sparse autoencoders that look for them. Last
the machine of the chapter *A Transformer in one sitting*: what its stream holds, read by an autoencoder's
latents, by neurons and by other bases, before and after training.
"""

from __future__ import annotations

import lzma
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.autoencoders import (
    FEWEST,
    SparseAutoencoder,
    batches,
    best_match,
    cosine_after_warmup,
    explained,
    fit_autoencoder,
    probe_f1,
    score,
)
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.tasks.opened_text import TEXT, OpenedText, characters
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, make_model
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import job, measurement

# Features in the plane ----------------------------------------------------------------------------


def polygon(corners: int) -> Float[Tensor, "2 feature"]:
    """Unit vectors in the plane at equal angles, a column for each feature.

    >>> polygon(4).round().tolist()
    [[1.0, 0.0, -1.0, -0.0], [0.0, 1.0, 0.0, -1.0]]
    """
    angles = 2 * math.pi * torch.arange(corners, dtype=torch.float64) / corners
    return torch.stack([angles.cos(), angles.sin()])


def read_back(
    w: Float[Tensor, "d_model feature"], x: Float[Tensor, "*batch feature"], b: float | Tensor = 0.0
) -> Float[Tensor, "*batch feature"]:
    """What is read of features that were written side by side: ReLU(W^T W x + b)."""
    return (x @ w.T @ w + b).relu()


# Toy models ---------------------------------------------------------------------------------------


LATE = 200


@dataclass(frozen=True)
class Toys:
    """Toy models that were trained side by side.

    Attributes:
        weight: of each model, a column for each feature.
        bias: of each model.
        loss: of each model, mean over its last 200 batches.
    """

    weight: Float[Tensor, "model d_model feature"]
    bias: Float[Tensor, "model feature"]
    loss: Float[Tensor, "model"]

    @property
    def length(self) -> Float[Tensor, "model feature"]:
        """How strongly each feature is represented: the length of its column."""
        return self.weight.norm(dim=1)

    @property
    def direction(self) -> Float[Tensor, "model d_model feature"]:
        """The columns at length one."""
        return self.weight / self.weight.norm(dim=1, keepdim=True).clamp(min=1e-9)

    def best(self, of: int) -> Toys:
        """Of each `of` models in a row the one with the smallest loss."""
        first = torch.arange(0, len(self.loss), of)
        chosen = first + self.loss.view(-1, of).argmin(1)
        return Toys(self.weight[chosen], self.bias[chosen], self.loss[chosen])


def sparse_features(
    size: int,
    density: Float[Tensor, "model"],
    features: int,
    generator: torch.Generator,
) -> Float[Tensor, "model batch feature"]:
    """Features that are uniform between 0 and 1 with the probability `density`, and else 0."""
    shape = (len(density), size, features)
    on = torch.rand(shape, generator=generator) < density[:, None, None]
    return torch.rand(shape, generator=generator) * on


def train_toys(
    density: Float[Tensor, "model"],
    importance: Float[Tensor, "feature"],
    d_model: int,
    generator: torch.Generator,
    *,
    steps: int,
    batch: int,
    learning_rate: float = 0.02,
) -> Toys:
    """Train a toy model for each density, all at once, with Adam and a cosine of 50 steps of warm-up.

    Args:
        density: probability that a feature is on, for each model.
        importance: weight of each feature's squared error.
        d_model: dimensions that all features share.
        generator: of the initial weights and of the batches.
        steps, batch: number of batches, and inputs in one.
        learning_rate: at its highest.
    """
    shape = (len(density), d_model, len(importance))
    weight = (0.8 / math.sqrt(d_model) * torch.randn(shape, generator=generator)).requires_grad_()
    bias = torch.zeros(len(density), 1, len(importance), requires_grad=True)
    updates = torch.optim.Adam([weight, bias])
    late = torch.zeros(len(density))
    for step in range(steps):
        x = sparse_features(batch, density, len(importance), generator)
        wrong = x - (x @ weight.mT @ weight + bias).relu()
        loss = (importance * wrong.square()).sum(-1).mean(-1)
        updates.zero_grad()
        loss.sum().backward()
        updates.param_groups[0]["lr"] = learning_rate * cosine_after_warmup(step, steps, 50)
        updates.step()
        late += loss.detach() * (step >= steps - LATE) / LATE
    return Toys(weight.detach(), bias.detach()[:, 0], late)


# Two features, one dimension ----------------------------------------------------------------------

DENSITIES = tuple(round(10 ** (-i / 8), 4) for i in range(17))
"""Probabilities that a feature is on, from always to one in a hundred."""
IMPORTANCES = tuple(round(10 ** (i / 8 - 1), 4) for i in range(17))
"""Importance of the second feature; that of the first is one."""
PHASES = ("not represented", "own dimension", "superposed")
TRIES = 8
NODES = 10
PHASE_STEPS = 600


def strategy_losses(density: float, importance: float) -> dict[str, float]:
    """Exact losses of three ways to put two features into one dimension: weights 0, 1 or -1, and no bias.

    The second feature is left out (and guessed at its mean), has the dimension to itself, or shares it with the
    first at the opposite sign. Features are uniform between 0 and 1 with the probability `density`, else 0.

    >>> {way: round(loss, 3) for way, loss in strategy_losses(1.0, 1.0).items()}
    {'not represented': 0.083, 'own dimension': 0.083, 'superposed': 0.333}
    """
    variance = density / 3 - density**2 / 4
    both = density**2 * (1 + importance) / 6
    return dict(zip(PHASES, (importance * variance, variance, both), strict=True))


def border(ratio: float) -> float:
    """The density below which two features share one dimension, by the losses of `strategy_losses`.

    Args:
        ratio: importance of the less important feature over that of the other.

    >>> round(border(1.0), 3)
    0.571
    """
    return 4 * ratio / (2 + 5 * ratio)


def predicted_phase(density: float, importance: float) -> int:
    """The index in `PHASES` of the way with the smallest loss."""
    losses = strategy_losses(density, importance)
    return PHASES.index(min(losses, key=lambda way: losses[way]))


def two_features_inputs() -> tuple[Float[Tensor, "point 2"], Float[Tensor, "4 point"]]:
    """Points and weights of Gauss and Legendre's rule for two features, each of which is on or off.

    Returns:
        the points, and for each case (none is on, the first, the second, both) its points' weights.
    """
    found, share = np.polynomial.legendre.leggauss(NODES)
    at = torch.tensor((found + 1) / 2, dtype=torch.float32)
    weight = torch.tensor(share / 2, dtype=torch.float32)
    off = torch.zeros_like(at)
    points = [torch.zeros(1, 2), torch.stack([at, off], 1), torch.stack([off, at], 1)]
    points.append(torch.cartesian_prod(at, at))
    cases = torch.block_diag(torch.ones(1), weight, weight, (weight[:, None] * weight).flatten())
    return torch.cat(points), cases


def train_pairs(generator: torch.Generator) -> Float[Tensor, "density importance feature"]:
    """Train two features in one dimension for every density and importance, and give the best of eight tries.

    The loss is the expected one, by quadrature, so that no batch is drawn.
    """
    points, cases = two_features_inputs()
    p, r = (each.flatten() for each in _grid())
    chances = torch.stack([(1 - p) ** 2, p * (1 - p), p * (1 - p), p**2], 1)  # (cell, case)
    chance = chances @ cases
    importance = torch.stack([torch.ones_like(r), r], 1)
    weight = torch.randn(TRIES, len(p), 2, generator=generator).requires_grad_()
    bias = torch.zeros(TRIES, len(p), 2, requires_grad=True)
    updates = torch.optim.Adam([weight, bias])
    loss = torch.zeros(TRIES, len(p))
    for step in range(PHASE_STEPS):
        hidden = weight @ points.T  # (try, cell, point)
        loss = torch.zeros(TRIES, len(p))
        for i in range(2):
            read = (hidden * weight[..., i : i + 1] + bias[..., i : i + 1]).relu()
            loss = loss + importance[:, i] * ((points[:, i] - read).square() * chance).sum(-1)
        updates.zero_grad()
        loss.sum().backward()
        updates.param_groups[0]["lr"] = 0.03 * cosine_after_warmup(step, PHASE_STEPS, 1)
        updates.step()
    best = loss.argmin(0)
    return weight.detach()[best, torch.arange(len(p))].view(len(DENSITIES), len(IMPORTANCES), 2)


def _grid() -> tuple[Tensor, Tensor]:
    p, r = torch.meshgrid(torch.tensor(DENSITIES), torch.tensor(IMPORTANCES), indexing="ij")
    return p, r


def phase_of(weight: Float[Tensor, "*model feature"]) -> Int[Tensor, "*model"]:
    """The index in `PHASES` of a model of two features: a feature is represented from length 1/2 on."""
    first, second = (weight.abs() >= 0.5).unbind(-1)
    return torch.where(second, torch.where(first, 2, 1), 0)


def predicted_phases() -> Int[np.ndarray, "density importance"]:
    """`predicted_phase` over the whole grid."""
    return np.array([[predicted_phase(p, r) for r in IMPORTANCES] for p in DENSITIES])


@measurement(
    seeds=10,
    coords={"density": DENSITIES, "importance": IMPORTANCES},
    tolerance={"phase": 2.0, "agrees": 0.05, "opposite": 0.1},
)
def pairs(seed: int) -> dict[str, Any]:
    """Two features in one dimension, trained at 289 densities and importances: the phase of the second one."""
    weight = train_pairs(make_generator(seed, "pairs"))
    phase = phase_of(weight)
    shared = phase == PHASES.index("superposed")
    opposite = weight.prod(-1) < 0
    return {
        "phase": (("density", "importance"), phase.numpy()),
        "agrees": float((phase.numpy() == predicted_phases()).mean()),
        "opposite": float(opposite[shared].double().mean()),
    }


# Five features, two dimensions --------------------------------------------------------------------

LADDER = (1.0, 0.4, 0.2, 0.1, 0.05)
"""Densities at which five features are put into two dimensions."""
FADING = tuple(round(0.9**i, 4) for i in range(5))
"""Importances of the five."""
POLYGON_STEPS = 2000


@measurement(
    seeds=10,
    coords={"density": LADDER, "axis": (1, 2), "feature": (1, 2, 3, 4, 5)},
    tolerance={"weight": 3.0, "kept": 3.0, "nearest": 0.5, "bias": 1.0},
)
def polygons(seed: int) -> dict[str, Any]:
    """Five features in two dimensions, the best of four tries: where they lie, and the nearest two's cosine."""
    density = torch.tensor(LADDER).repeat_interleave(4)
    generator = make_generator(seed, "polygons")
    tried = train_toys(density, torch.tensor(FADING), 2, generator, steps=POLYGON_STEPS, batch=512)
    toys = tried.best(4)
    kept = toys.length > 0.5
    return {
        "weight": (("density", "axis", "feature"), _short(toys.weight)),
        "bias": (("density", "feature"), _short(toys.bias)),
        "kept": ("density", kept.sum(1).numpy()),
        "nearest": (
            "density",
            [nearest(u[:, k]) for u, k in zip(toys.direction, kept, strict=True)],
        ),
    }


def nearest(direction: Float[Tensor, "d_model feature"]) -> float:
    """The largest cosine between two different features; -1 where there are fewer than two.

    >>> round(nearest(polygon(5)), 3)
    0.309
    """
    if direction.shape[1] < 2:
        return -1.0
    cosines = direction.T @ direction
    return float(cosines.fill_diagonal_(-1.0).max())


def _short(values: Tensor) -> np.ndarray:
    """Three decimals, which is what figures show, keep a result's file small."""
    return np.asarray(values.double().numpy().round(3))


# Eighty features, sixteen dimensions --------------------------------------------------------------

FEATURES, DIMENSIONS = 80, 16
STEPS_DOWN = tuple(round(10 ** (-i / 9), 4) for i in range(19))
"""Densities, from always to one in a hundred."""
HALF = 0.3594
"""The density at which features are expected in pairs."""
SHARE_STEPS = 1000


def shares_of_a_dimension(
    weight: Float[Tensor, "*model d_model feature"],
) -> Float[Tensor, "*model feature"]:
    r"""Dimensionality of each feature, $\|w_i\|^2 / \sum_j (\hat w_i \cdot w_j)^2$ (Elhage et al., 2022).

    >>> shares_of_a_dimension(polygon(4)).round(decimals=6).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    length = weight.norm(dim=-2)
    overlap = (weight.mT @ weight).square().sum(-1) / length.square().clamp(min=1e-12)
    return length.square() / overlap.clamp(min=1e-12)


def welch_bound(d_model: int, vectors: int) -> float:
    """The least that the largest |cosine| among unit vectors can be (Welch, 1974).

    >>> round(welch_bound(2, 3), 3)
    0.5
    """
    return math.sqrt(max(0, vectors - d_model) / (d_model * (vectors - 1)))


@measurement(
    seeds=10,
    coords={"density": STEPS_DOWN, "feature": tuple(range(1, FEATURES + 1))},
    tolerance={
        "share": 1.0,
        "kept": 20.0,
        "per_dimension": 1.0,
        "worst": 0.3,
        "random_worst": 1e-5,
        "halves": 0.2,
    },
)
def dimensions(seed: int) -> dict[str, Any]:
    """Eighty features of one importance in sixteen dimensions, over densities: shares and cosines."""
    generator = make_generator(seed, "dimensions")
    importance = torch.ones(FEATURES)
    density = torch.tensor(STEPS_DOWN)
    toys = train_toys(density, importance, DIMENSIONS, generator, steps=SHARE_STEPS, batch=256)
    share = shares_of_a_dimension(toys.weight)
    kept = toys.length > 0.5
    half = STEPS_DOWN.index(HALF)
    drawn = torch.randn(DIMENSIONS, FEATURES, generator=make_generator(seed, "random directions"))
    return {
        "share": (("density", "feature"), _short(torch.where(kept, share, 0.0))),
        "kept": ("density", kept.sum(1).numpy()),
        "per_dimension": ("density", (toys.length.square().sum(1) / DIMENSIONS).numpy()),
        "worst": ("density", [nearest(u[:, k]) for u, k in zip(toys.direction, kept, strict=True)]),
        "random_worst": nearest(F.normalize(drawn, dim=0)),
        "halves": float(((share[half][kept[half]] - 0.5).abs() < 0.05).double().mean()),
    }


# A sparse autoencoder -----------------------------------------------------------------------------


# A world whose features are known -----------------------------------------------------------------

KNOWN, WORLD_WIDTH, FAMILIES = 96, 32, 16
"""Features, dimensions, and how many of the features have another one, their child, that never comes alone."""
ON, CHILD_ON = 0.03, 0.4
SIZES = (48, 96, 192, 384)
SPOKEN = 3
PENALTY = 0.6
ARMS = (*(f"TopK {size}" for size in SIZES), "L1 96", "L1 192")
COMPANY = ("alone", "with a stranger", "with its child")
WORLD_STEPS = 1200


@dataclass(frozen=True)
class World:
    """Known features in a stream: random directions, more than there are dimensions.

    Attributes:
        directions: a row of length one for each feature. The first `FAMILIES` are parents, the last their
            children, in the same order.
    """

    directions: Float[Tensor, "feature d_model"]

    def draw(self, size: int, generator: torch.Generator) -> Float[Tensor, "batch feature"]:
        """How much of each feature is there: 0, or 1/2 to 3/2. A child never comes without its parent."""
        on = (torch.rand(size, KNOWN, generator=generator) < ON).float()
        child = (torch.rand(size, FAMILIES, generator=generator) < CHILD_ON).float()
        on[:, -FAMILIES:] = child * on[:, :FAMILIES]
        return on * (0.5 + torch.rand(size, KNOWN, generator=generator))

    def states(self, generator: torch.Generator) -> Iterator[Float[Tensor, "batch d_model"]]:
        """Batches of 256 states."""
        while True:
            yield self.draw(256, generator) @ self.directions

    def company(self, who: str, generator: torch.Generator) -> Float[Tensor, "family try feature"]:
        """Each parent a hundred times: alone, with an unrelated feature, or with its child."""
        x = torch.zeros(FAMILIES, 100, KNOWN)
        amount = 0.5 + torch.rand(2, FAMILIES, 100, generator=generator)
        family = torch.arange(FAMILIES)
        x[family, :, family] = amount[0]
        if who != "alone":
            other = family + (FAMILIES if who == "with a stranger" else KNOWN - FAMILIES)
            x[family, :, other] = amount[1]
        return x


def make_world(seed: int) -> World:
    """Random directions."""
    drawn = torch.randn(KNOWN, WORLD_WIDTH, generator=make_generator(seed, "world"))
    return World(F.normalize(drawn, dim=1))


def fit_world(world: World, arm: str, seed: int) -> SparseAutoencoder:
    """The autoencoder of an arm, named by its kind and size."""
    kind, size = arm.split()
    how: dict[str, Any] = {"k": SPOKEN} if kind == "TopK" else {"penalty": PENALTY}
    return fit_autoencoder(
        world.states(make_generator(seed, "world states")),
        WORLD_WIDTH,
        int(size),
        make_generator(seed, f"autoencoder {size}"),
        steps=WORLD_STEPS,
        learning_rate=5e-3,
        **how,
    )


@measurement(
    seeds=10,
    coords={"arm": ARMS, "company": COMPANY, "kind": ("parent", "single", "child")},
    tolerance={
        "match": 0.1,
        "random": 1e-5,
        "by_kind": 0.2,
        "spoken": 3.0,
        "dead": 0.2,
        "explained": 0.1,
        "amount": 0.2,
        "heard": 0.3,
        "merged": 0.3,
        "composite": 0.2,
    },
)
def world(seed: int) -> dict[str, Any]:
    """Autoencoders in a world whose features are known: what they find, how much of it, and whom they drop."""
    known = make_world(seed)
    x = known.draw(8000, make_generator(seed, "world held out"))
    state = x @ known.directions
    company = {who: known.company(who, make_generator(seed, who)) for who in COMPANY}
    lines = [_found(known, fit_world(known, arm, seed), state, company) for arm in ARMS]
    drawn = [
        F.normalize(torch.randn(size, WORLD_WIDTH, generator=make_generator(seed, "drawn")), dim=1)
        for size in (*SIZES, 96, 192)
    ]
    axes = {"heard": ("arm", "company"), "by_kind": ("arm", "kind")}
    found = {name: (axes.get(name, ("arm",)), [line[name] for line in lines]) for name in lines[0]}
    random = [float(best_match(known.directions, each)[0].mean()) for each in drawn]
    return {**found, "random": ("arm", random)}


def _found(
    known: World,
    sparse: SparseAutoencoder,
    state: Float[Tensor, "batch d_model"],
    company: Mapping[str, Float[Tensor, "family try feature"]],
) -> dict[str, Any]:
    """What one autoencoder has found of the known features."""
    z = sparse.encode(state)
    cosine, latent = best_match(known.directions, sparse.decoder)
    parents = latent[:FAMILIES]
    heard, amount = [], 0.0
    for who, x in company.items():
        said = sparse.encode((x @ known.directions).flatten(0, 1)).view(FAMILIES, 100, -1)
        own = said[torch.arange(FAMILIES), :, parents]
        heard.append(float((own > 0).double().mean()))
        if who == "alone":
            amount = _amount(own, x[torch.arange(FAMILIES), :, torch.arange(FAMILIES)])
    parent, child = known.directions[:FAMILIES], known.directions[-FAMILIES:]
    together = F.normalize(parent + child, dim=1)
    by_kind = [cosine[:FAMILIES], cosine[FAMILIES:-FAMILIES], cosine[-FAMILIES:]]
    return {
        "match": float(cosine.mean()),
        "by_kind": [float(each.mean()) for each in by_kind],
        "spoken": float((z > 0).double().sum(1).mean()),
        "dead": float((z == 0).all(0).double().mean()),
        "explained": explained(state, sparse.decode(z)),
        "amount": amount,
        "heard": heard,
        "merged": float((sparse.decoder[latent[-FAMILIES:]] * parent).sum(1).mean()),
        "composite": float(best_match(together, sparse.decoder)[0].mean()),
    }


def _amount(said: Tensor, true: Tensor) -> float:
    """What a latent says over what is there, where it speaks at all."""
    spoke = said > 0
    return float(said[spoke].sum() / true[spoke].sum().clamp(min=1e-9))


# The book's language model ------------------------------------------------------------------------

PROSE = OpenedText(64)
GPT = Config(vocab=PROSE.vocab, d_model=64, n_layers=2, n_heads=4, positions="rotary")
GPT_STEPS = 1000
TAP = "blocks.0.residual_post"
NEURONS = "blocks.0.feedforward.neurons"
SEEN_FROM = 8
"""Positions before this one have seen too little to be asked."""
WINDOWS = 240
LATENTS, ACTIVE = 256, 8
SAE_STEPS = 1200
MODELS = ("trained", "untrained")
BASES = ("latents", "neurons", "ICA", "PCA", "random")
KINDS = ("character", "character before", "pair", "triple", "class")
CLASSES = {
    "a vowel": r"[aeiou]",
    "a capital": r"[A-Z]",
    "a digit": r"[0-9]",
    "a sentence's or clause's end": r"[.,;:!?]",
    "a bracket": r"[()\[\]{}]",
    "a space behind a full stop": r"\. ",
    "first letter of a word": r"(?<![A-Za-z])[A-Za-z]",
    "second letter": r"(?<![A-Za-z])[A-Za-z]{2}",
    "third letter": r"(?<![A-Za-z])[A-Za-z]{3}",
    "fifth letter or later": r"[A-Za-z]{5}",
    "a space behind a colon": r": ",
    "first character of a line": r"\n[\s\S]",
    "indentation": r"\n {2,}",
    "inside brackets": r"\([^()\n]*",
    "inside quotes": r"\"[^\"\n]*",
    "a line of code": r"\n {5}[^\n]*",
    "a word with a capital": r"[A-Z][A-Za-z]*",
}


@cache
def alphabet() -> str:
    """The characters of the text in the order of their tokens."""
    return "".join(sorted(set(lzma.decompress(TEXT.read_bytes()).decode("utf-8"))))


def _text(tokens: Int[Tensor, "position"]) -> str:
    return "".join(alphabet()[token] for token in tokens.tolist())


@cache
def properties() -> tuple[tuple[str, str], ...]:
    """What a state may tell about the text up to it, each with its kind and as a regular expression.

    The most frequent characters, characters before the last, pairs and triples of the training text; classes.
    """
    whole = _text(characters("train"))

    def frequent(n: int, count: int) -> list[str]:
        grams = Counter(whole[i : i + n] for i in range(len(whole) - n + 1))
        return [re.escape(gram) for gram, _ in grams.most_common(count)]

    found = [("character", one) for one in frequent(1, 50)]
    found += [("character before", one + r"[\s\S]") for one in frequent(1, 30)]
    found += [("pair", two) for two in frequent(2, 60)]
    found += [("triple", three) for three in frequent(3, 40)]
    return tuple(found + [("class", pattern) for pattern in CLASSES.values()])


@cache
def asked() -> tuple[Int[Tensor, "window position"], Int[Tensor, "window position"]]:
    """Inputs and targets of the text that judges: windows at equal distances in the part held out."""
    whole = characters("validation")
    first = torch.arange(WINDOWS) * (len(whole) // WINDOWS)
    first = torch.cat((first[::2], first[1::2]))  # the two halves are of all chapters alike
    windows = whole[first[:, None] + torch.arange(64)]
    start = torch.full((WINDOWS, 1), PROSE.vocab - 1)
    return torch.cat((start, windows[:, :-1]), 1), windows


@cache
def labels() -> tuple[tuple[str, ...], Bool[Tensor, "property place"]]:
    """Which properties hold where in the text that judges, of those that come often enough; and their kinds."""
    ends = [(kind, re.compile(rf"(?:{pattern})\Z")) for kind, pattern in properties()]
    texts = [_text(window[1:]) for window in asked()[0]]
    places = [text[:end] for text in texts for end in range(SEEN_FROM, 64)]
    held = torch.tensor([[bool(end.search(place)) for place in places] for _, end in ends])
    half = held.shape[1] // 2
    often = (held[:, :half].sum(1) >= FEWEST) & (held[:, half:].sum(1) >= FEWEST)
    kinds = tuple(kind for (kind, _), kept in zip(ends, often.tolist(), strict=True) if kept)
    return kinds, held[often]


def independent_components(
    states: Float[Tensor, "place d_model"], generator: torch.Generator, rounds: int = 40
) -> Float[Tensor, "d_model component"]:
    """Directions along which states are least like normal numbers: FastICA with tanh, all at once."""
    x = states - states.mean(0)
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    whiten = vectors / values.clamp(min=1e-6).sqrt()
    white = x @ whiten
    turn = torch.linalg.qr(torch.randn(x.shape[1], x.shape[1], generator=generator)).Q
    for _ in range(rounds):
        bent = (white @ turn).tanh()
        turn = white.T @ bent / len(x) - turn * (1 - bent.square()).mean(0)
        u, _, v = torch.linalg.svd(turn)
        turn = u @ v
    return whiten @ turn


@torch.no_grad()
def states_of(
    model: Model, tokens: Int[Tensor, "window position"]
) -> dict[str, Float[Tensor, "place width"]]:
    """The stream behind the first block and the neurons of its network, at all places that are asked."""
    with capture(model, TAP, NEURONS) as seen:
        model(tokens)
    return {name: seen[name][:, SEEN_FROM:].flatten(0, 1) for name in (TAP, NEURONS)}


@torch.no_grad()
def loss_with(model: Model, change: Any) -> float:
    """Nats a character on the text that judges, with the stream behind the first block changed."""
    inputs, targets = asked()
    with intervene(model, {TAP: change}):
        logits = model(inputs)[:, SEEN_FROM:]
    return float(F.cross_entropy(logits.flatten(0, 1), targets[:, SEEN_FROM:].flatten()))


@dataclass(frozen=True)
class Stream:
    """An autoencoder on a model's stream, and what brings states to the size that it reads.

    Attributes:
        sparse: the autoencoder.
        middle, spread: mean of the states, and the root of their summed variance.
        fitted: the states that it was trained on, at its size.
    """

    sparse: SparseAutoencoder
    middle: Float[Tensor, "d_model"]
    spread: Float[Tensor, ""]
    fitted: Float[Tensor, "place d_model"]

    def sized(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """States at the size that the autoencoder reads."""
        return (states - self.middle) / self.spread

    def rebuilt(self, states: Float[Tensor, "batch position d_model"]) -> Tensor:
        """What the autoencoder makes of a model's states."""
        flat = self.sized(states).flatten(0, 1)
        found = self.sparse.decode(self.sparse.encode(flat)) * self.spread + self.middle
        return found.view_as(states)


def fit_stream(model: Model, seed: int) -> Stream:
    """Train an autoencoder on what a model's stream holds behind the first block."""
    read = PROSE.batch(make_generator(seed, "autoencoder text"), 1000)
    states = states_of(model, read.inputs)[TAP]
    middle = states.mean(0)
    spread = (states - middle).square().sum(1).mean().sqrt()
    fitted = (states - middle) / spread
    generator = make_generator(seed, "autoencoder")
    sparse = fit_autoencoder(
        batches(fitted, generator),
        states.shape[1],
        LATENTS,
        generator,
        k=ACTIVE,
        steps=SAE_STEPS,
        learning_rate=3e-3,
    )
    return Stream(sparse, middle, spread, fitted)


def score_bases(model: Model, seed: int) -> dict[str, Any]:
    """Train an autoencoder on a model's stream, and score its latents beside other bases on text held out."""
    stream, judged = fit_stream(model, seed), states_of(model, asked()[0])
    x, y, sparse = stream.fitted, stream.sized(judged[TAP]), stream.sparse
    z = sparse.encode(y)
    components = independent_components(x[:8000], make_generator(seed, "ICA"))
    principal = torch.linalg.eigh(x.T @ x).eigenvectors
    drawn = torch.randn(64, LATENTS, generator=make_generator(seed, "random basis"))
    units = {
        "latents": z,
        "neurons": judged[NEURONS],
        "ICA": _both(y @ components),
        "PCA": _both(y @ principal),
        "random": y @ drawn,
    }
    kinds, held = labels()
    scores = {name: score(units[name], held) for name in BASES}
    by_kind = {name: _by_kind(scores[name].best, kinds) for name in BASES}

    whole, mean = (
        loss_with(model, lambda s: s),
        loss_with(model, lambda s: stream.middle.expand_as(s)),
    )
    probe = probe_f1(y, held)
    return {
        "best": [float(scores[name].best.mean()) for name in BASES],
        "by_kind": [by_kind[name] for name in BASES],
        "own": [float(scores[name].own.mean()) for name in BASES],
        "clear": [float((scores[name].own > 0.7).double().mean()) for name in BASES],
        "swapped": float(scores["latents"].swapped.mean()),
        "probe": float(probe.mean()),
        "readable": int((probe >= 0.8).sum()),
        "explained": explained(y, sparse.decode(z)),
        "dead": float((z == 0).all(0).double().mean()),
        "whole": whole,
        "spliced": loss_with(model, stream.rebuilt),
        "mean": mean,
    }


def _both(values: Tensor) -> Tensor:
    """A direction may speak at either end: each counts as a unit."""
    return torch.cat((values, -values), 1)


def _by_kind(best: Tensor, kinds: tuple[str, ...]) -> list[float]:
    return [float(best[[kind == one for one in kinds]].mean()) for kind in KINDS]


def language_trainings(seed: int) -> dict[str, Job]:
    """The machine of one sitting, on the same text behind a start token."""
    schedule = WarmupCosine(100, GPT_STEPS)
    options = {"batch_size": 16, "schedule": schedule}
    return {"gpt": job(GPT, PROSE, seed, steps=GPT_STEPS, learning_rate=8e-3, **options)}


@measurement(
    seeds=10,
    coords={"model": MODELS, "basis": BASES, "kind": KINDS},
    trainings=language_trainings,
    repeat="opening",
    tolerance={"best": 0.1, "by_kind": 0.3, "own": 0.1, "clear": 0.2, "readable": 30.0},
    data=(TEXT,),
)
def language(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """A small language model's stream, trained and untrained, in an autoencoder's latents and other bases."""
    models = (runs["gpt"].model, make_model(GPT, causal=True, seed=seed).eval())
    found = [score_bases(model, seed) for model in models]
    axes: dict[str, tuple[str, ...]] = dict.fromkeys(("best", "own", "clear"), ("model", "basis"))
    axes["by_kind"] = ("model", "basis", "kind")
    return {name: (axes.get(name, ("model",)), [each[name] for each in found]) for name in found[0]}


PORTRAITS = ("character", "pair", "triple", "class", "worst")
"""Latents that are shown: of each kind the one that names a property best, and the one that names none well."""
LINES, WIDE = 4, 30


@measurement(
    seeds=1,
    coords={"latent": PORTRAITS, "line": tuple(range(LINES)), "place": tuple(range(WIDE))},
    trainings=language_trainings,
    repeat="opening",
    tolerance={"token": 200.0, "says": 9.0, "f1": 1.0},
    data=(TEXT,),
)
def portraits(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Some latents of the first model at work: places of the judging text where they speak, loud and low."""
    model = runs["gpt"].model
    stream, inputs = fit_stream(model, seed), asked()[0]
    z = stream.sparse.encode(stream.sized(states_of(model, inputs)[TAP]))
    kinds, held = labels()
    own = torch.stack(
        [score(z, held[[k == kind for k in kinds]]).per_unit for kind in PORTRAITS[:-1]]
    )
    chosen = [int(each.argmax()) for each in own]
    speaks = (z > 0).sum(0) >= 4 * FEWEST
    chosen.append(int(torch.where(speaks, own.amax(0), 2.0).argmin()))
    f1 = [*own.amax(1).tolist(), float(own.amax(0)[chosen[-1]])]
    by_place = z.view(len(inputs), 64 - SEEN_FROM, -1)
    tokens, says = [], []
    for latent in chosen:
        loudest = by_place[..., latent].amax(1).sort(descending=True)
        some = int((loudest.values > 0).sum())
        for rank in (0, some // 4, some // 2, 3 * some // 4):
            window = int(loudest.indices[rank])
            line = by_place[window, :, latent]
            start = min(max(int(line.argmax()) - WIDE // 2, 0), len(line) - WIDE)
            says.append(line[start : start + WIDE])
            tokens.append(inputs[window, SEEN_FROM + start : SEEN_FROM + start + WIDE])
    shape = (len(PORTRAITS), LINES, WIDE)
    axes = ("latent", "line", "place")
    return {
        "token": (axes, torch.stack(tokens).view(shape).numpy()),
        "says": (axes, _short(torch.stack(says).view(shape))),
        "f1": ("latent", f1),
    }
