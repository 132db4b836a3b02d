"""What neurons respond to, what they write, and what is lost without them: each beside controls.

First the formula: a network as a sum over neurons, in either convention. Then the machine of the chapter *A
Transformer in one sitting*, whose neurons are described by patterns of text, predicted from the last
characters, forced and silenced; and the same before its first step. Last small encoders that reverse digits,
where all that a neuron could respond to is known.

Activations are tables, a row for each *input* (one position of one sequence) and a column for each neuron, the
blocks one after another.
"""

from __future__ import annotations

import lzma
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.ffn_memory import as_memory, sum_error
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.feedforward import FeedForward, activation_function
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.opened_text import TEXT, OpenedText
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model, predict
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy.stats import rankdata, spearmanr
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import job, measurement

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


@measurement(
    seeds=100,
    tolerance=dict.fromkeys(("plain", "biases", "gated", "columns", "rows"), 1e-12),
)
def identities(seed: int) -> dict[str, Any]:
    """Largest errors of the sum over neurons and of both conventions, each beside a version that must fail."""
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "biases": {"bias": True},
        "gated": {"bias": True, "activation": "swiglu"},
    }
    found = {name: sum_error(seed, **kind) for name, kind in kinds.items()}
    for name, kind in kinds.items():
        found[f"{name}_control"] = sum_error(seed, leave_one_out=True, **kind)
    for convention in ("columns", "rows"):
        found[convention] = convention_error(seed, convention)
        found[f"{convention}_control"] = convention_error(seed, convention, exchanged=True)
    return found


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
def zero_ablated(model: Reader, neurons: Bool[ndarray, "neuron"]) -> Iterator[None]:
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
    with zero_ablated(model, neurons):
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
def direct_logit_effects(model: Reader, block: int) -> Float[Tensor, "neuron vocab"]:
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


# Patterns of text ----------------------------------------------------------------------------------

CLASSES = (
    *(r"[a-z]", r"[A-Z]", r"[0-9]", r"[aeiou]", r"\n", r"\s\s", r"\n\s+", r"[^\w\s]", r"[.,;:]"),
    *(r"[(\[{]", r"[)\]}]", r"['\"`]", r"\W[a-z]", r"\W[a-z]{2}", r"[A-Z][a-z]", r"\w\s", r"\.\s+"),
)
"""Regular expressions that a context can end with, besides its n-grams."""
LENGTH, FROM = 64, 8
"""Characters in a window, and how many of them have seen too little to be asked."""
FEWEST = 12
"""So often an n-gram must end a context of the text that is searched."""
TOP = 0.02
"""The share of contexts that count as a neuron's strongest."""


@cache
def windows(part: Literal["train", "validation", "test"], size: int) -> Batch:
    """Windows of the text, the same for every model."""
    return OpenedText(LENGTH, part).batch(make_generator(0, "contexts"), size)


@cache
def _alphabet() -> str:
    return "".join(sorted(set(lzma.decompress(TEXT.read_bytes()).decode("utf-8"))))


def text_of(tokens: Sequence[int]) -> str:
    """The characters that tokens stand for; the start token is none."""
    return "".join(_alphabet()[token] for token in tokens if token < len(_alphabet()))


def contexts(batch: Batch) -> list[str]:
    """The text up to each place that is asked, in the order of `table`."""
    texts = [text_of(row) for row in batch.inputs.tolist()]
    return [text[:end] for text in texts for end in range(FROM, LENGTH)]


def frequent(ends: Sequence[str], least: int) -> tuple[str, ...]:
    """Strings of one to three characters that end so many contexts.

    >>> frequent(["ab", "cab", "b"], 2)
    ('ab', 'b')
    """
    counts = Counter(gram for end in ends for gram in {end[-n:] for n in (1, 2, 3)})
    return tuple(sorted(gram for gram, count in counts.items() if count >= least))


def matches(
    grams: Sequence[str], classes: Sequence[str], ends: Sequence[str]
) -> Bool[ndarray, "pattern input"]:
    """Which contexts end with which strings, and with which regular expressions.

    >>> matches(["b"], ["[a-z]"], ["ab", "aB"]).tolist()
    [[True, False], [True, False]]
    """
    strings = [[end.endswith(gram) for end in ends] for gram in grams]
    compiled = [re.compile(rf"(?:{one})\Z") for one in classes]
    return np.array(strings + [[bool(one.search(end)) for end in ends] for one in compiled])


@cache
def patterns() -> tuple[
    tuple[str, ...],
    Bool[ndarray, "pattern"],
    Bool[ndarray, "pattern found"],
    Bool[ndarray, "pattern kept"],
]:
    """The patterns that a neuron may be described by, and where they hold.

    Returns:
        Their names (strings in quotes, then regular expressions), which of them are strings of more than one
        character, and where they hold in the text that is searched and in the text that judges.
    """
    ends, kept = contexts(windows("validation", SEARCHED)), contexts(windows("test", SEARCHED))
    grams = frequent(ends, FEWEST)
    names = (*map(repr, grams), *CLASSES)
    longer = np.array([len(gram) > 1 for gram in grams] + [False] * len(CLASSES))
    return names, longer, matches(grams, CLASSES, ends), matches(grams, CLASSES, kept)


SEARCHED, READ, ASKED = 200, 600, 32
"""Windows that patterns are searched in (as many judge), that tables of characters are made from, and in which
neurons are forced and silenced."""


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
        searched: the pattern's F1 on the first half, for which it was chosen.
        shuffled: the same F1 for the contexts of another neuron.
        counted: neurons with at least five strongest contexts in each half; the others respond to nothing.
    """

    pattern: Int[ndarray, "neuron"]
    precision: Float[ndarray, "neuron"]
    recall: Float[ndarray, "neuron"]
    f1: Float[ndarray, "neuron"]
    searched: Float[ndarray, "neuron"]
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
    found = 2 * hits / np.maximum(sizes, 1)
    chosen = np.argmax(found, axis=0)
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
    shuffled = scores(strong_kept[:, other])[2]
    return Detectors(chosen, precision, recall, f1, found.max(0), shuffled, counted)


# A neuron as a table of characters -----------------------------------------------------------------

KNOWN = (1, 2, 3)
"""How many of the last characters one may know."""
PRIOR = 4
"""A string's own mean counts against that of the shorter string as so many of its contexts."""


def last(batch: Batch, k: int) -> Int[Tensor, "input"]:
    """A number for the last `k` characters at each place that is asked."""
    code = torch.zeros_like(batch.inputs)
    for i in range(k):
        code = code * OpenedText.vocab + batch.inputs.roll(i, 1)
    return code[:, FROM:].flatten()


def predicted_by_last(
    read: Float[ndarray, "read neuron"],
    kept: Float[ndarray, "kept neuron"],
    codes: Sequence[tuple[Int[Tensor, "read"], Int[Tensor, "kept"]]],
) -> Float[ndarray, "known neuron"]:
    """Share of each neuron's variance, on other text, that a table says from the last characters.

    For each string the table has the neuron's mean where the text ended with it, drawn towards the mean of the
    string that is one shorter; a string that was not read is looked up as the shorter one.

    Args:
        read: activations that the table is made from.
        kept: activations that it is judged by.
        codes: for one, two, ... characters, a number for the string at each place of both.
    """
    there, here = torch.from_numpy(read), torch.from_numpy(kept)
    said, says = there.mean(0).expand_as(there), there.mean(0).expand_as(here)
    whole = (here - here.mean(0)).square().sum(0).clamp(min=1e-9)
    shares = []
    for of_read, of_kept in codes:
        strings, row = of_read.unique(return_inverse=True)
        count = row.bincount()[:, None]
        zero = torch.zeros(len(strings), read.shape[1], dtype=there.dtype)
        own, shorter = zero.index_add(0, row, there), zero.index_add(0, row, said) / count
        entry = (own + PRIOR * shorter) / (count + PRIOR)
        place = torch.searchsorted(strings, of_kept).clamp(max=len(strings) - 1)
        says = torch.where((strings[place] == of_kept)[:, None], entry[place], says)
        said = entry[row]
        shares.append(1 - (here - says).square().sum(0) / whole)
    return torch.stack(shares).numpy()


# The book's language model -------------------------------------------------------------------------

PROSE = OpenedText(LENGTH)
GPT = Config(vocab=PROSE.vocab, d_model=64, n_layers=2, n_heads=4, positions="rotary")
GPT_STEPS = 1000
BLOCKS = tuple(range(GPT.n_layers))
MODELS = ("trained", "untrained")
KEYS = ("own", "random")
LEVELS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of all contexts, from a neuron's strongest on."""


def language_trainings(seed: int) -> dict[str, Job]:
    """The machine of one sitting, behind a start token."""
    options = {"batch_size": 16, "schedule": WarmupCosine(100, GPT_STEPS)}
    return {"gpt": job(GPT, PROSE, seed, steps=GPT_STEPS, learning_rate=8e-3, **options)}


@torch.no_grad()
def units(
    model: Decoder, batch: Batch, *, random_keys: int | None = None
) -> Float[ndarray, "input neuron"]:
    """What neurons say at the places that are asked, with their own keys or with random ones as long.

    Args:
        model: whose neurons.
        batch: windows of text.
        random_keys: seed of keys that are drawn in place of the neurons' own, each of the length of the one
            that it replaces and without a bias. They read what the block's network reads.
    """
    if random_keys is None:
        return table(activations(model, batch.inputs), FROM).astype(np.float32)
    draws, said = make_generator(random_keys, "random keys"), []
    with capture(model, "blocks.*.residual_mid") as seen:
        model(batch.inputs)
    for i, block in enumerate(model.blocks):
        memory = as_memory(_network(model, i))
        drawn = F.normalize(torch.randn(memory.keys.shape, generator=draws), dim=1)
        keys = drawn * memory.keys.norm(dim=1, keepdim=True)
        x = block.get_submodule("feedforward_norm")(seen[f"blocks.{i}.residual_mid"])
        said.append(activation_function(memory.activation)(x @ keys.T))
    return table(torch.stack(said), FROM).astype(np.float32)


def _network(model: Reader, block: int) -> FeedForward:
    network = model.get_submodule(f"blocks.{block}.feedforward")
    assert isinstance(network, FeedForward)
    return network


def described(
    model: Any, seed: int, *, random_keys: bool = False
) -> dict[str, Float[ndarray, "..."]]:
    """How well patterns describe a model's neurons, at the top and over the whole range.

    Returns:
        For each block: `f1` of the best pattern on text that was not searched; `shuffled`, that F1 on another
        neuron's strongest contexts; `longer_f1`, of the best string of two or three characters; ``longer``, the
        share of neurons that such a string describes best; `clear`, the share with an F1 above 0.7; `known`,
        the share of variance that a table of the last characters says; `rate`, the mean share of contexts on
        which a neuron is active, and `busy`, the share of neurons that are active on more than half.
        For the tenth of all neurons with the highest F1 on the searched text: `clear_f1` and `clear_recall` on
        other text, and from the strongest few contexts (`LEVELS`) to all, which share of the sum of a neuron's
        positive activations falls there (`written`), and which there where the pattern holds (`named`).
    """
    keys = seed if random_keys else None
    batches = (windows("validation", SEARCHED), windows("test", SEARCHED), windows("train", READ))
    there, here, read = (units(model, batch, random_keys=keys) for batch in batches)
    _, longer, found, kept = patterns()
    strong = strongest(there, TOP), strongest(here, TOP)
    fits = detectors(found, strong[0], kept, strong[1], seed=seed)
    strings = detectors(found[longer], strong[0], kept[longer], strong[1], seed=seed)
    named = kept[fits.pattern].T
    codes = [(last(batches[2], k), last(batches[1], k)) for k in KNOWN]
    clear = np.argsort(fits.searched)[-len(fits.searched) // 10 :]
    written, by_pattern = written_down_to(here[:, clear], named[:, clear])
    return {
        "f1": _by_block(fits.f1),
        "shuffled": _by_block(fits.shuffled),
        "longer_f1": _by_block(strings.f1),
        "longer": _by_block(longer[fits.pattern]),
        "clear": _by_block(fits.f1 > 0.7),
        "known": _by_block(predicted_by_last(read, here, codes)),
        "busy": _by_block(firing_rates(here) > 0.5),
        "rate": _by_block(firing_rates(here)),
        "clear_f1": fits.f1[clear].mean(),
        "clear_recall": fits.recall[clear].mean(),
        "written": written.mean(1),
        "named": by_pattern.mean(1),
    }


def written_down_to(
    says: Float[ndarray, "input neuron"], named: Bool[ndarray, "input neuron"]
) -> tuple[Float[ndarray, "level neuron"], Float[ndarray, "level neuron"]]:
    """Shares of the sum of positive activations, from a neuron's strongest contexts down to all (`LEVELS`).

    Returns:
        The share that falls on contexts down to there, and the share that does so and where `named` holds.
    """
    order = (-says).argsort(0)
    positive = np.maximum(np.take_along_axis(says, order, 0), 0).astype(float)
    marked = positive * np.take_along_axis(named, order, 0)
    down = [max(1, round(level * len(says))) - 1 for level in LEVELS]
    whole = np.maximum(positive.sum(0), 1e-9)
    return positive.cumsum(0)[down] / whole, marked.cumsum(0)[down] / whole


def _by_block(values: ndarray) -> Float[ndarray, "block *rest"]:
    """Means over the neurons of each block; the block's axis comes first."""
    split = values.astype(float).reshape(*values.shape[:-1], len(BLOCKS), -1).mean(-1)
    return np.moveaxis(split, -1, 0)


@measurement(
    seeds=10,
    coords={"model": MODELS, "keys": KEYS, "block": BLOCKS, "level": LEVELS, "characters": KNOWN},
    trainings=language_trainings,
    repeat="opening",
    tolerance=dict.fromkeys(
        ("f1", "shuffled", "longer_f1", "longer", "clear", "known", "busy", "rate", "clear_f1",
         "clear_recall", "written", "named"), 0.2,
    ),
    data=(TEXT,),
)  # fmt: skip
def language(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How well neurons of a language model can be described: its own and random keys, trained and untrained."""
    models = (runs["gpt"].model, make_model(GPT, causal=True, seed=seed).eval())
    found = [[described(m, seed, random_keys=k == "random") for k in KEYS] for m in models]
    axes = {"known": ("block", "characters"), "written": ("level",), "named": ("level",)}
    return {
        name: (
            ("model", "keys", *(axes.get(name, ("block",)) if np.ndim(value) else ())),
            [[each[name] for each in row] for row in found],
        )
        for name, value in found[0][0].items()
    }


# What values do, and what is lost without a neuron --------------------------------------------------

OFTEN = 40
"""So often a character must come next in the text that judges, to be asked for."""
PAIRINGS = ("mean", "other values")


@torch.no_grad()
def agreement(
    model: Decoder, said: Float[ndarray, "input neuron"], batch: Batch
) -> Float[ndarray, "block 2"]:
    """Return whether values favour the characters that follow where their keys fit.

    For each neuron the correlation, over frequent characters, between what its value adds to their logits and
    by how much more often they come next at its strongest contexts than elsewhere.

    Returns:
        For each block the mean over neurons: with their own values, and with the values of the next neuron.
    """
    following = F.one_hot(batch.targets[:, FROM:].flatten(), PROSE.vocab).double()
    often = following.sum(0) >= OFTEN
    strong = torch.from_numpy(strongest(said, TOP)).double()
    share = strong.T @ following / strong.sum(0).clamp(min=1)[:, None]
    more = (share - following.mean(0))[:, often].view(len(BLOCKS), -1, int(often.sum()))
    found = []
    for block in BLOCKS:
        favours = direct_logit_effects(model, block).double()[:, often]
        found.append(
            [float(_correlation(more[block], one).mean()) for one in (favours, favours.roll(1, 0))]
        )
    return np.array(found)


def _correlation(a: Float[Tensor, "row n"], b: Float[Tensor, "row n"]) -> Float[Tensor, "row"]:
    return F.cosine_similarity(a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True), dim=1)


@torch.no_grad()
def kept_promises(
    model: Decoder, said: Float[ndarray, "input neuron"], batch: Batch, size: int
) -> tuple[Float[ndarray, "block 2 d_ff vocab"], Float[ndarray, "block"]]:
    """What values and the unembedding promise when neurons are forced on, and what the logits do.

    A neuron is forced to the 99th percentile of its activations. The promise is the rise above their mean,
    times what its value adds to each logit by the unembedding alone.

    Returns:
        Promised and measured changes, and their correlation over neurons and tokens.
    """
    highs, means = (v.reshape(len(BLOCKS), -1) for v in (np.quantile(said, 0.99, 0), said.mean(0)))
    pairs = []
    for block in BLOCKS:
        promised = (
            direct_logit_effects(model, block).numpy() * (highs[block] - means[block])[:, None]
        )
        measured = forced_changes(model, batch.inputs[:size], block, highs[block]).numpy()
        pairs.append(np.stack([promised, measured]))
    both = np.stack(pairs).astype(float)
    return both, np.array([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in both])


@torch.no_grad()
def held_at_mean(
    model: Decoder, means: Float[ndarray, "neuron"], batch: Batch
) -> Float[ndarray, "neuron input"]:
    """By how many nats the loss at each place rises when one neuron after another is held at its mean."""
    before, risen = _losses(model, batch)[:, FROM:], []
    for neuron, mean in enumerate(means.tolist()):
        with forced(model, *divmod(neuron, GPT.neurons), mean):
            risen.append((_losses(model, batch)[:, FROM:] - before).flatten())
    return torch.stack(risen).numpy()


@torch.no_grad()
def loss_when(model: Decoder, block: int, change: Change, batch: Batch) -> float:
    """Nats a character with the activations of one block changed."""
    with intervene(model, {f"blocks.{block}.feedforward.neurons": change}):
        return float(_losses(model, batch)[:, FROM:].mean())


@measurement(
    seeds=10,
    coords={
        "model": MODELS,
        "block": BLOCKS,
        "value": ("own", "another's"),
        "neuron": tuple(range(GPT.neurons)),
        "where": ("strongest", "elsewhere"),
        "change": PAIRINGS,
    },
    trainings=language_trainings,
    repeat="opening",
    tolerance={
        "agreement": 0.2, "promise": 0.2, "rise": 0.1, "rise_where": 0.1, "f1": 1.0, "important": 0.3,
        "changed": 2.0, "loss": 0.2,
    },
    data=(TEXT,),
)  # fmt: skip
def writing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What neurons of a language model write, and what is lost without them."""
    gpt, other = runs["gpt"].model, make_model(GPT, causal=True, seed=seed).eval()
    assert isinstance(gpt, Decoder)
    assert isinstance(other, Decoder)
    kept = windows("test", SEARCHED)
    few = Batch(kept.inputs[:ASKED], kept.targets[:ASKED], kept.scored[:ASKED])
    said = {"trained": units(gpt, kept), "untrained": units(other, kept)}
    models = {"trained": gpt, "untrained": other}
    _, _, found, judged = patterns()
    there = units(gpt, windows("validation", SEARCHED))
    strong = strongest(there, TOP), strongest(said["trained"], TOP)
    f1 = detectors(found, strong[0], judged, strong[1], seed=seed).f1.reshape(len(BLOCKS), -1)
    rises = held_at_mean(gpt, said["trained"].mean(0), few)
    own = strong[1][: rises.shape[1]].T
    rise = rises.mean(1).reshape(len(BLOCKS), -1)
    means = torch.from_numpy(said["trained"].mean(0)).view(len(BLOCKS), -1)
    shuffle = torch.randperm(GPT.neurons, generator=make_generator(seed, "pairing"))
    changed = [
        [loss_when(gpt, b, c, kept) for c in (means[b], lambda said: said[..., shuffle])]
        for b in BLOCKS
    ]
    return {
        "agreement": (
            ("model", "block", "value"),
            [agreement(models[m], said[m], kept) for m in MODELS],
        ),
        "promise": (
            ("model", "block"),
            [kept_promises(models[m], said[m], kept, ASKED)[1] for m in MODELS],
        ),
        "f1": (("block", "neuron"), f1.round(4)),
        "rise": (("block", "neuron"), rise.round(6)),
        "rise_where": (
            ("block", "where"),
            [
                [float(rises[i][one[i]].mean()) for one in (own, ~own)]
                for i in np.array_split(np.arange(len(rises)), len(BLOCKS))
            ],
        ),
        "important": ("block", [float(spearmanr(f1[b], rise[b])[0]) for b in BLOCKS]),
        "changed": (("block", "change"), changed),
        "loss": float(_losses(gpt, kept)[:, FROM:].mean().detach()),
    }


# One neuron ----------------------------------------------------------------------------------------

RANKS = (0.0, 0.005, 0.02, 0.06, 0.15)
"""How far down its contexts a neuron is shown, as shares of all of them."""
LINES, WIDE, NAMED, PUSHED = 2, 30, 8, 10
PORTRAITS = ("character", "string")


@measurement(
    seeds=1,
    coords={
        "neuron": PORTRAITS,
        "rank": RANKS,
        "line": tuple(range(LINES)),
        "place": tuple(range(WIDE)),
        "top": tuple(range(NAMED)),
        "percent": (10, 50, 90),
        "pushed": tuple(range(PUSHED)),
        "level": LEVELS,
        "dot": tuple(range(600)),
        "block": BLOCKS,
        "axis": ("promised", "measured"),
    },
    trainings=language_trainings,
    repeat="opening",
    tolerance={
        "token": 200.0, "says": 9.0, "at": 30.0, "top_token": 200.0, "product": 9.0, "pushed_token": 200.0,
        "push": 9.0, "f1": 1.0, "recall": 1.0, "precision": 1.0, "rate": 1.0, "written": 1.0, "named": 1.0,
        "number": 600.0, "pattern": 900.0, "dots": 9.0, "slope": 1.0,
    },
    data=(TEXT,),
)  # fmt: skip
def portraits(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two neurons of the first model: those that a character and a longer string describe best."""
    gpt, kept = runs["gpt"].model, windows("test", SEARCHED)
    assert isinstance(gpt, Decoder)
    there, here = units(gpt, windows("validation", SEARCHED)), units(gpt, kept)
    _, longer, found, judged = patterns()
    fits = detectors(found, strongest(there, TOP), judged, strongest(here, TOP), seed=seed)
    own = longer[fits.pattern]
    chosen = [int(np.where(which, fits.searched, 0).argmax()) for which in (~own, own)]
    shown = [_portrait(gpt, kept, here[:, neuron], neuron) for neuron in chosen]
    written, named = written_down_to(here[:, chosen], judged[fits.pattern[chosen]].T)
    both, _ = kept_promises(gpt, here, kept, ASKED)
    flat = both.reshape(len(BLOCKS), 2, -1)
    drawn = np.random.default_rng(0).choice(flat.shape[2], 600, replace=False)
    axes = {
        "token": ("rank", "line", "place"), "says": ("rank", "line", "place"),
        "at": ("rank", "line"), "top_token": ("top",), "product": ("top", "percent"),
        "pushed_token": ("pushed",), "push": ("pushed",),
    }  # fmt: skip
    return {
        **{name: (("neuron", *axes[name]), [one[name] for one in shown]) for name in axes},
        **{name: ("neuron", getattr(fits, name)[chosen]) for name in ("f1", "precision", "recall")},
        "pattern": ("neuron", fits.pattern[chosen].astype(float)),
        "number": ("neuron", np.array(chosen, dtype=float)),
        "rate": ("neuron", firing_rates(here)[chosen]),
        "written": (("neuron", "level"), written.T),
        "named": (("neuron", "level"), named.T),
        "dots": (("block", "axis", "dot"), flat[:, :, drawn].round(4)),
        "slope": ("block", [float(np.polyfit(*pair, 1)[0]) for pair in flat]),  # type: ignore[call-overload]
    }


@torch.no_grad()
def _portrait(
    model: Decoder, kept: Batch, says: Float[ndarray, "input"], neuron: int
) -> dict[str, ndarray]:
    """Lines of text down a neuron's ranks, what its key makes of characters, and what its value favours."""
    block, i = divmod(neuron, GPT.neurons)
    wide = np.full((len(kept.inputs), LENGTH), np.nan)
    wide[:, FROM:] = says.reshape(len(kept.inputs), -1)
    order = (-says).argsort()
    tokens, said, at = [], [], []
    for rank in RANKS:
        first = round(rank * len(order))
        lines = []  # type: ignore[var-annotated]
        for place in order[first:].tolist():
            row, column = divmod(place, LENGTH - FROM)
            if row not in [other for other, _ in lines]:  # lines of different windows
                lines.append((row, column + FROM))
            if len(lines) == LINES:
                break
        for row, column in lines:
            start = min(max(column - 2 * WIDE // 3, FROM), LENGTH - WIDE)
            tokens.append(kept.inputs[row, start : start + WIDE].numpy())
            said.append(np.maximum(wide[row, start : start + WIDE], 0).round(3))
            at.append(column - start)
    with capture(model, f"blocks.{block}.feedforward.pre_activation") as seen:
        model(kept.inputs)
    before = seen[f"blocks.{block}.feedforward.pre_activation"][:, FROM:, i].flatten().numpy()
    current = kept.inputs[:, FROM:].flatten().numpy()
    common = [t for t in range(len(_alphabet())) if (current == t).sum() >= OFTEN]
    spread = {t: np.quantile(before[current == t], [0.1, 0.5, 0.9]) for t in common}
    top = sorted(common, key=lambda t: -float(spread[t][1]))[:NAMED]
    pushed = direct_logit_effects(model, block)[i].numpy()
    by_push = sorted(common, key=lambda t: -float(pushed[t]))
    ends = np.array([*by_push[:6], *by_push[6 - PUSHED :]])
    shape = (len(RANKS), LINES, WIDE)
    return {
        "token": np.array(tokens).reshape(shape), "says": np.array(said).reshape(shape),
        "at": np.array(at).reshape(shape[:2]), "top_token": np.array(top),
        "product": np.array([spread[t] for t in top]).round(4),
        "pushed_token": ends, "push": (pushed[ends] - pushed[common].mean()).round(4),
    }  # fmt: skip


# Where all is known: reversal of digits ------------------------------------------------------------

DIGITS = Reversal(vocab=10, length=8)
SMALL = Config(vocab=10, d_model=32, n_layers=2, activation="relu")
RATES = (1e-3, 3e-3, 1e-2)
STEPS = (0, 100, 300, 1000)
LEVEL = 0.95
"""The area under the curve from which a neuron counts as a detector."""
LABELS = (
    "digit above five", "answer above five", "one digit", "one answer", "one position", "first position",
)  # fmt: skip
KINDS = ("token", "answer", "position")


@dataclass(frozen=True)
class AboveFive:
    """Random digits in; at each position, whether the digit at the mirrored position is above five.

    The control of what this chapter finds *not* to be there: here size is asked for. Shapes and parameters are
    those of `Reversal(10, 8)`; of its ten answers two are used.
    """

    vocab = 10
    length = 8
    causal = False

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of `length` digits; every position is scored."""
        known = DIGITS.batch(generator, size, length=length)
        return Batch(known.inputs, (known.targets > 5).long(), known.scored)


def digits_job(
    seed: int, rate: float, steps: int, *, activation: Any = "relu", task: Any = DIGITS
) -> Job:
    """A small encoder that learns from digits."""
    config = SMALL.replace(activation=activation)
    return job(config, task, seed, steps=steps, learning_rate=rate, batch_size=16)


def digits_trainings(seed: int) -> dict[tuple[float, int], Job]:
    """Reversal at three learning rates, ended after so many steps."""
    return {(rate, n): digits_job(seed, rate, n) for rate in RATES for n in STEPS[1:]}


def looked_at(
    model: Any, seed: int, task: Any = DIGITS
) -> tuple[Float[ndarray, "input neuron"], dict[str, Int[ndarray, "input"]], Batch]:
    """Activations on sequences that were not trained on, what is known of each input, and the sequences."""
    batch = task.batch(make_generator(seed, "neurons"), 256)
    return table(activations(model, batch.inputs)), kinds(batch), batch


def areas(
    values: Float[ndarray, "input neuron"], kind: Mapping[str, Int[ndarray, "input"]]
) -> dict[str, Float[ndarray, "neuron"]]:
    """How well each neuron tells each label apart: where a label has several members, the best of them."""
    ten, eight = np.eye(10, dtype=bool), np.eye(8, dtype=bool)
    five = np.arange(10)[None] > 5
    of = {
        "digit above five": ("token", five), "answer above five": ("answer", five),
        "one digit": ("token", ten), "one answer": ("answer", ten),
        "one position": ("position", eight), "first position": ("position", eight[:1]),
    }  # fmt: skip
    return {name: set_auc(values, kind[by], sets).max(0) for name, (by, sets) in of.items()}


@measurement(
    seeds=10,
    coords={
        "rate": RATES, "steps": STEPS, "label": LABELS, "block": (0, 1), "kind": KINDS,
    },
    trainings=digits_trainings,
    repeat="opening",
    tolerance={"share": 0.3, "permuted": 0.1, "largest": 0.3, "explained": 0.3, "busy": 0.4, "accuracy": 0.3},
)  # fmt: skip
def digits(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """What neurons of models that reverse digits tell apart, over learning rates and steps."""

    def look(rate: float, steps: int) -> dict[str, Any]:
        model = runs[rate, steps].model if steps else make_model(SMALL, causal=False, seed=seed)
        values, kind, _ = looked_at(model, seed)
        order = np.random.default_rng(seed).permutation(len(values))
        own, permuted = areas(values, kind), areas(values[order], kind)
        explained = [variance_explained(values, kind[k]).reshape(2, -1).mean(1) for k in KINDS]
        return {
            "share": [float((own[label] > LEVEL).mean()) for label in LABELS],
            "permuted": [float((permuted[label] > LEVEL).mean()) for label in LABELS],
            "largest": [float(own[label].max()) for label in LABELS],
            "explained": np.array(explained).T,
            "busy": float((firing_rates(values) > 0.5).mean()),
            "accuracy": evaluate(model, DIGITS, seed=seed).accuracy,
        }

    found = [[look(rate, steps) for steps in STEPS] for rate in RATES]
    axes: dict[str, tuple[str, ...]] = dict.fromkeys(("share", "permuted", "largest"), ("label",))
    axes["explained"] = ("block", "kind")
    return {
        name: (
            ("rate", "steps", *axes.get(name, ())),
            [[one[name] for one in row] for row in found],
        )
        for name in found[0][0]
    }


MIDDLE = 3e-3


def asked_trainings(seed: int) -> dict[str, Job]:
    """Reversal, and the control that asks for size."""
    return {
        "reversal": digits_job(seed, MIDDLE, 1000),
        "above five": digits_job(seed, MIDDLE, 300, task=AboveFive()),
    }


@measurement(
    seeds=10,
    coords={
        "label": LABELS,
        "what": ("one answer", "one position"),
        "who": ("detectors", "others"),
        "where": ("own", "elsewhere"),
    },
    trainings=asked_trainings,
    repeat="opening",
    tolerance={"share": 0.5, "accuracy": 0.3, "rise": 2.0},
)
def asked(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Detectors where size is asked for; and what silencing detectors costs models that reverse."""
    model = runs["above five"].model
    values, _, _ = looked_at(model, seed, AboveFive())
    _, kind, _ = looked_at(model, seed)  # the same digits, and the digits that the answer is about
    found = areas(values, kind)
    return {
        "share": ("label", [float((found[label] > LEVEL).mean()) for label in LABELS]),
        "accuracy": evaluate(model, AboveFive(), seed=seed).accuracy,
        "rise": (
            ("what", "who", "where"),
            [without_detectors(runs["reversal"].model, seed, by) for by in ("answer", "position")],
        ),
    }


def without_detectors(model: Any, seed: int, by: str) -> Float[ndarray, "who where"]:
    """Rise of the loss where a digit is the answer (or at a position) and elsewhere, without its detectors.

    Returns:
        Mean over the digits (positions) that have detectors; the second row is for as many other neurons, drawn
        at random. Zeros where none has any.
    """
    values, kind, batch = looked_at(model, seed)
    members = np.eye(int(kind[by].max()) + 1, dtype=bool)
    marks, draws = set_auc(values, kind[by], members) > LEVEL, np.random.default_rng(seed)
    labels = torch.from_numpy(kind[by]).view_as(batch.targets)
    found = []
    for member in np.flatnonzero(marks.any(1)).tolist():
        rest = draws.permutation(np.flatnonzero(~marks[member]))[: marks[member].sum()]
        others = np.isin(np.arange(marks.shape[1]), rest)
        found.append([rise(model, batch, one, labels == member) for one in (marks[member], others)])
    return np.mean(found, axis=0) if found else np.zeros((2, 2))


def activity_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Reversal with both activations, at three learning rates, 300 steps."""
    return {
        (bend, rate): digits_job(seed, rate, 300, activation=bend)
        for bend in ("relu", "gelu")
        for rate in RATES
    }


@measurement(
    seeds=10,
    coords={"activation": ("relu", "gelu"), "rate": RATES, "above": (0.0, 0.1)},
    trainings=activity_trainings,
    repeat="opening",
    tolerance={"busy": 0.5, "untrained": 0.2},
)
def activity(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Share of neurons that are active on more than half of the inputs, by activation, rate and definition."""

    def busy(model: Any) -> list[float]:
        values, _, _ = looked_at(model, seed)
        return [float((firing_rates(values, above=a) > 0.5).mean()) for a in (0.0, 0.1)]

    bends: tuple[Literal["relu"], Literal["gelu"]] = ("relu", "gelu")
    fresh = [make_model(SMALL.replace(activation=b), causal=False, seed=seed) for b in bends]
    return {
        "busy": (
            ("activation", "rate", "above"),
            [[busy(runs[b, rate].model) for rate in RATES] for b in bends],
        ),
        "untrained": (("activation", "above"), [busy(model) for model in fresh]),
    }
