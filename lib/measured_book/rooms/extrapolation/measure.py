"""What the chapter on longer sequences measures: schemes of position, slowed angles, windows and sinks.

Axis words: `bucket`, a run of eight neighbouring positions, named by the first of them.

The text is the reference of the Python language as release 3.11.7 of Python brings it along (the help topics
of `pydoc`; copyright 2001-2023 Python Software Foundation, under its licence, version 2), which lies beside
the results of the book's first chapter.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.extrapolation import excess_loss
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.positions import Rotation, frequencies
from measured_transformer.parts.rotary_scaling import (
    interpolation,
    ntk_aware,
    ntk_by_parts,
    yarn_stretch,
)
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.opened_text import TEXT, characters
from measured_transformer.tasks.seen_lately import SeenLately
from measured_transformer.tasks.task import Batch, Part, Task, check_sizes
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.longer import (
    Model,
    windowed,
    with_frequencies,
)
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# How far a model gets -----------------------------------------------------------------------------

BUCKET = 8


def by_bucket(
    values: Float[ndarray, "*seed position"], width: int
) -> Float[ndarray, "*seed bucket"]:
    """Means over runs of `width` positions, leaving out what is not scored; NaN where nothing is.

    >>> by_bucket(np.array([np.nan, 1.0, 2.0, 4.0]), 2).tolist()
    [1.0, 3.0]

    Raises:
        ValueError: when the positions do not divide into such runs.
    """
    if values.shape[-1] % width:
        raise ValueError(f"{values.shape[-1]} positions do not divide into buckets of {width}")
    runs = values.reshape(*values.shape[:-1], -1, width)
    scored = np.isfinite(runs).sum(axis=-1)
    return np.where(scored, np.nansum(runs, axis=-1) / np.maximum(scored, 1), math.nan)


def longest_within(
    excess: Float[ndarray, "bucket"], limit: float, *, trained: int, bucket: int = BUCKET
) -> int:
    """The longest length up to which no bucket of positions beyond training costs more than `limit`.

    At least the trained length, at most that of `excess`. Divided by the trained length it is the factor by
    which a model extrapolates.

    >>> longest_within(np.array([0.1, 0.1, 0.1, 0.1, 0.3, 0.1]), 0.2, trained=2, bucket=1)
    4

    Raises:
        ValueError: when the trained positions do not divide into such buckets.
    """
    if trained % bucket:
        raise ValueError(f"{trained} trained positions do not divide into buckets of {bucket}")
    beyond = excess[trained // bucket :]
    bad = np.flatnonzero(~(beyond <= limit))
    return trained + bucket * int(bad[0] if len(bad) else len(beyond))


# Methods on trained rotary models -----------------------------------------------------------------

METHODS = ("as trained", "interpolation", "NTK-aware", "by parts", "YaRN")
FAST = 4.0
"""Turns within the trained length from which a pair is left alone; 32 in the paper, for Llama."""


@contextmanager
def slowed(model: Model, method: str, factor: float, trained: int) -> Iterator[None]:
    """While the block runs, a rotary model reads with the frequencies of one of `METHODS`.

    Raises:
        ValueError: there is no such method, or the model has no rotary positions.
    """
    d = model.config.head_width
    stretch = 1.0
    if method == "as trained":
        omega = frequencies(d)
    elif method == "interpolation":
        omega = interpolation(frequencies(d), factor)
    elif method == "NTK-aware":
        omega = ntk_aware(d, factor)
    elif method in ("by parts", "YaRN"):
        omega = ntk_by_parts(d, factor, float(trained), fast=FAST)
        stretch = yarn_stretch(factor) if method == "YaRN" else 1.0
    else:
        raise ValueError(f"expected one of {', '.join(METHODS)}, got {method!r}")
    with with_frequencies(model, omega, stretch=stretch):
        yield


# Rules of place and of content --------------------------------------------------------------------

LENGTH, TIMES = 32, 8
REACH = LENGTH * TIMES
BUCKETS = tuple(range(0, REACH, BUCKET))
SCHEMES = ("none", "learned", "sinusoidal", "relative", "alibi", "rotary")
LONGER = "alibi, longer"
WIDE = Config(vocab=8, d_model=32, n_heads=2, max_length=REACH)
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
BACK = Lag(vocab=8, length=LENGTH)
STRING = Induction(vocab=8, length=LENGTH, shortest=3, longest=6)
BACK_STEPS, STRING_STEPS, LONGER_STEPS = 200, 300, 2000
FOUR = WIDE.replace(positions="alibi", n_heads=4)
"""ALiBi with four heads, whose slopes begin at a quarter; with two they begin at a sixteenth."""


def _trained(
    name: str, config: Config, task: Task, steps: int, seed: int, tuned_on: int = 2
) -> Job:
    options = {"batch_size": 16}
    search = Search(name, config, task, RATES, tuning_seeds(tuned_on), steps, options)
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)


def lag_trainings(seed: int) -> dict[str, Job]:
    """Every scheme on the rule 'three back', and ALiBi for ten times as many steps."""
    jobs = {
        name: _trained(f"relative-lag-{name}", WIDE.replace(positions=name), BACK, BACK_STEPS, seed)
        for name in SCHEMES
    }
    return jobs | {LONGER: _trained("beyond-lag-alibi", FOUR, BACK, LONGER_STEPS, seed, 1)}


def string_trainings(seed: int) -> dict[str, Job]:
    """Every scheme on strings that repeat."""
    return {
        name: _trained(
            f"relative-copy-{name}", WIDE.replace(positions=name), STRING, STRING_STEPS, seed, 1
        )
        for name in SCHEMES
    }


def _excess(model: Any, task: Lag | Induction, seed: int, **where: Any) -> Float[ndarray, "bucket"]:
    """Excess loss by bucket, of 32 sequences."""
    length = where.pop("length", REACH)
    return by_bucket(excess_loss(model, task, seed=seed, size=32, length=length, **where), BUCKET)


def _beyond(model: Any, task: Lag | Induction, seed: int) -> float:
    """Excess loss at two to eight times the trained length, of a model that sees the last keys alone."""
    lost = _excess(model, task, seed, window=LENGTH)
    return float(lost[2 * LENGTH // BUCKET :].mean())


def _by_method(model: Any, task: Lag | Induction, seed: int) -> list[Float[ndarray, "bucket"]]:
    found = []
    for method in METHODS:
        with slowed(model, method, float(TIMES), LENGTH):
            found.append(_excess(model, task, seed))
    return found


@measurement(
    seeds=10,
    coords={"scheme": (*SCHEMES, LONGER), "method": METHODS, "bucket": BUCKETS},
    trainings=lag_trainings,
    repeat="opening",
    tolerance={"excess": 2.0, "limited": 1.0, "moved": 1.0, "slowed": 2.0},
)
def lag(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Excess loss on 'three back' at up to eight times the trained length: by scheme, and rotary by method."""
    models: list[Any] = [runs[name].model for name in (*SCHEMES, LONGER)]
    moved = [
        float(np.nanmean(_excess(model, BACK, seed, length=LENGTH, shift=100))) for model in models
    ]
    return {
        "excess": (("scheme", "bucket"), [_excess(model, BACK, seed) for model in models]),
        "limited": ("scheme", [_beyond(model, BACK, seed) for model in models]),
        "moved": ("scheme", moved),
        "slowed": (("method", "bucket"), _by_method(runs["rotary"].model, BACK, seed)),
    }


@measurement(
    seeds=10,
    coords={"scheme": SCHEMES, "method": METHODS, "bucket": BUCKETS},
    trainings=string_trainings,
    repeat="opening",
    tolerance={"excess": 3.0, "limited": 1.0, "slowed": 3.0},
)
def strings(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same on strings that repeat, where the rule is one of content."""
    models: list[Any] = [runs[name].model for name in SCHEMES]
    return {
        "excess": (("scheme", "bucket"), [_excess(model, STRING, seed) for model in models]),
        "limited": ("scheme", [_beyond(model, STRING, seed) for model in models]),
        "slowed": (("method", "bucket"), _by_method(runs["rotary"].model, STRING, seed)),
    }


# What was not treated alike ------------------------------------------------------------------------

RULES = ("three back", "strings")
REACHED = WIDE.replace(positions="relative", relative_max_distance=LENGTH)
"""T5's bias with all distances from the trained length on in one bucket, which training reaches."""
STRING_LONGER_STEPS = 1000


@contextmanager
def clipped(model: Model, farthest: int) -> Iterator[None]:
    """While the block runs, a query of a rotary model sees every key, none as farther away than `farthest`.

    So there are more keys than in training and no new distance, as in LM-Infinite (Han et al. 2024).

    Raises:
        ValueError: when the model has no rotary positions.
    """
    if model.rotary is None:
        raise ValueError(
            f"expected a model with rotary positions, got {model.config.positions} positions"
        )
    turns = model.rotary(farthest + 1)
    seen: dict[str, Tensor] = {}

    def turned(x: Tensor, place: int) -> Tensor:
        cos, sin = (part[place].expand(x.shape[-2], -1) for part in (turns.cos, turns.sin))
        return Rotation(cos, sin, turns.pairing).apply(x)

    def near(scores: Tensor) -> Tensor:
        queries, keys = seen["queries"], seen["keys"]
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)
        far = turned(queries, farthest) @ turned(keys, 0).transpose(-2, -1)
        place = torch.arange(scores.shape[-1], device=scores.device)
        beyond = place[:, None] - place > farthest
        return torch.where(beyond, far / math.sqrt(queries.shape[-1]), scores)

    def noted(name: str) -> Any:
        return lambda x: seen.update({name: x}) or x

    changes = {f"*.attention.{name}": noted(name) for name in ("queries", "keys")}
    with intervene(model, {**changes, "*.attention.scores": near}):
        yield


def reached_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """T5's bias whose buckets training reaches, ALiBi until it has learned strings, and rotary as before."""
    rotary = WIDE.replace(positions="rotary")
    return {
        ("relative", "three back"): _trained("beyond-lag-reached", REACHED, BACK, BACK_STEPS, seed),
        ("relative", "strings"): _trained(
            "beyond-copy-reached", REACHED, STRING, STRING_STEPS, seed, 1
        ),
        ("alibi", "strings"): _trained(
            "beyond-copy-alibi", FOUR, STRING, STRING_LONGER_STEPS, seed, 1
        ),
        ("rotary", "three back"): _trained("relative-lag-rotary", rotary, BACK, BACK_STEPS, seed),
        ("rotary", "strings"): _trained(
            "relative-copy-rotary", rotary, STRING, STRING_STEPS, seed, 1
        ),
    }


@measurement(
    seeds=10,
    coords={"rule": RULES, "bucket": BUCKETS},
    trainings=reached_trainings,
    repeat="opening",
    tolerance={"relative": 2.0, "limited": 2.0, "alibi": 2.0, "clipped": 2.0},
)
def reached(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Excess loss of T5's bias whose buckets training reaches, and of ALiBi that has learned strings.

    And of rotary models that see all keys, none farther away than any in training.
    """
    tasks = dict(zip(RULES, (BACK, STRING), strict=True))  # type: dict[str, Lag | Induction]
    relative: list[Any] = [runs["relative", rule].model for rule in RULES]
    far = []
    for rule, task in tasks.items():
        rotary: Any = runs["rotary", rule].model
        with clipped(rotary, LENGTH - 1):
            far.append(_excess(rotary, task, seed))
    return {
        "relative": (
            ("rule", "bucket"),
            [
                _excess(model, task, seed)
                for model, task in zip(relative, tasks.values(), strict=True)
            ],
        ),
        "limited": (
            "rule",
            [
                _beyond(model, task, seed)
                for model, task in zip(relative, tasks.values(), strict=True)
            ],
        ),
        "alibi": ("bucket", _excess(runs["alibi", "strings"].model, STRING, seed)),
        "clipped": (("rule", "bucket"), far),
    }


# A window, and what it drops ------------------------------------------------------------------------

LATELY = SeenLately(vocab=13, length=LENGTH)
LATELY_STEPS = 400
KEPT = ("everything", "window", "window and start")


def lately_trainings(seed: int) -> dict[str, Job]:
    """A rotary decoder that says whether it has seen a token lately."""
    config = WIDE.replace(vocab=13, positions="rotary")
    return {"rotary": _trained("beyond-lately", config, LATELY, LATELY_STEPS, seed)}


@contextmanager
def keeping(model: Model, kept: str, window: int, sinks: int = 1) -> Iterator[None]:
    """While the block runs, a rotary model sees what one of `KEPT` says.

    Raises:
        ValueError: there is no such thing to keep.
    """
    if kept not in KEPT:
        raise ValueError(f"expected one of {', '.join(KEPT)}, got {kept!r}")
    with (
        nullcontext()
        if kept == "everything"
        else windowed(model, window, sinks=sinks if kept == "window and start" else 0)
    ):
        yield


@torch.no_grad()
def _losses(model: Any, batch: Batch) -> tuple[Float[ndarray, "position"], Tensor]:
    """The mean loss at each position, NaN where nothing is scored, and the answers."""
    logits = model(batch.inputs)
    loss = F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none").double()
    scored = batch.scored[0]
    return loss.mean(0).masked_fill(~scored, math.nan).numpy(), logits.argmax(-1)


@torch.no_grad()
def weight_on_start(model: Any, batch: Batch) -> tuple[float, float]:
    """Mean weight on the first token of the head that leans on it most: of new tokens, and of seen ones.

    Queries of the second half alone are asked.
    """
    with capture(model, "*.pattern") as seen:
        model(batch.inputs)
    half = batch.inputs.shape[1] // 2
    weights = torch.cat([p[:, :, half:, 0] for p in seen.values()], dim=1)  # batch head query
    known = batch.targets[:, half:].bool()[:, None].expand_as(weights)
    fresh = (weights * ~known).sum((0, 2)) / (~known).sum((0, 2))
    head = int(fresh.argmax())
    return float(fresh[head]), float(weights[:, head][known[:, head]].mean())


@measurement(
    seeds=10,
    coords={"kept": KEPT, "bucket": BUCKETS, "token": ("new", "seen")},
    trainings=lately_trainings,
    repeat="opening",
    tolerance={"loss": 4.0, "says": 0.6, "weight": 0.5},
)
def lately(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss on 'seen lately' with attention to everything, to a window, and to a window and the start token.

    And how often the model says that it has seen a token, at four to eight times the trained length, and what
    its head that leans most on the start token gives it at the trained length.
    """
    model: Any = runs["rotary"].model
    batch = LATELY.batch(make_generator(seed, "evaluation"), 64, length=REACH)
    loss, says = [], []
    for kept in KEPT:
        with keeping(model, kept, LENGTH):
            by_position, answers = _losses(model, batch)
        loss.append(by_bucket(by_position, BUCKET))
        says.append(float(answers[:, REACH // 2 :].double().mean()))
    short = LATELY.batch(make_generator(seed, "evaluation"), 256)
    return {
        "loss": (("kept", "bucket"), loss),
        "says": ("kept", says),
        "weight": ("token", list(weight_on_start(model, short))),
    }


# Text ---------------------------------------------------------------------------------------------

CHARACTERS = 103


@dataclass(frozen=True)
class Opened:
    """Windows of the text behind a start token; each position is scored on the character that follows.

    Attributes:
        length: number of predictions asked for.
        part: which part of the text is drawn from.

    Raises:
        ValueError: when `length` is not a positive whole number.
    """

    length: int = 64
    part: Part = "train"
    causal = True
    vocab = CHARACTERS + 1

    def __post_init__(self) -> None:
        check_sizes(length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = characters(self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n)]
        opened = torch.cat((torch.full((size, 1), CHARACTERS), windows[:, :-1]), dim=1)
        return Batch(opened, windows, torch.ones(size, n, dtype=torch.bool))


READ = 64
FAR = READ * TIMES
PROSE = Opened(READ)
GPT = Config(vocab=CHARACTERS + 1, d_model=64, n_layers=2, n_heads=4, positions="rotary")
GPT_STEPS = 600
GPT_RATES = (5e-4, 1.25e-3, 3e-3, 8e-3, 2e-2, 5e-2)
TEXT_BUCKETS = tuple(range(0, FAR, BUCKET))
WINDOWS = ("window", "window and start")


def text_trainings(seed: int) -> dict[str, Job]:
    """A small language model of characters, trained on windows of 64."""
    options = {"batch_size": 16, "schedule": WarmupCosine(60, GPT_STEPS)}
    search = Search("beyond-text", GPT, PROSE, GPT_RATES, tuning_seeds(1), GPT_STEPS, options)
    rate = tuned(search)
    return {"gpt": job(GPT, PROSE, seed, steps=GPT_STEPS, learning_rate=rate, **options)}


@measurement(
    seeds=5,
    coords={
        "method": METHODS,
        "kept": WINDOWS,
        "bucket": TEXT_BUCKETS,
        "token": ("average",),
    },
    trainings=text_trainings,
    repeat="opening",
    tolerance={"loss": 1.0, "limited": 0.3, "weight": 0.2},
    data=(TEXT,),
)
def text(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss of a language model at up to eight times its trained length, on text held out, by method and window.

    And the largest mean weight on the start token among its heads.
    """
    model: Any = runs["gpt"].model
    held_out = Opened(READ, "validation")
    batch = held_out.batch(make_generator(seed, "evaluation"), 32, length=FAR)
    loss = []
    for method in METHODS:
        with slowed(model, method, float(TIMES), READ):
            loss.append(by_bucket(_losses(model, batch)[0], BUCKET))
    limited = []
    for kept in WINDOWS:
        with keeping(model, kept, READ, 4):
            limited.append(by_bucket(_losses(model, batch)[0], BUCKET))
    short = held_out.batch(make_generator(seed, "evaluation"), 64)
    with capture(model, "*.pattern") as seen, torch.no_grad():
        model(short.inputs)
    leaning = torch.cat([p[:, :, READ // 2 :, 0].mean((0, 2)) for p in seen.values()])
    return {
        "loss": (("method", "bucket"), loss),
        "limited": (("kept", "bucket"), limited),
        "weight": ("token", [float(leaning.max())]),
    }


AGAIN = ("as trained", "interpolation", "NTK-aware", "YaRN")
AGAIN_LENGTH, AGAIN_STEPS, AGAIN_BATCH = 4 * READ, 25, 4
AGAIN_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


def fit_longer(
    model: Any, method: str, rate: float, seed: int, steps: int = AGAIN_STEPS
) -> Float[ndarray, "bucket"]:
    """Train a copy of a model for a few steps at four times its length; its loss there on text held out."""
    model = copy.deepcopy(model).train()
    weights = list(model.parameters())
    updates = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.98), weight_decay=0)
    generator = make_generator(seed, "longer text")
    with slowed(model, method, 4.0, READ):
        for _ in range(steps):
            batch = PROSE.batch(generator, AGAIN_BATCH, length=AGAIN_LENGTH)
            loss = F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
            updates.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            updates.step()
        held_out = Opened(READ, "validation")
        batch = held_out.batch(make_generator(seed, "evaluation"), 32, length=AGAIN_LENGTH)
        return by_bucket(_losses(model.eval(), batch)[0], BUCKET)


@measurement(
    seeds=5,
    coords={"method": AGAIN, "rate": AGAIN_RATES, "bucket": TEXT_BUCKETS[: AGAIN_LENGTH // BUCKET]},
    trainings=text_trainings,
    repeat="opening",
    tolerance={"loss": 1.0, "before": 1.0, "limited": 0.3},
    data=(TEXT,),
)
def again(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The language model before and after a few steps at four times its length, by method and learning rate.

    And before, with a window.
    """
    model: Any = runs["gpt"].model
    with keeping(model, "window", READ):
        batch = Opened(READ, "validation").batch(
            make_generator(seed, "evaluation"), 32, length=AGAIN_LENGTH
        )
        limited = by_bucket(_losses(model, batch)[0], BUCKET)
    return {
        "loss": (
            ("method", "rate", "bucket"),
            [[fit_longer(model, method, rate, seed) for rate in AGAIN_RATES] for method in AGAIN],
        ),
        "before": (
            ("method", "bucket"),
            [fit_longer(model, method, 1e-3, seed, steps=0) for method in AGAIN],
        ),
        "limited": ("bucket", limited),
    }


@measurement(
    seeds=5,
    coords={"rate": AGAIN_RATES},
    trainings=text_trainings,
    repeat="opening",
    tolerance={"loss": 0.3},
    data=(TEXT,),
)
def short(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The language model with a window at two to four times its length, after as many steps as in `again`.

    They are steps at the trained length, with as many characters each.
    """
    found = []
    for rate in AGAIN_RATES:
        model: Any = copy.deepcopy(runs["gpt"].model).train()
        weights = list(model.parameters())
        updates = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.98), weight_decay=0)
        generator = make_generator(seed, "longer text")
        for _ in range(AGAIN_STEPS):
            batch = PROSE.batch(generator, AGAIN_BATCH * AGAIN_LENGTH // READ)
            loss = F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
            updates.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            updates.step()
        held_out = Opened(READ, "validation")
        batch = held_out.batch(make_generator(seed, "evaluation"), 32, length=AGAIN_LENGTH)
        with keeping(model.eval(), "window", READ):
            found.append(float(np.mean(_losses(model, batch)[0][2 * READ :])))
    return {"loss": ("rate", found)}
