"""What neurons respond to, what they write, and what is lost without them: each beside controls.

First the formula: a network as a sum over neurons, in either convention. Then the machine of the chapter *A
Transformer in one sitting*, whose neurons are described by patterns of text, predicted from the last
characters, forced and silenced; and the same before its first step. Last small encoders that reverse digits,
where all that a neuron could respond to is known.

Activations are tables, a row for each *input* (one position of one sequence) and a column for each neuron, the
blocks one after another.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.ffn_memory import as_memory, sum_error
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.feedforward import FeedForward, activation_function
from measured_transformer.tasks.opened_text import TEXT, OpenedText
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import job, measurement
from measured_book.rooms.neurons.looking import (
    Reader,
    activations,
    direct_logit_effects,
    firing_rates,
    forced,
    forced_changes,
    kinds,
    position_losses,
    rise,
    set_auc,
    table,
    variance_explained,
)
from measured_book.rooms.neurons.patterns import (
    ASKED,
    FROM,
    KNOWN,
    LENGTH,
    READ,
    SEARCHED,
    TOP,
    alphabet,
    detectors,
    last,
    patterns,
    predicted_by_last,
    strongest,
    windows,
)

# Keys and values -----------------------------------------------------------------------------------


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
    before, risen = position_losses(model, batch)[:, FROM:], []
    for neuron, mean in enumerate(means.tolist()):
        with forced(model, *divmod(neuron, GPT.neurons), mean):
            risen.append((position_losses(model, batch)[:, FROM:] - before).flatten())
    return torch.stack(risen).numpy()


@torch.no_grad()
def loss_when(model: Decoder, block: int, change: Change, batch: Batch) -> float:
    """Nats a character with the activations of one block changed."""
    with intervene(model, {f"blocks.{block}.feedforward.neurons": change}):
        return float(position_losses(model, batch)[:, FROM:].mean())


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
        "loss": float(position_losses(gpt, kept)[:, FROM:].mean().detach()),
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
    common = [t for t in range(len(alphabet())) if (current == t).sum() >= OFTEN]
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
