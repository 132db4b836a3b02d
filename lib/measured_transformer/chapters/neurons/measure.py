"""What neurons respond to and what they write, and patterns of text that fit them.

Patterns are found on one half of a neuron's contexts and scored on the other. Activations are tables, a row for
each *input* (one position of one sequence) and a column for each neuron; keys and values are those of
`analysis.ffn_memory`.
"""

from __future__ import annotations

import random
import re
from ast import literal_eval
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.ffn_memory import as_memory
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.task import Batch
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.loop import predict
from measured_transformer.training.seeding import make_generator

CLASSES = (
    *(r"[a-z]", r"[A-Z]", r"[0-9]", r"[aeiou]", r"\n", r"\s\s", r"\n\s+", r"[^\w\s]", r"[.,;:]"),
    *(r"[(\[{]", r"[)\]}]", r"['\"`]", r"\W[a-z]", r"\W[a-z]{2}", r"[A-Z][a-z]", r"\w\s", r"\.\s+"),
)
"""Regular expressions that a context can end with, besides its n-grams."""


LETTERS = (r"[a-z]", r"[A-Z]", r"[0-9]", r"[aeiou]", r"\s", r"[^\w\s]")
"""Regular expressions for kinds of single characters."""


def letter_sets(task: TextLM) -> Bool[ndarray, "set token"]:
    """Which tokens of a text are of each kind of `LETTERS`."""
    letters = [task.text(torch.tensor([i])) for i in range(task.vocab)]
    return np.array([[re.fullmatch(kind, one) is not None for one in letters] for kind in LETTERS])


@dataclass(frozen=True)
class Contexts:
    """Places of a text, and which patterns the text before each of them ends with.

    Attributes:
        batch: the windows that the places belong to.
        first: places before this position of a window are left out.
        names: of the patterns: the characters of an n-gram in quotes, or a regular expression.
        matches: which patterns fit which places.
    """

    batch: Batch
    first: int
    names: tuple[str, ...]
    matches: Bool[ndarray, "pattern input"]

    @property
    def strings(self) -> Bool[ndarray, "pattern"]:
        """Which patterns are n-grams of more than one character."""
        return np.array([n not in CLASSES and len(literal_eval(n)) > 1 for n in self.names])


def contexts(
    task: TextLM, seed: int, size: int, *, least: int = 8, names: Sequence[str] | None = None
) -> Contexts:
    """Draw windows of a text and find the patterns that end at each place.

    Patterns are the n-grams of one to three tokens and the regular expressions of `CLASSES`.

    Args:
        task: whose part is drawn from.
        seed: of the windows.
        size: number of windows.
        least: an n-gram counts as a pattern when it ends at so many places.
        names: the patterns to look for, such as those of another call; when not given, they are found.
    """
    first = 3
    batch = task.batch(make_generator(seed, "contexts"), size)
    letters = [task.text(torch.tensor([i])) for i in range(task.vocab)]
    rows = [[letters[i] for i in row] for row in batch.inputs.tolist()]
    ends = [row[: i + 1] for row in rows for i in range(first, len(row))]
    grams: dict[str, list[int]] = {}
    for place, end in enumerate(ends):
        for n in (1, 2, 3):
            grams.setdefault(repr("".join(end[-n:])), []).append(place)
    if names is None:
        names = (*CLASSES, *sorted(gram for gram, found in grams.items() if len(found) >= least))
    matches = np.zeros((len(names), len(ends)), dtype=bool)
    texts = ["".join(end) for end in ends]
    for row, name in enumerate(names):
        if name in CLASSES:
            pattern = re.compile(f"(?:{name})$(?!\n)")
            matches[row] = [pattern.search(text) is not None for text in texts]
        else:
            matches[row, grams.get(name, [])] = True
    return Contexts(batch, first, tuple(names), matches)


def strongest(
    values: Float[ndarray, "input neuron"], share: float = 0.02
) -> Bool[ndarray, "input neuron"]:
    """For each neuron its strongest inputs: those in the top share that are above zero.

    Raises:
        ValueError: when the share does not lie in (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1), got {share}")
    return (values >= np.quantile(values, 1 - share, axis=0)) & (values > 0)


@dataclass(frozen=True)
class Detectors:
    """The pattern that fits each neuron's strongest contexts best, and how it fares on contexts kept aside.

    Attributes:
        pattern: number of the pattern, found on the first half.
        precision: of the contexts of the second half that it names, how many are strongest ones.
        recall: of the strongest contexts of the second half, how many it names.
        f1: harmonic mean of both.
        shuffled: the same F1 for the contexts of another neuron.
        counted: neurons with at least five strongest contexts in each half; the others respond to nothing.
    """

    pattern: Int[ndarray, "neuron"]
    precision: Float[ndarray, "neuron"]
    recall: Float[ndarray, "neuron"]
    f1: Float[ndarray, "neuron"]
    shuffled: Float[ndarray, "neuron"]
    counted: Bool[ndarray, "neuron"]


def detectors(
    found_on: Bool[ndarray, "pattern found"],
    strong_there: Bool[ndarray, "found neuron"],
    kept: Bool[ndarray, "pattern kept"],
    strong_kept: Bool[ndarray, "kept neuron"],
    *,
    seed: int = 0,
) -> Detectors:
    """Choose for each neuron the pattern of highest F1 on one half, and score it on the other.

    Args:
        found_on: which patterns fit which contexts of the first half.
        strong_there: the strongest contexts of each neuron there.
        kept: the same patterns on the second half.
        strong_kept: the strongest contexts there.
        seed: of the order in which neurons are shuffled, so that none keeps its own contexts.

    Raises:
        ValueError: when there is only one neuron, so that none can be shuffled.
    """
    neurons = strong_there.shape[1]
    if neurons < 2:
        raise ValueError(f"expected at least two neurons, got {neurons}")
    hits = found_on.astype(np.float32) @ strong_there.astype(np.float32)
    sizes = found_on.sum(1)[:, None] + strong_there.sum(0)[None]
    chosen = np.argmax(2 * hits / np.maximum(sizes, 1), axis=0)
    order = np.random.default_rng(seed).permutation(neurons)
    other = np.empty(neurons, dtype=int)
    other[order] = np.roll(order, 1)  # one cycle: nobody stays in place
    named = kept[chosen].T

    def scores(strong: Bool[ndarray, "kept neuron"]) -> tuple[ndarray, ndarray, ndarray]:
        both = (named & strong).sum(0)
        return (
            both / np.maximum(named.sum(0), 1),
            both / np.maximum(strong.sum(0), 1),
            2 * both / np.maximum(named.sum(0) + strong.sum(0), 1),
        )

    precision, recall, f1 = scores(strong_kept)
    counted = (strong_there.sum(0) >= 5) & (strong_kept.sum(0) >= 5)
    return Detectors(chosen, precision, recall, f1, scores(strong_kept[:, other])[2], counted)


# Keys and values -----------------------------------------------------------------------------------

Reader = Decoder | Encoder


@torch.no_grad()
def convention_error(seed: int, convention: str, *, exchanged: bool = False) -> float:
    r"""Largest error of the sum over neurons with keys and values read off two square matrices.

    The matrices are square, so that the wrong reading fits in shape and has to fail by its numbers.

    Args:
        seed: of width, matrices and vectors.
        convention: *columns*: $W_2\, \text{ReLU}(W_1 x)$ as PyTorch stores it, keys are the rows of $W_1$ and
            values the columns of $W_2$. *rows*: $\text{ReLU}(x W_{in}) W_{out}$, keys are the columns of
            $W_{in}$ and values the rows of $W_{out}$.
        exchanged: rows and columns the other way round, which must fail.

    Raises:
        ValueError: for another convention.
    """
    if convention not in ("columns", "rows"):
        raise ValueError(f"convention must be 'columns' or 'rows', got {convention!r}")
    d = random.Random(seed).randint(2, 12)
    draws = make_generator(seed, f"keys and values, {convention}")
    first, second, x = torch.randn(3, d, d, generator=draws, dtype=torch.float64)
    if convention == "columns":
        network = FeedForward(d, d, activation="relu", bias=False).double()
        network.up.weight.copy_(first)
        network.down.weight.copy_(second)
        whole = network(x[None])[0]
    else:
        whole = (x @ first).relu() @ second
    by_rows = (convention == "columns") != exchanged
    keys = [first[i] if by_rows else first[:, i] for i in range(d)]
    values = [second[:, i] if by_rows else second[i] for i in range(d)]
    total = sum((x @ k).relu()[:, None] * v for k, v in zip(keys, values, strict=True))
    return float((total - whole).abs().max())


# Looking at neurons, and touching them -------------------------------------------------------------


@torch.no_grad()
def activations(
    model: Reader, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "block batch position d_ff"]:
    """What each neuron of each block says at each position."""
    with capture(model, "blocks.*.feedforward.neurons") as seen:
        model(tokens)
    return torch.stack(
        [seen[f"blocks.{i}.feedforward.neurons"] for i in range(model.config.n_layers)]
    )


def table(
    values: Float[Tensor, "block batch position d_ff"], first: int = 0
) -> Float[ndarray, "input neuron"]:
    """Activations as a table: a row for each position of each sequence, a column for each neuron of each block.

    Args:
        values: from `activations`.
        first: positions before this one are left out.
    """
    kept = values[:, :, first:]
    columns = kept.permute(1, 2, 0, 3).reshape(-1, kept.shape[0] * kept.shape[3])
    return columns.double().cpu().numpy()


def kinds(batch: Batch) -> dict[str, Int[ndarray, "input"]]:
    """The token, the right answer and the position of each input, in the order of `table`."""
    positions = torch.arange(batch.inputs.shape[1]).expand_as(batch.inputs)
    found = {"token": batch.inputs, "answer": batch.targets, "position": positions}
    return {name: values.reshape(-1).cpu().numpy() for name, values in found.items()}


@contextmanager
def silenced(model: Reader, neurons: Bool[ndarray, "neuron"]) -> Iterator[None]:
    """Hold some neurons at zero while the `with` block runs.

    Args:
        model: whose neurons.
        neurons: which ones, of all blocks one after another, as in `table`.

    Raises:
        ValueError: when their number is another than the model's.
    """
    blocks, d_ff = model.config.n_layers, model.config.neurons
    if neurons.shape != (blocks * d_ff,):
        raise ValueError(
            f"the model has {blocks} blocks of {d_ff} neurons, so expected {blocks * d_ff} entries, got "
            f"shape {neurons.shape}"
        )
    kept = torch.from_numpy(~neurons.reshape(blocks, d_ff))
    changes: dict[str, Change] = {
        f"blocks.{i}.feedforward.neurons": _kept(kept[i]) for i in range(blocks)
    }
    with intervene(model, changes):
        yield


def _kept(which: Bool[Tensor, "d_ff"]) -> Change:
    return lambda value: value * which.to(value)


@contextmanager
def forced(model: Reader, block: int, neuron: int, value: float) -> Iterator[None]:
    """Hold one neuron at a value, at every position, while the `with` block runs.

    Raises:
        ValueError: when there is no such neuron.
        KeyError: when there is no such block.
    """
    if not 0 <= neuron < model.config.neurons:
        raise ValueError(f"neuron must lie in 0..{model.config.neurons - 1}, got {neuron}")

    def hold(there: Tensor) -> Tensor:
        there[..., neuron] = value
        return there

    with intervene(model, {f"blocks.{block}.feedforward.neurons": hold}):
        yield


@torch.no_grad()
def rise(
    model: Reader,
    batch: Batch,
    neurons: Bool[ndarray, "neuron"],
    where: Bool[Tensor, "batch position"],
) -> tuple[float, float]:
    """By how many nats the loss rises when neurons are silenced: where the mask holds, and elsewhere.

    Raises:
        ValueError: when the mask holds everywhere or nowhere.
    """
    if bool(where.all()) or not bool(where.any()):
        raise ValueError("expected a mask that holds at some positions and not at others")
    before = _losses(model, batch)
    with silenced(model, neurons):
        more = _losses(model, batch) - before
    return float(more[where].mean()), float(more[~where].mean())


def _losses(model: Reader, batch: Batch) -> Float[Tensor, "batch position"]:
    logits = predict(model, batch).double()
    return F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")


# What a neuron responds to -------------------------------------------------------------------------


def set_auc(
    values: Float[ndarray, "input neuron"],
    token: Int[ndarray, "input"],
    sets: Bool[ndarray, "set token"],
) -> Float[ndarray, "set neuron"]:
    """How well each neuron tells tokens of a set from all others: area under the ROC curve.

    The probability that the neuron says more at a random input of the set than at a random other one, equal
    activations counting half (Mann-Whitney). 1: always more; 0.5: tells nothing; 0: always less.

    Args:
        values: activations.
        token: a number for each input.
        sets: which numbers belong to each set.

    Raises:
        ValueError: when a set holds all inputs or none.
    """
    kinds = np.eye(sets.shape[1])[token]
    inside = sets.astype(float) @ kinds.sum(0)
    outside = len(token) - inside
    if (inside == 0).any() or (outside == 0).any():
        raise ValueError("expected sets with inputs inside and outside of them")
    ranks = kinds.T @ rankdata(values, axis=0)
    summed = sets.astype(float) @ ranks
    return (summed - (inside * (inside + 1) / 2)[:, None]) / (inside * outside)[:, None]


def auc(
    values: Float[ndarray, "input neuron"], label: Bool[ndarray, "input"]
) -> Float[ndarray, "neuron"]:
    """Area under the ROC curve with which each neuron tells the inputs of a label from the others.

    Raises:
        ValueError: when all inputs have the label, or none.

    >>> auc(np.array([[0.0], [1.0], [1.0], [2.0]]), np.array([False, False, True, True])).tolist()
    [0.875]
    """
    return set_auc(values, label.astype(np.int64), np.array([[False, True]]))[0]


def variance_explained(
    values: Float[ndarray, "input neuron"], kind: Int[ndarray, "input"]
) -> Float[ndarray, "neuron"]:
    """Share of each neuron's variance over inputs that is between kinds of inputs; 0 for one that never varies.

    1: the kind says all; near 0: it says nothing.

    >>> values = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    >>> variance_explained(values, np.array([0, 0, 1, 1])).tolist()
    [1.0, 0.0]
    """
    members = np.eye(int(kind.max()) + 1)[kind]
    counts = members.sum(0)
    present = counts > 0
    means = (members.T @ values)[present] / counts[present, None]
    between = counts[present] @ np.square(means - values.mean(0))
    total = np.square(values - values.mean(0)).sum(0)
    return np.divide(between, total, out=np.zeros_like(total), where=total > 1e-12)


def firing_rates(
    values: Float[ndarray, "input neuron"], *, above: float = 0.0
) -> Float[ndarray, "neuron"]:
    """Share of the inputs on which each neuron is active.

    Args:
        values: activations.
        above: active means above this share of the neuron's largest activation; 0 for ReLU, which is
            exactly zero elsewhere. A neuron that is never positive is never active.

    Raises:
        ValueError: when the share does not lie in [0, 1).

    >>> firing_rates(np.array([[0.0, 0.05], [1.0, 1.0], [2.0, -1.0], [3.0, 0.2]]), above=0.1).tolist()
    [0.75, 0.5]
    """
    if not 0 <= above < 1:
        raise ValueError(f"above must lie in [0, 1), got {above}")
    return (values > above * values.max(0)).mean(0)


# Values --------------------------------------------------------------------------------------------


@torch.no_grad()
def pushes(model: Reader, block: int) -> Float[Tensor, "neuron vocab"]:
    """What one unit of each neuron adds to the logits by its value and the unembedding alone.

    The value is read as the final norm reads the stream, up to the norm's divisor: centred where it is a
    LayerNorm and multiplied by its weight. What all tokens share, which changes no prediction, is taken off.

    Raises:
        ValueError: when the model has no linear unembedding.
        AttributeError: when there is no such block.
    """
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError(
            f"expected a model with a linear unembedding, got head={model.config.head!r}"
        )
    network = model.get_submodule(f"blocks.{block}.feedforward")
    assert isinstance(network, FeedForward)
    values = as_memory(network).values
    if isinstance(model.final_norm, LayerNorm):
        values = values - values.mean(-1, keepdim=True)
    weight = getattr(model.final_norm, "weight", None)
    if weight is not None:
        values = values * weight
    pushed = values @ model.unembedding.weight.T
    return pushed - pushed.mean(-1, keepdim=True)


@torch.no_grad()
def forced_changes(
    model: Reader,
    tokens: Int[Tensor, "batch position"],
    block: int,
    levels: Float[ndarray, "neuron"],
) -> Float[Tensor, "neuron vocab"]:
    """How the logits change, on average over positions, when each neuron alone is forced to its level.

    What all tokens share is taken off.
    """
    before = model(tokens)
    changes = []
    for neuron, level in enumerate(levels.tolist()):
        with forced(model, block, neuron, level):
            changes.append((model(tokens) - before).mean((0, 1)))
    found = torch.stack(changes)
    return found - found.mean(-1, keepdim=True)


# One neuron ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Portrait:
    """What there is to see of one neuron of a language model.

    Attributes:
        lines: windows of text, character by character: those where it is strongest, then others.
        said: its activation at each of their places.
        products: for the tokens with the largest ones, the 10th, 50th and 90th percentile of what enters the
            activation at places with that token.
        pushes: for the tokens that it favours most and least, what a unit of it adds to the logit; what all
            tokens that are named have in common is taken off.
    """

    lines: list[list[str]]
    said: list[list[float]]
    products: dict[str, Float[ndarray, "3"]]
    pushes: dict[str, float]


@torch.no_grad()
def portrait(
    model: Decoder, task: TextLM, batch: Batch, block: int, neuron: int, *, least: int = 15
) -> Portrait:
    """Look at one neuron over windows of text.

    Args:
        model: trained on the task.
        task: whose tokens are read as text.
        batch: the windows.
        block, neuron: which one.
        least: only tokens that come so often in the windows are named.
    """
    place = f"blocks.{block}.feedforward"
    with capture(model, f"{place}.pre_activation", f"{place}.neurons") as seen:
        model(batch.inputs)
    before, said = (
        seen[f"{place}.pre_activation"][..., neuron],
        seen[f"{place}.neurons"][..., neuron],
    )
    best = said.amax(1).argsort(descending=True)
    rows = [*best[:3].tolist(), *best[len(best) // 2 : len(best) // 2 + 2].tolist()]
    counts = torch.bincount(batch.inputs.flatten(), minlength=task.vocab)
    common = (counts >= least).nonzero().flatten().tolist()

    def named(token: int) -> str:
        return task.text(torch.tensor([token]))

    spread = {
        token: np.quantile(before[batch.inputs == token].double().cpu().numpy(), [0.1, 0.5, 0.9])
        for token in common
    }
    largest = sorted(common, key=lambda token: -float(spread[token][1]))[:8]
    pushed = pushes(model, block)[neuron]
    pushed = pushed - pushed[common].mean()
    order = sorted(common, key=lambda token: -float(pushed[token]))
    return Portrait(
        lines=[[named(token) for token in batch.inputs[row].tolist()] for row in rows],
        said=[said[row].tolist() for row in rows],
        products={named(token): spread[token] for token in largest},
        pushes={named(token): float(pushed[token]) for token in (*order[:5], *order[-3:])},
    )
