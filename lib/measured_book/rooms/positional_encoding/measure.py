"""What the chapter on positional encoding measures: tables of vectors, and models that are given them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.positions import equivariance_error, position_vectors
from measured_transformer.analysis.sinusoids import (
    distinct_rows,
    exp_log_table,
    explained_by_offset,
    offset_deviation,
    rounded_angles,
    similarity_by_distance,
    smallest_distance,
    turn_rates,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.positions import (
    LearnedPositions,
    SinusoidalPositions,
    sinusoidal_encoding,
)
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.positions import Band, RandomTable, third
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

Model = Decoder | Encoder
WIDTH = 64
POSITIONS = 100


# What is added to the tokens ----------------------------------------------------------------------

TASK = Reversal(vocab=12, length=12)
STEPS = 300
BATCH = 32
RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
"""The grid of learning rates, the same for all arms."""
FAINT = {"random 0.3": 0.3, "random 0.2": 0.2, "random 0.1": 0.1}
"""Arms with random vectors made shorter, and by what factor."""
ARMS = (
    "none",
    "random",
    "learned",
    "sinusoidal",
    "count everywhere",
    "count in one entry",
    "fraction",
    "digits",
    "fastest third",
    "middle third",
    "slowest third",
    *FAINT,
)


def first_idea(kind: str, n: int, d: int) -> Float[Tensor, "position d_model"]:
    """A table by one of the ideas that come before waves, for positions 0 to n - 1.

    Args:
        kind: 'count everywhere' (all entries are the position), 'count in one entry' (the first is, the
            others are zero), 'fraction' (the first is the position as a share of the last one) or 'digits'
            (the first entries are its binary digits, the lowest first).
        n: number of positions.
        d: width.

    Raises:
        ValueError: another kind, or more digits than entries.
    """
    position, table = torch.arange(n), torch.zeros(n, d)
    if kind == "count everywhere":
        return table + position[:, None]
    if kind in ("count in one entry", "fraction"):
        table[:, 0] = position if kind != "fraction" else position / max(1, n - 1)
        return table
    count = max(1, (n - 1).bit_length())
    if kind != "digits" or count > d:
        raise ValueError(f"expected a known kind that fits into {d} entries, got {kind!r} of {n}")
    table[:, :count] = (position[:, None] >> torch.arange(count) & 1).to(table.dtype)
    return table


@dataclass(frozen=True)
class FixedTable:
    """A preparation for training: the table of learned positions holds one of `first_idea` and stays so."""

    kind: str

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Write the table and freeze it. Raises ValueError when the model has none."""
        table = _table(model)
        table.copy_(first_idea(self.kind, *table.shape))
        table.requires_grad_(False)


@dataclass(frozen=True)
class FaintTable:
    """A preparation for training: the random table as it was drawn, times a factor, and not trained."""

    factor: float

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Scale the table and freeze it. Raises ValueError when the model has none."""
        table = _table(model)
        table.mul_(self.factor)
        table.requires_grad_(False)


def _table(model: Model) -> torch.nn.Parameter:
    positions = model.positions
    if not isinstance(positions, LearnedPositions):
        raise ValueError(
            f"expected a model with learned positions, got {model.config.positions}; "
            "make it from a config with positions='learned'"
        )
    return positions.table


def arm(name: str) -> tuple[Config, dict[str, Any]]:
    """The config of an arm, and what it changes in the training."""
    with_table = Config(
        vocab=TASK.vocab, d_model=WIDTH, max_length=TASK.length, positions="learned"
    )
    if name in ("none", "sinusoidal"):
        return with_table.replace(positions=name), {}
    if name == "learned":
        return with_table, {}
    prepare: dict[str, Any] = {
        "random": RandomTable(),
        "fastest third": Band("fastest"),
        "middle third": Band("middle"),
        "slowest third": Band("slowest"),
        **{faint: FaintTable(factor) for faint, factor in FAINT.items()},
    }
    return with_table, {"prepare": prepare.get(name) or FixedTable(name)}


def reversal_trainings(seed: int) -> dict[str, Job]:
    """Every arm, at the learning rate that suits it."""
    jobs = {}
    for name in ARMS:
        config, options = arm(name)
        options = {**options, "batch_size": BATCH}
        search = Search(
            f"tables-{name.replace(' ', '-')}", config, TASK, RATES, tuning_seeds(2), STEPS, options
        )
        jobs[name] = job(config, TASK, seed, steps=STEPS, learning_rate=tuned(search), **options)
    return jobs


@measurement(
    seeds=10,
    coords={"arm": ARMS, "i": tuple(range(12)), "j": tuple(range(12))},
    trainings=reversal_trainings,
    tolerance={"accuracy": 0.05, "nearest": 0.5, "learned": 5.0},
)
def reversal(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two blocks on reversal of 12 tokens, by the vectors that are added: accuracy after 300 steps."""
    models: dict[str, Any] = {name: run.model for name, run in runs.items()}
    tables = {name: position_vectors(model, TASK.length).double() for name, model in models.items()}
    learned = tables["learned"]
    return {
        "accuracy": (
            "arm",
            [evaluate(models[a], TASK, seed=seed, size=1024).accuracy for a in ARMS],
        ),
        "nearest": ("arm", [smallest_distance(tables[a]) for a in ARMS]),
        "learned": (("i", "j"), learned @ learned.T),
        "word": float(words_of(models["none"]).norm(dim=1).mean()),
    }


@torch.no_grad()
def words_of(model: Model) -> Float[Tensor, "vocab d_model"]:
    """The vectors with which a model's tokens enter the stream, without positions."""
    embedding: Any = model.token_embedding
    return model.config.embedding_factor * embedding.weight.detach()


# Identities, on tables and layers of drawn sizes --------------------------------------------------

PRECISIONS = ("float64", "float32")


@measurement(
    seeds=100,
    coords={"precision": PRECISIONS},
    repeat=2,
    tolerance={"closed": 1e-5, "shuffled": 1e-12, "module": 1e-12, "stream": 1e-12},
)
def drawn(seed: int) -> dict[str, Any]:
    """A drawn layer and drawn tables against what is proved of them, each beside a control that must differ."""
    rng, generator = np.random.default_rng(seed), make_generator(seed, "drawn tables")
    return {
        **_shuffling(rng, seed, generator),
        **_similarity(rng, generator),
        **_turning(rng),
        **_module(rng, seed, generator),
        **_projected(generator),
    }


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _shuffling(rng: Any, seed: int, generator: torch.Generator) -> dict[str, Any]:
    """Attending to shuffled inputs against shuffling what was attended to; the control has a causal mask."""
    heads, n = int(rng.integers(1, 5)), int(rng.integers(8, 40))
    with seeded(seed):
        layer = MultiHeadAttention(8 * heads, heads).double()
    x = _normal(2, n, 8 * heads, generator=generator)
    order = torch.randperm(n, generator=generator)
    return {
        "shuffled": equivariance_error(layer, x, order),
        "shuffled_control": equivariance_error(layer, x, order, causal=True),
    }


def _similarity(rng: Any, generator: torch.Generator) -> dict[str, Any]:
    """Dot products of a table's rows against the closed form; the control is a random table."""
    n, d = int(rng.integers(8, 300)), 2 * int(rng.integers(1, 65))
    random = _normal(n, d, generator=generator) / math.sqrt(2)
    dots = sinusoidal_encoding(n, d, dtype=torch.float64)
    dots = dots @ dots.T
    rivals = dots.clone().fill_diagonal_(-math.inf)
    return {
        "closed": ("precision", [closed_form_error(n, d, getattr(torch, p)) for p in PRECISIONS]),
        "closed_control": offset_deviation(random @ random.T),
        "diagonal": float((dots.diagonal() - d / 2).abs().max()),
        "diagonal_control": float((random.square().sum(1) - d / 2).abs().max()),
        "rival": float(rivals.max() / (d / 2)),
    }


def closed_form_error(n: int, d: int, dtype: torch.dtype) -> float:
    """Largest deviation of the dot products of a table's rows from the sum of cosines at their distance."""
    table, position = sinusoidal_encoding(n, d, dtype=dtype), torch.arange(n)
    closed = torch.from_numpy(similarity_by_distance(n, d))[(position[:, None] - position).abs()]
    return float(((table @ table.T).double() - closed).abs().max())


def _turning(rng: Any) -> dict[str, Any]:
    """Rates at which pairs turn against the formula; the control is the formula with i in place of 2i."""
    d, base = 2 * int(rng.integers(2, 65)), float(10 ** rng.uniform(1, 5))
    rates = turn_rates(sinusoidal_encoding(64, d, base=base, dtype=torch.float64))
    i = torch.arange(d // 2, dtype=torch.float64)
    return {
        "rates": float((rates - base ** (-2 * i / d)).abs().max()),
        "rates_control": float((rates - base ** (-i / d)).abs().max()),
    }


def _module(rng: Any, seed: int, generator: torch.Generator) -> dict[str, Any]:
    """The library's module against the definition, alone and in the stream of an encoder."""
    n, d = int(rng.integers(2, 200)), 2 * int(rng.integers(1, 33))
    rows, wanted = SinusoidalPositions(d).double()(n), by_definition(n, d)
    with seeded(seed):
        model = Encoder(Config(vocab=9, d_model=d, n_heads=1, n_layers=1)).double()
    tokens = torch.randint(9, (3, n), generator=generator)
    with capture(model, "embedding") as seen, torch.no_grad():
        model(tokens)
    alone = words_of(model)[tokens]
    return {
        "module": float((rows - wanted).abs().max()),
        "module_control": float((rows - cosines_first(wanted)).abs().max()),
        "stream": float((seen["embedding"] - alone - wanted).abs().max()),
        "stream_control": float((seen["embedding"] - alone).abs().max()),
    }


def by_definition(n: int, d: int) -> Float[Tensor, "position d_model"]:
    """The sinusoidal table, written straight from its equation, in numpy."""
    position, i = np.arange(n)[:, None], np.arange(d // 2)
    angle = position / 10000 ** (2 * i / d)
    return torch.from_numpy(np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, d))


def cosines_first(table: Float[Tensor, "position d_model"]) -> Float[Tensor, "position d_model"]:
    """A table with sine and cosine of each pair exchanged: another table, so a comparison must fail."""
    return table.unflatten(1, (-1, 2)).flip(-1).flatten(1)


def _projected(generator: torch.Generator) -> dict[str, Any]:
    """How much of the variance of the scores the offset explains after projections of an untrained head."""
    table = sinusoidal_encoding(POSITIONS, WIDTH, dtype=torch.float64)
    query, key = _normal(2, WIDTH, 16, generator=generator) / 8
    return {"explained": explained_by_offset((table @ query) @ (table @ key).T)}


# The table that everybody uses --------------------------------------------------------------------

UP_TO = (64, 128, 256, 512, 1024, 2048, 4096)
ROUTES = ("rounded at the end", "all in bfloat16", "all in float16")
WIDTHS = (16, 64, 512)


@measurement(
    seeds=1,
    coords={
        "distance": tuple(range(POSITIONS)),
        "pair": tuple(range(WIDTH // 2)),
        "pair_of_16": tuple(range(8)),
        "positions": (100, 5000),
        "width": WIDTHS,
        "precision": PRECISIONS,
        "position": tuple(range(POSITIONS)),
        "route": ROUTES,
        "up_to": UP_TO,
    },
    tolerance={"exp_log": 1e-5, "exp_log_16": 1e-12, "rates_16": 1e-12, "stray": 1e-12},
)
def tables(seed: int) -> dict[str, Any]:
    """Sinusoidal tables of base 10000: similarity by distance, turns, nearest rows, what rounding leaves."""
    del seed  # nothing is drawn
    table = sinusoidal_encoding(POSITIONS, WIDTH, dtype=torch.float64)
    narrow = sinusoidal_encoding(50, 16, dtype=torch.float64)
    i = torch.arange(8, dtype=torch.float64)
    far = similarity_by_distance(5000, WIDTH)
    errors = [exp_log_errors(POSITIONS, WIDTH, getattr(torch, p)) for p in PRECISIONS]
    error_16, control_16 = exp_log_errors(50, 16, torch.float64)
    return {
        "similarity": ("distance", far[:POSITIONS]),
        "last_above_40": int(np.flatnonzero(far > far[40]).max()),
        "period": ("pair", 2 * math.pi / turn_rates(table)),
        "period_16": ("pair_of_16", 2 * math.pi / turn_rates(narrow)),
        "rates_16": ("pair_of_16", (turn_rates(narrow) - 10000 ** (-2 * i / 16)).abs()),
        "rates_16_control": float((turn_rates(narrow) - 10000 ** (-i / 16)).abs().max()),
        "nearest": (
            ("positions", "width"),
            [
                [smallest_distance(sinusoidal_encoding(n, d, dtype=torch.float64)) for d in WIDTHS]
                for n in (100, 5000)
            ],
        ),
        "nearest_control": ("width", [smallest_distance(repeating(100, d, 50)) for d in WIDTHS]),
        "nearest_16": smallest_distance(narrow),
        "nearest_16_control": smallest_distance(repeating(50, 16, 25)),
        "farthest": float(torch.cdist(table, table).max()),
        "stray": offset_deviation(table @ table.T),
        "exp_log": (("precision", "position"), [error for error, _ in errors]),
        "exp_log_control": ("precision", [control for _, control in errors]),
        "exp_log_16": float(error_16.max()),
        "exp_log_16_control": control_16,
        "refused": int(sum(refuses(d) for d in range(1, 100, 2))),
        "distinct": (("route", "up_to"), [[left_by(route, n) for n in UP_TO] for route in ROUTES]),
    }


def exp_log_errors(n: int, d: int, dtype: torch.dtype) -> tuple[Float[Tensor, "position"], float]:
    """Deviation of the exp-and-log route from the definition by position; and from a table of other order."""
    table, wanted = exp_log_table(n, d, dtype).double(), by_definition(n, d)
    return (table - wanted).abs().amax(1), float((table - cosines_first(wanted)).abs().max())


def repeating(n: int, d: int, period: int) -> Float[Tensor, "position d_model"]:
    """A table whose pairs all come round after `period` positions: two of its rows are equal."""
    turns = torch.arange(1, d // 2 + 1, dtype=torch.float64) * 2 * math.pi / period
    angles = torch.arange(n, dtype=torch.float64)[:, None] * turns
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def refuses(d: int) -> bool:
    """Return whether the library's module says that a width is no good."""
    try:
        SinusoidalPositions(d)
    except ValueError:
        return True
    return False


def left_by(route: str, n: int) -> int:
    """How many different vectors one way of rounding leaves among the first n."""
    if route == "rounded at the end":
        return distinct_rows(sinusoidal_encoding(n, WIDTH, dtype=torch.bfloat16))
    return distinct_rows(rounded_angles(n, WIDTH, getattr(torch, route.rpartition(" ")[2])))


# Reading a position off a word --------------------------------------------------------------------

LENGTHS = (100, 1000, 10_000)
BANDS = ("all", "fastest", "middle", "slowest")
WORDS = 500


@measurement(seeds=20, coords={"length": LENGTHS, "band": BANDS}, repeat=2)
def reading(seed: int) -> dict[str, Any]:
    """The best guess at a position from a new word plus its vector, by the pairs that may be used."""
    near, tenth, error = [], [], []
    for n in LENGTHS:
        generator = make_generator(seed, f"reading {n}")
        table = sinusoidal_encoding(n, WIDTH)
        position = torch.randint(n, (WORDS,), generator=generator)
        x = table[position] + torch.randn(WORDS, WIDTH, generator=generator)
        away = [(best_guess(x, table, band) - position).abs() for band in BANDS]
        near.append([float((each <= 1).double().mean()) for each in away])
        tenth.append([float((each <= n / 10).double().mean()) for each in away])
        error.append([float(each.double().mean() / n) for each in away])
    axes = ("length", "band")
    return {"near": (axes, near), "tenth": (axes, tenth), "error": (axes, error)}


def best_guess(
    x: Float[Tensor, "word d_model"], table: Float[Tensor, "position d_model"], band: str
) -> Tensor:
    """The likeliest position of each word, (word,), from some of the pairs alone.

    The words' own entries are independent normal numbers, so the likeliest row is the nearest one; rows are
    equally long, so it is the one with the largest dot product.
    """
    used = slice(None) if band == "all" else third(table.shape[1], band)  # type: ignore[arg-type]
    return (x[:, used] @ table[:, used].T).argmax(1)
