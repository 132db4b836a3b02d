"""What *The workbench* measures: small models, what their heads do on average, and what the live ones can do.

Weights are kept in eight bits, so that the models can be opened on a page and in a notebook without training
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
from measured_transformer.analysis.lens import TunedLens, fit_tuned_lens, logit_lens
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import text_bytes
from measured_transformer.tasks.byte_pairs import tokens_of as bytes_of
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
from measured_book.rooms.workbench.abilities import (
    AGREEMENT,
    ASKED,
    FACTS,
    Reader,
    cost_by_byte,
    of_model,
)
from measured_book.rooms.workbench.byte_model import FILE, REACH, byte_model
from measured_book.rooms.workbench.stories import Stories, encoded, merges, text_of, tokens_of

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
STORY = Config(
    vocab=Stories.vocab,
    d_model=96,
    n_layers=3,
    n_heads=4,
    positions="rotary",
    tie_embeddings=True,
)
STORY_STEPS = 3000
STORIES = Stories()
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


def story_trainings(seed: int) -> dict[str, Job]:
    """The teller of stories: three layers on small stories in pieces."""
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupCosine(50, STORY_STEPS)}
    return {"model": job(STORY, STORIES, seed, steps=STORY_STEPS, learning_rate=4e-3, **options)}


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


# The two models that run in the page --------------------------------------------------------------------

LIVE_TEXTS = ("stories", "reference")
"""Held-out texts that both are asked for: small stories, and the reference of a programming language."""
LETTERS = tuple(range(ord("a"), ord("z") + 1))
LENS = {"steps": 200, "size": 256, "at_once": 1}
"""How a lens is fitted."""
LENS_ROWS = 80


def live_texts() -> dict[str, bytes]:
    """Two held-out texts, cut to a size that is scored in seconds."""
    return {"stories": text_of("test", 300), "reference": text_bytes("test")[:100_000]}


def story_reader(model: Decoder) -> Reader:
    """A teller of stories, to be asked in strings."""
    return Reader(model, encoded, Stories.length, tuple(range(256, Stories.vocab)))


def byte_reader() -> Reader:
    """The book's byte model, to be asked in strings."""
    return Reader(byte_model(), lambda text: list(text.encode()), REACH, LETTERS)


def kept_story_model(model: Model) -> tuple[Decoder, ndarray, ndarray]:
    """A teller of stories with the weights that are kept, and these: eight bits each, and factors."""
    codes, scales = in_eight_bits(model)
    return from_eight_bits(STORY, codes, scales).float(), codes, scales


def as_words(values: ndarray) -> Int[ndarray, "word"]:
    """Small numbers, one after the other, in whole numbers of eight bytes; zeros fill the last."""
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return np.pad(flat, (0, -len(flat) % 8)).view(np.int64)


def rows_of(tokens: Int[Tensor, "token"], length: int) -> Batch:
    """Windows from the beginning of a text, one after the other, for a lens to be fitted on or read."""
    rows = tokens[: LENS_ROWS * (length + 1)].view(LENS_ROWS, length + 1)
    return Batch(rows[:, :-1], rows[:, 1:], torch.ones(LENS_ROWS, length, dtype=torch.bool))


def fitted_lens(
    model: Decoder, seed: int, fitted: Batch, held: Batch
) -> tuple[dict[str, Any], TunedLens]:
    """A tuned lens in half precision, what it reads on held-out text, and what the logit lens reads."""
    lens = fit_tuned_lens(model, fitted, seed=seed, **LENS)
    rounded = TunedLens(lens.weight.half().float(), lens.bias.half().float(), lens.gap)
    told, plain = rounded.read(model, held), logit_lens(model, held)
    return {
        "tuned": ("depth", told.loss),
        "logit": ("depth", plain.loss),
        "gap_before": ("depth", lens.gap[0]),
        "gap_after": ("depth", lens.gap[1]),
    }, rounded


@measurement(
    seeds=1,
    coords={"text": LIVE_TEXTS, "between": AGREEMENT, "fact": FACTS, "kind": ASKED},
    trainings=story_trainings,
    repeat="opening",
    tolerance={
        "bytes": 0.3,
        "unrounded": 0.3,
        "first": 1.0,
        "second": 1.0,
        "copied": 1.0,
        "agreement": 1.0,
        "facts": 1.0,
        "answered": 1.0,
    },
)
def teller_asked(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What the teller of stories can do: cost by the byte, copying, agreement, facts, questions on a story."""
    model, _, _ = kept_story_model(runs["model"].model)
    texts = live_texts()
    assert isinstance(runs["model"].model, Decoder)
    return {
        **of_model(story_reader(model), seed, texts),
        "unrounded": cost_by_byte(story_reader(runs["model"].model), texts["stories"]),
    }


@measurement(
    seeds=1,
    coords={"depth": range(4), "side": range(2)},
    trainings=story_trainings,
    repeat="opening",
    tolerance={
        "weights": 1e30,
        "scales": 1.0,
        "lens": 1e30,
        "tuned": 3.0,
        "logit": 3.0,
        "gap_before": 3.0,
        "gap_after": 3.0,
    },
)
def teller(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The teller of stories that runs in the page: its weights in eight bits, its pieces, its tuned lens."""
    model, codes, scales = kept_story_model(runs["model"].model)
    fitted = rows_of(tokens_of("validation"), Stories.length)
    read, lens = fitted_lens(model, seed, fitted, rows_of(tokens_of("test"), Stories.length))
    return {
        "weights": ("word", as_words(codes.astype(np.int8))),
        "scales": ("row", scales),
        "merges": (("merge", "side"), np.array(merges())),
        "lens": ("lens_word", as_words(_lens_halves(lens))),
        **read,
    }


def _lens_halves(lens: TunedLens) -> ndarray:
    parts = (lens.weight[:-1].flatten(), lens.bias[:-1].flatten())
    halves: ndarray = torch.cat(parts).half().numpy()
    return halves


@measurement(
    seeds=1,
    coords={"text": LIVE_TEXTS, "between": AGREEMENT, "fact": FACTS, "kind": ASKED},
    tolerance={
        "bytes": 0.01,
        "first": 0.01,
        "second": 0.01,
        "copied": 0.01,
        "agreement": 0.01,
        "facts": 0.03,
        "answered": 0.02,
    },
    data=(FILE,),
)
def bytes_asked(seed: int) -> dict[str, Any]:
    """What the book's byte model can do, asked the same as the teller of stories."""
    return of_model(byte_reader(), seed, live_texts())


@measurement(
    seeds=1,
    coords={"depth": range(4)},
    tolerance={"lens": 1e30, "tuned": 0.01, "logit": 0.01, "gap_before": 0.01, "gap_after": 0.01},
    data=(FILE,),
)
def byte_lens(seed: int) -> dict[str, Any]:
    """A tuned lens for the book's byte model, and what both lenses read on held-out text."""
    model = byte_model()
    fitted = rows_of(bytes_of(0, "validation"), REACH)
    read, lens = fitted_lens(model, seed, fitted, rows_of(bytes_of(0, "test"), REACH))
    return {"lens": ("lens_word", as_words(_lens_halves(lens))), **read}
