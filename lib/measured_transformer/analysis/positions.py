r"""Measuring how order enters a model, and what training makes of it.

The geometry of position vectors, rotations and their precision, probes, and changes to trained models.

Axis words: `position`, the place in the sequence; `distance` $k = |i - j|$; `pair`, two dimensions that
share a frequency. Matrices act on row vectors from the right, `x @ W`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import causal_mask
from measured_transformer.parts.positions import (
    LearnedPositions,
    frequencies,
    rotation,
    sinusoidal_encoding,
)
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.task import Task
from measured_transformer.training.seeding import seeded, stream

Model = Decoder | Encoder

# The geometry of a table of position vectors --------------------------------------------------


def similarity_by_distance(n: int, d: int, *, base: float = 10000.0) -> Float[ndarray, "distance"]:
    r"""The dot product of two sinusoidal vectors $k$ apart, $s(k) = \sum_i \cos(\omega_i k)$, k below `n`.

    >>> similarity_by_distance(3, 4).round(4)
    array([2.    , 1.5403, 0.5837])
    """
    distances = torch.arange(n, dtype=torch.float64)
    return (distances[:, None] * frequencies(d, base=base)).cos().sum(1).numpy()


def _diagonals(matrix: Tensor, *, directed: bool) -> tuple[Tensor, Tensor]:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"expected a square matrix, got shape {tuple(matrix.shape)}")
    n = len(matrix)
    where = torch.arange(n, device=matrix.device)
    offset = where[:, None] - where[None, :]
    index = offset + n - 1 if directed else offset.abs()
    sums = torch.zeros(2 * n - 1, dtype=matrix.dtype).index_add(
        0, index.flatten(), matrix.flatten()
    )
    counts = torch.bincount(index.flatten(), minlength=2 * n - 1).clamp(min=1)
    return sums / counts, index


def offset_deviation(matrix: Float[Tensor, "query key"]) -> float:
    """How far an entry strays from the mean of all entries at its distance |i - j|: 0 when only that counts.

    >>> offset_deviation(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    0.0
    >>> offset_deviation(torch.tensor([[2.0, 1.0], [1.0, 4.0]]))
    1.0

    Raises:
        ValueError: when the matrix is not square.
    """
    means, index = _diagonals(matrix, directed=False)
    return (matrix - means[index]).abs().max().item()


def explained_by_offset(matrix: Float[Tensor, "query key"]) -> float:
    """Share of the variance of the entries that the signed offset i - j accounts for, from 0 to 1.

    >>> explained_by_offset(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    1.0

    Raises:
        ValueError: when the matrix is not square, or when all its entries are equal.
    """
    means, index = _diagonals(matrix, directed=True)
    spread = matrix.var(unbiased=False).item()
    if spread == 0:
        raise ValueError("all entries are equal: there is no variance to explain")
    return 1 - ((matrix - means[index]) ** 2).mean().item() / spread


def wrong_order_share(similarity: Float[ndarray, "distance"]) -> float:
    """Share of pairs of distances k < l at which the *farther* one is the more similar.

    >>> wrong_order_share(np.array([3.0, 1.0, 2.0]))
    0.3333333333333333
    """
    near, far = np.triu_indices(len(similarity), 1)
    return float((similarity[far] > similarity[near]).mean())


def rises(similarity: Float[ndarray, "distance"]) -> Int[ndarray, "rise"]:
    """The distances k at which one step farther is more similar: s(k + 1) > s(k).

    >>> rises(np.array([3.0, 1.0, 2.0, 0.0]))
    array([1])
    """
    return np.flatnonzero(np.diff(similarity) > 0)


def largest_climb(similarity: Float[ndarray, "distance"]) -> tuple[float, int, int]:
    """The largest climb without a fall between: (height, distance at its foot, distance at its top).

    >>> largest_climb(np.array([3.0, 1.0, 2.0, 0.0, 0.5]))
    (1.0, 1, 2)
    """
    best, foot = (0.0, 0, 0), 0
    for k in range(1, len(similarity)):
        if similarity[k] <= similarity[k - 1]:
            foot = k
        elif similarity[k] - similarity[foot] > best[0]:
            best = (float(similarity[k] - similarity[foot]), foot, k)
    return best


def turn_rates(encoding: Float[Tensor, "position d_model"]) -> Float[Tensor, "pair"]:
    """The angle in radians by which each (sine, cosine) pair of a table turns per position, as measured.

    Angles of neighbouring rows are subtracted, so rates up to pi are told apart; the mean over the rows is
    the slope of the phase.

    >>> turn_rates(sinusoidal_encoding(50, 4, dtype=torch.float64))
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    angles = torch.atan2(encoding[:, 0::2], encoding[:, 1::2])
    steps = torch.remainder(angles.diff(dim=0) + math.pi, 2 * math.pi) - math.pi
    return steps.mean(0)


def smallest_distance(table: Float[Tensor, "position d_model"], *, block: int = 1000) -> float:
    """The Euclidean distance of the two rows that are closest to one another.

    >>> smallest_distance(torch.tensor([[0.0], [3.0], [5.0]]))
    2.0
    """
    smallest = math.inf
    for start in range(0, len(table), block):
        distances = torch.cdist(table[start : start + block], table[start:])
        rows = torch.arange(distances.shape[0])
        distances[rows, rows] = math.inf
        smallest = min(smallest, distances.min().item())
    return smallest


def distinct_rows(table: Float[Tensor, "position d_model"]) -> int:
    """How many different rows a table has."""
    return len(torch.unique(table.float(), dim=0))


def rounded_angles(n: int, d: int, dtype: torch.dtype) -> Float[Tensor, "position d_model"]:
    """The sinusoidal table as code computes it that works in `dtype` from the start.

    Positions, frequencies and their products are rounded to `dtype`; so are sines and cosines. The library
    rounds only the last.
    """
    angles = torch.arange(n).to(dtype)[:, None] * frequencies(d).to(dtype)
    return torch.stack((angles.double().sin(), angles.double().cos()), dim=-1).flatten(1).to(dtype)


def exp_log_table(n: int, d: int, dtype: torch.dtype) -> Float[Tensor, "position d_model"]:
    r"""The table by the route of most published code: $\omega_i = \exp(-2i \ln(10000) / d)$, all in `dtype`.

    An odd `d` fails, as it does there: one more sine than cosines.

    Raises:
        RuntimeError: when `d` is odd, by PyTorch.
    """
    rates = torch.exp(torch.arange(0, d, 2).to(dtype) * (-math.log(10000.0) / d))
    table = torch.empty(n, d, dtype=dtype)
    angles = torch.arange(n).to(dtype)[:, None] * rates
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()
    return table


def shift_matrix(
    k: int | float, d: int, *, base: float = 10000.0
) -> Float[Tensor, "d_model d_model"]:
    """The rotation R with PE(p + k) = PE(p) @ R for every p: one 2 by 2 block per frequency, float64.

    >>> table = sinusoidal_encoding(4, 6, dtype=torch.float64)
    >>> bool(torch.allclose(table[3], table[1] @ shift_matrix(2, 6)))
    True
    """
    angles = k * frequencies(d, base=base)
    blocks = [
        torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
        for a in angles.tolist()
    ]
    return torch.block_diag(*blocks)


# Attention and order --------------------------------------------------------------------------


@torch.no_grad()
def equivariance_error(
    attention: nn.Module,
    x: Float[Tensor, "batch position d_model"],
    order: Int[Tensor, "position"],
    *,
    causal: bool = False,
) -> float:
    """Largest difference between attending to shuffled inputs and shuffling what was attended to."""
    shuffled_first = attention(x[:, order], causal=causal)
    shuffled_after = attention(x, causal=causal)[:, order]
    return (shuffled_first - shuffled_after).abs().max().item()


def rotary_scores(
    queries: Float[Tensor, "pair_of_positions d_head"],
    keys: Float[Tensor, "pair_of_positions d_head"],
    query_positions: Int[Tensor, "pair_of_positions"],
    key_positions: Int[Tensor, "pair_of_positions"],
    *,
    dtype: torch.dtype = torch.float64,
    angles_in_dtype: bool = False,
) -> Float[Tensor, "pair_of_positions"]:
    """Score q . k / sqrt(d_head) of each query with its key, both rotated, computed in `dtype`.

    Args:
        queries, keys: one row for each pair of positions, not yet rotated.
        query_positions, key_positions: where they stand.
        dtype: of vectors, cosines, sines and the sum.
        angles_in_dtype: compute positions, frequencies and angles in `dtype` too, as some code does; the
            library computes them in float64.

    Returns:
        float64 scores.
    """
    d_head = queries.shape[-1]
    turned = []
    for x, positions in ((queries, query_positions), (keys, key_positions)):
        if angles_in_dtype:
            angles = positions.to(dtype)[:, None] * frequencies(d_head).to(dtype)
            cos, sin = angles.double().cos().to(dtype), angles.double().sin().to(dtype)
            even, odd = x.to(dtype)[:, 0::2], x.to(dtype)[:, 1::2]
            turned.append(torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1))
        else:
            turn = rotation(positions, d_head, dtype=dtype)
            turned.append(turn.apply(x.to(dtype)[None, None])[0, 0])
    return (turned[0] * turned[1]).sum(-1).double() / math.sqrt(d_head)


@dataclass(frozen=True)
class Drift:
    """What a common shift does to rotary scores.

    Attributes:
        error: at each shift, the largest change of a score, 0 if only the offset counts.
        control: at each shift above zero, the largest change when the query alone is shifted.
    """

    error: Float[ndarray, "shift"]
    control: Float[ndarray, "shift"]


def rotary_drift(
    shifts: list[int],
    *,
    dtype: torch.dtype,
    angles_in_dtype: bool = False,
    seed: int = 0,
    pairs: int = 200,
    d_head: int = 64,
) -> Drift:
    """Shift queries and keys at random places together and see how far their scores move.

    The entries of queries and keys are standard normal, so the scores have standard deviation one. Scores
    are compared with those at shift zero in the same precision.
    """
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, pairs, d_head, generator=generator, dtype=torch.float64)
    places = torch.randint(0, 128, (2, pairs), generator=generator)

    def score(query_shift: int, key_shift: int) -> Tensor:
        return rotary_scores(
            queries,
            keys,
            places[0] + query_shift,
            places[1] + key_shift,
            dtype=dtype,
            angles_in_dtype=angles_in_dtype,
        )

    unshifted = score(0, 0)
    error = [(score(k, k) - unshifted).abs().max().item() for k in shifts]
    control = [(score(k, 0) - unshifted).abs().max().item() for k in shifts if k]
    return Drift(np.array(error), np.array(control))


def explained_by_position(
    pattern: Float[Tensor, "batch head query key"], *, causal: bool = False
) -> Float[Tensor, "head"]:
    """Share of the variance of each head's weights that the places of query and key account for.

    The mean pattern over the batch is what depends on places alone; the rest depends on the tokens. Entries
    are compared with the flat pattern (each query's weight spread evenly over the keys that it sees), so a
    head that attends evenly to all has nothing to explain and gets 0.
    """
    n_query, n_key = pattern.shape[-2:]
    seen = causal_mask(n_query, n_key) if causal else torch.ones(n_query, n_key, dtype=torch.bool)
    seen = seen.to(pattern.device)
    centred = (pattern - seen / seen.sum(-1, keepdim=True)).double()
    total = centred.pow(2).mean(0).sum((-2, -1))
    by_place = centred.mean(0).pow(2).sum((-2, -1))
    return torch.where(total > 0, by_place / total.clamp(min=1e-300), torch.zeros_like(total))


# Probes ---------------------------------------------------------------------------------------


def _ridge(
    features: Float[ndarray, "sample d"], targets: Float[ndarray, "sample k"], strength: float
) -> Callable[[ndarray], ndarray]:
    mean, target_mean = features.mean(0), targets.mean(0)
    centred = features - mean
    gram = centred.T @ centred + strength * len(features) * np.eye(features.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (targets - target_mean))
    return lambda unseen: (unseen - mean) @ weights + target_mean


def probe_r2(
    features: Float[Tensor, "batch position d"],
    *,
    strength: float = 1e-4,
    shuffle_seed: int | None = None,
) -> float:
    """Cross-validated R2 of a linear probe that reads the position off the features.

    The first half of the batch trains a ridge regression, the second half is predicted. 1: the position
    can be read off exactly; 0 or below: no better than always answering the middle.

    Args:
        features: vectors of each sequence and position.
        strength: of the ridge penalty, per sample.
        shuffle_seed: shuffle the training positions from this seed first; a sound probe then finds nothing.

    Raises:
        ValueError: when there are fewer than two sequences.
    """
    batch, n, _ = features.shape
    if batch < 2:
        raise ValueError(
            f"a probe needs sequences to learn from and others to be tested on, got {batch}"
        )
    half = batch // 2
    values = features.detach().double().cpu().numpy()
    places = np.tile(np.arange(n, dtype=float), batch).reshape(batch, n)
    known = places[:half].reshape(-1, 1)
    if shuffle_seed is not None:
        known = np.random.default_rng(shuffle_seed).permutation(known)
    predict = _ridge(values[:half].reshape(half * n, -1), known, strength)
    asked = places[half:].reshape(-1, 1)
    error = asked - predict(values[half:].reshape((batch - half) * n, -1))
    return float(1 - (error**2).mean() / asked.var())


def class_probe_accuracy(
    features: Float[ndarray, "position d"],
    classes: Int[ndarray, "position"],
    *,
    seed: int,
    folds: int = 5,
    strength: float = 1e-6,
) -> float:
    """Accuracy of a linear probe on positions that it was not trained on.

    Ridge regression on one column per class; the answer is the largest. The positions are dealt into
    folds from `seed`, and each fold is answered by a probe trained on the others.
    """
    order = np.random.default_rng(seed).permutation(len(features))
    columns = np.eye(int(classes.max()) + 1)[classes]
    right = 0
    for fold in range(folds):
        asked = order[fold::folds]
        known = np.setdiff1d(order, asked)
        predict = _ridge(features[known], columns[known], strength)
        right += int((predict(features[asked]).argmax(1) == classes[asked]).sum())
    return right / len(features)


def third(d: int, name: Literal["fastest", "middle", "slowest"]) -> slice:
    """The dimensions of the fastest, middle or slowest third of the pairs (the middle takes the rest).

    >>> third(64, "fastest"), third(64, "slowest")
    (slice(0, 20, None), slice(44, 64, None))
    """
    width = d // 6 * 2
    return {
        "fastest": slice(0, width),
        "middle": slice(width, d - width),
        "slowest": slice(d - width, d),
    }[name]


# Changing a model before training -------------------------------------------------------------


@dataclass(frozen=True)
class RandomTable:
    """Preparation for training: the table of learned positions stays as it was drawn."""

    def __call__(self, model: Model) -> None:
        """Freeze the table. Raises ValueError when the model has no learned positions."""
        _table(model).requires_grad_(False)


@dataclass(frozen=True)
class Band:
    """Preparation for training: sinusoidal positions with a third of their frequencies, the rest zero.

    For a model with learned positions, whose table is replaced and frozen.
    """

    name: Literal["fastest", "middle", "slowest"]

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Write the band into the table and freeze it. Raises ValueError when there is no table."""
        table = _table(model)
        kept = third(table.shape[1], self.name)
        full = sinusoidal_encoding(len(table), table.shape[1]).to(table)
        table.zero_()
        table[:, kept] = full[:, kept]
        table.requires_grad_(False)


@dataclass(frozen=True)
class WithoutAttention:
    """Preparation for training: attention writes nothing, so each position is on its own."""

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Set the output projections of all attention layers to zero and freeze them."""
        for name, parameter in model.named_parameters():
            if ".attention.output." in name:
                parameter.zero_()
                parameter.requires_grad_(False)


def _table(model: Model) -> nn.Parameter:
    if not isinstance(model.positions, LearnedPositions):
        raise ValueError(
            f"expected a model with learned positions, got {model.config.positions}; "
            "make it from a config with positions='learned'"
        )
    return model.positions.table


# What trained models do with order ------------------------------------------------------------


@torch.no_grad()
def excess_loss(
    model: Model,
    task: Lag,
    *,
    seed: int,
    length: int,
    shift: int = 0,
    window: int | None = None,
    size: int = 64,
) -> Float[ndarray, "position"]:
    """What the model loses at each position beyond the predictor that knows the rule, on the same tokens.

    Args:
        model: trained on the task, perhaps at another length.
        task: the source of the tokens.
        seed: of the tokens; they come from the evaluation stream.
        length: of the sequences.
        shift: let every token stand so many positions later; nothing else changes.
        window: let every query see only so many keys, itself included.
        size: number of sequences.

    Returns:
        nats, NaN where the task scores nothing.
    """
    device = next(model.parameters()).device
    batch = task.batch(stream(seed, "evaluation"), size, length=length)
    tokens = batch.inputs.to(device)
    places = (shift + torch.arange(length, device=device)).expand_as(tokens) if shift else None
    with attention_window(model, window):
        logits = model(tokens, positions=places)
    loss = F.cross_entropy(logits.transpose(1, 2), batch.targets.to(device), reduction="none")
    return loss.double().mean(0).cpu().numpy() - task.ideal_loss(batch).numpy()


@contextmanager
def attention_window(model: Model, window: int | None) -> Iterator[None]:
    """While the block runs, every query sees only the last `window` keys, itself included; all when None."""
    if window is None:
        yield
        return

    def forget(scores: Tensor) -> Tensor:
        n_query, n_key = scores.shape[-2:]
        queries = torch.arange(n_key - n_query, n_key, device=scores.device)
        distance = queries[:, None] - torch.arange(n_key, device=scores.device)
        return scores.masked_fill(distance >= window, -math.inf)

    with intervene(model, {"blocks.*.attention.scores": forget}):
        yield


def position_vectors(model: Model, n: int) -> Float[Tensor, "position d_model"]:
    """The vectors that the model adds to its embeddings at positions 0 to n - 1; zeros if it adds none."""
    if model.positions is None:
        weight = model.token_embedding.weight
        return torch.zeros(n, weight.shape[1], device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        return model.positions(n).detach()


@torch.no_grad()
def position_scores(model: Model, n: int) -> Float[Tensor, "head query key"]:
    """Scores that the first block's heads give to the position vectors alone, with the norm's gain, no tokens.

    The norm's division by the standard deviation, which depends on the tokens too, is left out.
    """
    block: Any = model.blocks[0]
    vectors = position_vectors(model, n)
    gained = (vectors - vectors.mean(-1, keepdim=True)) * block.attention_norm.weight
    attention = block.attention
    queries, keys = (
        (gained @ projection.weight.T).unflatten(-1, (-1, attention.d_head)).transpose(0, 1)
        for projection in (attention.query, attention.key)
    )
    return queries @ keys.transpose(-2, -1) / math.sqrt(attention.d_head)


@torch.no_grad()
def score_map(config: Config, n: int, *, seed: int = 0) -> Float[Tensor, "query key"]:
    """Scores of the first head of an untrained encoder when the same token stands at all n positions.

    The tokens being equal, whatever differs between two scores comes from the positions.
    """
    with seeded(seed):
        model = Encoder(config).eval()
    tokens = torch.zeros(1, n, dtype=torch.long)
    with capture(model, "blocks.0.attention.scores") as seen:
        model(tokens)
    return seen["blocks.0.attention.scores"][0, 0]


@contextmanager
def changed_positions(model: Model, vectors: Float[Tensor, "position d_model"]) -> Iterator[None]:
    """While the block runs, the model adds these vectors instead of its own (zeros: no positions)."""
    own = position_vectors(model, len(vectors))
    with intervene(model, {"embedding": lambda x: x - own + vectors}):
        yield


@torch.no_grad()
def task_loss(model: Model, task: Task, *, seed: int, size: int = 256) -> float:
    """Cross-entropy per scored position on sequences of the evaluation stream."""
    device = next(model.parameters()).device
    batch = task.batch(stream(seed, "evaluation"), size).to(device)
    logits = model(batch.inputs)
    return F.cross_entropy(logits[batch.scored], batch.targets[batch.scored]).item()


@torch.no_grad()
def captured(
    model: Model, task: Task, *patterns: str, seed: int, size: int = 128
) -> dict[str, Tensor]:
    """The values of taps, by name, on fresh sequences of the task."""
    device = next(model.parameters()).device
    batch = task.batch(stream(seed, "evaluation"), size).to(device)
    with capture(model, *patterns) as seen:
        model(batch.inputs)
    return seen


def position_r2_by_layer(
    model: Model, task: Task, *, seed: int, size: int = 128, shuffle_seed: int | None = None
) -> Float[ndarray, "layer"]:
    """`probe_r2` of the stream as it enters the first block and as it leaves each block."""
    seen = captured(model, task, "embedding", "blocks.*.residual_post", seed=seed, size=size)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    return np.array([probe_r2(seen[name], shuffle_seed=shuffle_seed) for name in names])


@torch.no_grad()
def loss_without_places(model: Model, task: Task, *, seed: int, size: int = 256) -> list[float]:
    """Loss after what tells the positions apart is taken out of the stream at one place.

    At each place (the embedding, then the exit of each block) the mean of the stream at each position, over
    the batch, is replaced by the mean over batch and positions: what remains of a position is what its
    tokens brought. One number a place.
    """
    places = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    losses = []
    for place in places:
        with intervene(model, {place: lambda x: x - x.mean(0) + x.mean((0, 1))}):
            losses.append(task_loss(model, task, seed=seed, size=size))
    return losses


def untrained(model: Model, *, seed: int) -> Model:
    """A fresh model of the same config, for comparison."""
    with seeded(seed):
        return type(model)(model.config).to(next(model.parameters()).device).eval()
