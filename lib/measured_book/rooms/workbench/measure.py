"""What *The workbench* measures: two small models, and what their heads do on average.

Their weights are kept in eight bits, so that they can be opened on a page and in a notebook without training
anything. All that is measured here is measured on the models as they are kept.
"""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.ablation import ablated, heads, loss
from measured_transformer.analysis.lens import logit_lens
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.grammar import VOCABULARY, Grammar
from measured_transformer.tasks.opened_text import TEXT
from measured_transformer.tasks.task import Batch, Part, Task, check_share, check_sizes, held_out
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, make_model, predict
from measured_transformer.training.schedules import WarmupCosine, WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from torch import Tensor
from xarray import Dataset

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# The words of a manual ----------------------------------------------------------------------------

UNKNOWN, START = "<unknown>", "<start>"
WORDS = 1024
"""Words that the language model knows, the two above among them."""
LENGTH = 48
_SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
_WORD = re.compile(r"[A-Za-z_]+|\d+|[^\w\s]")


@cache
def _text(part: Part) -> tuple[str, ...]:
    words = _WORD.findall(lzma.decompress(TEXT.read_bytes()).decode("utf-8").lower())
    start, end = (round(share * len(words)) for share in _SHARES[part])
    return tuple(words[start:end])


@cache
def vocabulary() -> tuple[str, ...]:
    """The words that the language model knows, by number; the most frequent ones of the training part."""
    counts = Counter(_text("train"))
    often = sorted(counts, key=lambda word: (-counts[word], word))
    return (UNKNOWN, START, *often[: WORDS - 2])


def encode(text: str) -> Int[Tensor, "position"]:
    """The tokens of a text behind the start token: words and signs, in small letters.

    >>> encode("The value is None.").shape
    torch.Size([6])
    """
    number_of = {word: i for i, word in enumerate(vocabulary())}
    words = [START, *_WORD.findall(text.lower())]
    return torch.tensor([number_of.get(word, 0) for word in words])


@cache
def _numbers(part: Part) -> Int[Tensor, "token"]:
    number_of = {word: i for i, word in enumerate(vocabulary())}
    return torch.tensor([number_of.get(word, 0) for word in _text(part)])


@dataclass(frozen=True)
class ManualWords:
    """Windows of the manual, word by word behind a start token; some are one phrase over and over.

    Attributes:
        length: number of predictions asked for.
        share: probability that a window is a phrase that repeats itself.
        part: which part of the manual is drawn from.

    Raises:
        ValueError: when `length` is not a positive whole number or `share` no probability.
    """

    length: int = LENGTH
    share: float = 0.3
    part: Part = "train"
    causal = True
    vocab = WORDS

    def __post_init__(self) -> None:
        check_sizes(length=self.length)
        check_share(share=self.share)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part; phrases have 6 to 16 words."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = _numbers(self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        period = torch.randint(6, 17, (size, 1), generator=generator)
        repeats = torch.rand(size, 1, generator=generator) < self.share
        place = torch.arange(n).expand(size, -1)
        place = torch.where(repeats, place % period, place)
        targets = whole[starts + place]
        inputs = torch.cat((torch.ones(size, 1, dtype=torch.long), targets[:, :-1]), 1)
        return Batch(inputs, targets, torch.ones(size, n, dtype=torch.bool))


# Two models ---------------------------------------------------------------------------------------

MANUAL = Config(
    vocab=WORDS, d_model=64, n_layers=3, n_heads=4, positions="rotary", tie_embeddings=True
)
MANUAL_STEPS = 1200
GRAMMAR = Config(
    vocab=len(VOCABULARY),
    d_model=64,
    d_ff=64,
    n_layers=2,
    n_heads=8,
    positions="rotary",
    rotary_base=10.0,
)
GRAMMAR_STEPS = 400
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
CONFIGS = {"manual": MANUAL, "grammar": GRAMMAR}
TASKS: dict[str, Task] = {"manual": ManualWords(), "grammar": Grammar(24)}


def manual_trainings(seed: int) -> dict[str, Job]:
    """The language model: three layers on the words of the manual."""
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupCosine(100, MANUAL_STEPS)}
    return {
        "model": job(
            MANUAL, TASKS["manual"], seed, steps=MANUAL_STEPS, learning_rate=5e-3, **options
        )
    }


def grammar_trainings(seed: int) -> dict[str, Job]:
    """The decoder of the chapter on heads and grammar, trained as there."""
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupLinear(20, GRAMMAR_STEPS)}
    task = TASKS["grammar"]
    search = Search(
        "grammar-decoder", GRAMMAR, task, RATES, tuning_seeds(2), GRAMMAR_STEPS, options
    )
    return {
        "model": job(
            GRAMMAR, task, seed, steps=GRAMMAR_STEPS, learning_rate=tuned(search), **options
        )
    }


def in_eight_bits(model: Model) -> tuple[Int[ndarray, "weight"], Float[ndarray, "row"]]:
    """All weights of a model as whole numbers from -127 to 127, and what each row is multiplied by.

    A row is the last axis of a parameter; its largest weight becomes 127.
    """
    codes, scales = [], []
    for parameter in model.parameters():
        rows = parameter.detach().double().reshape(-1, parameter.shape[-1])
        scale = (rows.abs().amax(1) / 127).half().double().clamp_min(2.0**-24)
        codes.append((rows / scale[:, None]).round().clamp(-127, 127).flatten())
        scales.append(scale)
    return torch.cat(codes).long().numpy(), torch.cat(scales).numpy()


@torch.no_grad()
def from_eight_bits(
    config: Config, codes: Int[ndarray, "weight"], scales: Float[ndarray, "row"]
) -> Decoder:
    """The decoder whose weights `in_eight_bits` has packed.

    Raises:
        ValueError: when they are more or fewer than such a model has.
    """
    model = make_model(config, causal=True, seed=0).eval()
    assert isinstance(model, Decoder)
    own = sum(parameter.numel() for parameter in model.parameters())
    if own != len(codes):
        raise ValueError(f"expected {own} weights for this config, got {len(codes)}")
    weights, factors = torch.as_tensor(codes).double(), torch.as_tensor(scales).double()
    for parameter in model.parameters():
        n, rows = parameter.numel(), parameter.numel() // parameter.shape[-1]
        part = weights[:n].view(rows, -1) * factors[:rows, None]
        parameter.copy_(part.view_as(parameter))
        weights, factors = weights[n:], factors[rows:]
    return model


def kept(result: Dataset, which: str) -> Decoder:
    """One of the two models, from the result of its measurement: 'manual' or 'grammar'.

    Raises:
        ValueError: when there is no such model, or the result is another one's.
    """
    if which not in CONFIGS:
        raise ValueError(f"expected one of {', '.join(CONFIGS)}, got {which!r}")
    first = result.isel(seed=0)
    return from_eight_bits(CONFIGS[which], first.weights.values, first.scales.values)


# What their heads do on average -------------------------------------------------------------------

WINDOWS = 256


def repeated_phrases(seed: int, task: Task, period: int = 12) -> Batch:
    """Held-out sequences whose words come twice or more, every `period` words; scored from the second on."""
    plain = held_out(task).batch(make_generator(seed, "phrases"), WINDOWS)
    place = torch.arange(task.length) % period
    targets = plain.targets[:, place]
    inputs = torch.cat((plain.inputs[:, :1], targets[:, :-1]), 1)
    scored = torch.arange(task.length).expand_as(targets) > period
    return Batch(inputs, targets, scored)


@torch.no_grad()
def _patterns(model: Model, batch: Batch) -> Float[Tensor, "layer example head query key"]:
    with capture(model, "blocks.*.attention.pattern") as seen:
        predict(model, batch)
    return torch.stack(list(seen.values())).double()


@torch.no_grad()
def looked(model: Decoder, seed: int, task: Task) -> dict[str, Any]:
    """What is measured on a model: losses, where heads look, readings by depth, and losses without a head."""
    batch = held_out(task).batch(make_generator(seed, "held-out"), WINDOWS)
    other = held_out(task).batch(make_generator(seed, "reference"), WINDOWS)
    phrases = repeated_phrases(seed, task)
    period = 12
    plain, twice = _patterns(model, batch), _patterns(model, phrases)
    later = slice(period + 1, None)
    induction = twice.diagonal(1 - period, -2, -1)[..., 2:]  # from the second time on
    lens = logit_lens(model, batch)
    whole, again = loss(model, batch), loss(model, phrases)
    shape = (model.config.n_layers, model.config.n_heads)
    harm: dict[str, list[float]] = {"mean": [], "zero": [], "again": []}
    for head in heads(model):
        with ablated(model, [head], "mean", reference=other):
            harm["mean"].append(loss(model, batch) - whole)
        with ablated(model, [head], "zero"):
            harm["zero"].append(loss(model, batch) - whole)
            harm["again"].append(loss(model, phrases) - again)
    axes = ("layer", "head")
    return {
        "loss": whole,
        "again": again,
        "first": (axes, plain[..., later, 0].mean((1, 3))),
        "previous": (axes, plain.diagonal(-1, -2, -1).mean((1, 3))),
        "induction": (axes, induction.mean((1, 3))),
        "harm": (axes, np.reshape(harm["mean"], shape)),
        "harm_zero": (axes, np.reshape(harm["zero"], shape)),
        "harm_again": (axes, np.reshape(harm["again"], shape)),
        "lens": ("depth", lens.loss),
        "lens_right": ("depth", lens.accuracy),
    }


def packed(config: Config, run: Run, seed: int, task: Task) -> dict[str, Any]:
    """A trained model in eight bits, what the rounding costs, and what is measured on it."""
    codes, scales = in_eight_bits(run.model)
    model = from_eight_bits(config, codes, scales)
    batch = held_out(task).batch(make_generator(seed, "held-out"), WINDOWS)
    return {
        "weights": ("weight", codes),
        "scales": ("row", scales),
        "unrounded": loss(run.model, batch),
        **looked(model, seed, task),
    }


TOLERANCE = {
    "weights": 255.0,
    "scales": 1.0,
    "unrounded": 0.3,
    "loss": 0.3,
    "again": 1.0,
    "first": 1.0,
    "previous": 1.0,
    "induction": 1.0,
    "harm": 3.0,
    "harm_zero": 3.0,
    "harm_again": 5.0,
    "lens": 3.0,
    "lens_right": 0.3,
}
"""How far values may lie from the kept ones where a model is trained anew on another kind of machine."""


@measurement(
    seeds=1,
    coords={"layer": range(3), "head": range(4), "depth": range(4)},
    trainings=manual_trainings,
    repeat="opening",
    tolerance=TOLERANCE,
    data=(TEXT,),
)
def manual(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The language model of the workbench: its weights, and what its heads do on 256 held-out windows."""
    return packed(MANUAL, runs["model"], seed, TASKS["manual"])


@measurement(
    seeds=1,
    coords={"layer": range(2), "head": range(8), "depth": range(3)},
    trainings=grammar_trainings,
    repeat="opening",
    tolerance=TOLERANCE,
)
def grammar(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The grammar's decoder: its weights, and what its heads do on 256 held-out rows."""
    return packed(GRAMMAR, runs["model"], seed, TASKS["grammar"])
