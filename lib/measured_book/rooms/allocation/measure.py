r"""Attention as a budget: what a margin of scores buys, and a layer that has to read marked values among many.

A softmax hands out weights that sum to one. Where the scores of m of n tokens exceed all others by a *margin*
$g$, these m get $m e^g / (m e^g + n - m)$ together, their *total weight*. A `Reader` learns such a margin from
data, and what it has learned can then be asked at other lengths and with other remedies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.training.device import cpu_threads
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.training.tuning import search_losses
from measured_transformer.variants.differential import DifferentialAttention
from numpy import ndarray
from torch import Tensor, nn

from measured_book.measuring import measurement, tuning_seeds

# Arithmetic of the budget -----------------------------------------------------------------------


def total_weight(margin: float, n: int, m: int = 1) -> float:
    """The weight that m of n tokens get together when their scores exceed all others by this margin.

    >>> round(total_weight(2.0, 8), 3)
    0.514

    Raises:
        ValueError: unless 1 <= m < n.
    """
    _check_counts(n, m)
    return 1 / (1 + (n - m) / m * math.exp(-margin))


def needed_margin(share: float, n: int, m: int = 1) -> float:
    """The margin at which m of n tokens get this share together: ln(a (n - m) / (m (1 - a))).

    >>> round(total_weight(needed_margin(0.99, 64, 5), 64, 5), 12)
    0.99

    Raises:
        ValueError: unless 1 <= m < n and the share lies strictly between 0 and 1.
    """
    _check_counts(n, m)
    _check_share(share)
    return math.log(share / (1 - share)) + math.log((n - m) / m)


def longest(share: float, margin: float, m: int = 1) -> float:
    """The number of tokens up to which a margin keeps the total weight of m of them at this share.

    >>> round(longest(0.5, math.log(30), 2))
    62

    Raises:
        ValueError: unless m is at least 1 and the share lies strictly between 0 and 1.
    """
    _check_share(share)
    if m < 1:
        raise ValueError(f"expected at least one token, got m={m}")
    return m * (1 + math.exp(margin) * (1 - share) / share)


def margin_weights(margin: float, n: int, m: int = 1) -> Float[ndarray, "token"]:
    """Softmax over n scores of which the first m are `margin` and all others zero.

    Raises:
        ValueError: unless at least one token is needed and one is not.
    """
    _check_counts(n, m)
    scores = torch.zeros(n, dtype=torch.float64)
    scores[:m] = margin
    weights: ndarray = scores.softmax(0).numpy()
    return weights


def _check_counts(n: int, m: int) -> None:
    if not 1 <= m < n:
        raise ValueError(f"expected at least one needed token and fewer than all, got m={m}, n={n}")


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"expected a total weight strictly between 0 and 1, got {share}")


# Reading marked values --------------------------------------------------------------------------


@dataclass(frozen=True)
class Marked:
    """Tokens that carry a value, some of them marked; asked for is the mean of the marked values.

    Attributes:
        values: what each token carries, standard normal.
        marks: which tokens are asked for; the same number in each row only where it was fixed.
    """

    values: Float[Tensor, "batch token d_value"]
    marks: Bool[Tensor, "batch token"]

    @property
    def counts(self) -> Float[Tensor, "batch 1"]:
        """How many tokens are marked, row by row."""
        return self.marks.sum(1, keepdim=True).to(self.values.dtype)

    @property
    def answers(self) -> Float[Tensor, "batch d_value"]:
        """The mean of the marked values, zero where there are none."""
        return (self.values * self.marks[..., None]).sum(1) / self.counts.clamp(min=1)


def marked(
    generator: torch.Generator, rows: int, n: int, m: int | tuple[int, int], *, width: int = 8
) -> Marked:
    """Draw rows of n tokens, m of them marked at random places.

    Args:
        generator: where the numbers come from.
        rows: number of rows.
        n: tokens in a row.
        m: how many are marked; least and most, where each row is to have its own number.
        width: of a value.

    Raises:
        ValueError: when fewer than none or more than all tokens would be marked.
    """
    least, most = (m, m) if isinstance(m, int) else m
    if not 0 <= least <= most <= n:
        raise ValueError(f"expected 0 <= least <= most <= n={n} marked tokens, got {least}, {most}")
    counts = torch.randint(least, most + 1, (rows, 1), generator=generator)
    order = torch.rand(rows, n, generator=generator).argsort(1)
    marks = torch.zeros(rows, n, dtype=torch.bool).scatter_(1, order, torch.arange(n) < counts)
    return Marked(torch.randn(rows, n, width, generator=generator), marks)


class Reader(nn.Module):
    """One attention layer that is asked for the marked values: a fixed question, and one answer.

    A token enters as a linear map of its value, plus a learned vector when it is marked. A learned question
    attends to all of them. What comes out is read by one more linear map. There is no norm and no bias, so
    that the answer is a weighted sum of values and of marks. Fresh values and marks have entries of
    variance one, as behind a norm; the question is a tenth of that, so that a fresh layer attends almost
    evenly. With a start token, a learned vector stands before all others and is never marked.
    """

    def __init__(
        self,
        *,
        d_value: int = 8,
        d_model: int = 20,
        n_heads: int = 1,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        start: bool = False,
        differential: bool = False,
    ) -> None:
        """Draw fresh weights. The sizes are those of `parts.attention.MultiHeadAttention`, and its errors.

        With `differential`, that is a `DifferentialAttention`, whatever the sizes of heads.
        """
        super().__init__()
        self.enter = Linear(d_value, d_model, bias=False)
        self.mark = nn.Parameter(torch.randn(d_model))
        self.question = nn.Parameter(0.1 * torch.randn(d_model))
        self.start = nn.Parameter(torch.randn(d_model)) if start else None
        self.attention: nn.Module = (
            DifferentialAttention(d_model)
            if differential
            else MultiHeadAttention(
                d_model, n_heads, n_kv_heads=n_kv_heads, d_head=d_head, bias=False
            )
        )
        self.read = Linear(d_model, d_value, bias=False)
        for name, weight in self.named_parameters():
            if name == "enter.weight":
                nn.init.normal_(weight, std=d_value**-0.5)
            elif weight.ndim == 2:
                nn.init.xavier_uniform_(weight)

    def forward(
        self, data: Marked, *, seen: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch d_value"]:
        """The answer; `seen` says which tokens exist for the layer, all of them when None."""
        tokens = self.enter(data.values) + data.marks[..., None] * self.mark
        if self.start is not None:
            tokens = torch.cat((self.start.expand(len(tokens), 1, -1), tokens), 1)
            seen = None if seen is None else nn.functional.pad(seen, (1, 0), value=True)
        asked = self.question.expand(len(tokens), 1, -1)
        return self.read(self.attention(asked, tokens, padding_mask=seen))[:, 0]


@dataclass(frozen=True)
class ReaderSizes:
    """What a reader is made of; see `Reader`.

    >>> heads, shared = ReaderSizes(n_heads=4), ReaderSizes(n_heads=4, n_kv_heads=1, d_head=8)
    >>> heads.attention_weights == shared.attention_weights
    True
    """

    d_value: int = 8
    d_model: int = 20
    n_heads: int = 1
    n_kv_heads: int | None = None
    d_head: int | None = None
    start: bool = False
    differential: bool = False

    def make(self) -> Reader:
        """A reader with fresh weights."""
        return Reader(**vars(self))

    @property
    def attention_weights(self) -> int:
        """Number of weights in the four projections."""
        return sum(weight.numel() for weight in self.make().attention.parameters())


def train_reader(
    sizes: ReaderSizes,
    *,
    n: int | tuple[int, ...],
    marks: tuple[int, int],
    steps: int,
    learning_rate: float,
    seed: int,
    rows: int = 8,
    look: Callable[[int, Reader], None] | None = None,
    every: int = 25,
) -> Reader:
    """Train a reader on fresh rows with Adam by `loss_of`, which is one minus R2 where marks are never none.

    Args:
        sizes: of the reader.
        n: tokens in a row; several numbers, each for an equal part of the training, one after the other.
        marks: least and most marked tokens; each row draws its number.
        steps: number of updates.
        learning_rate: the largest; it falls to zero along half a cosine.
        seed: of weights and rows.
        rows: in a batch.
        look: called with the number of steps so far and the reader, before the first step and every so many.
        every: how many.
    """
    lengths = (n,) if isinstance(n, int) else n
    with seeded(seed), cpu_threads(1):
        reader = sizes.make()
        updates = torch.optim.Adam(reader.parameters(), lr=learning_rate, betas=(0.9, 0.98))
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(updates, steps)
        rows_of = make_generator(seed, "training")
        for step in range(steps):
            if look is not None and step % every == 0:
                look(step, reader)
            data = marked(
                rows_of, rows, lengths[step * len(lengths) // steps], marks, width=sizes.d_value
            )
            updates.zero_grad(set_to_none=True)
            loss_of(reader, data).backward()
            updates.step()
            falling.step()
        if look is not None:
            look(steps, reader)
    return reader.eval()


@dataclass(frozen=True)
class Arm:
    """A reader and what it is trained on: see `train_reader`.

    Attributes:
        sizes: of the reader.
        n: tokens in a row, or several numbers.
        marks: least and most marked tokens.
    """

    sizes: ReaderSizes
    n: int | tuple[int, ...] = 32
    marks: tuple[int, int] = (1, 16)


STEPS = 600
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
"""The grid of learning rates, the same for all arms."""
SINGLE = ReaderSizes()
OWN, SHARED = ReaderSizes(n_heads=4), ReaderSizes(n_heads=4, n_kv_heads=1, d_head=8)
GROWING = (128, 512)
"""Rows of 128 tokens in the first half of a training and of 512 in the second."""
ARMS = {
    "32": Arm(SINGLE, 32),
    "128": Arm(SINGLE, 128),
    "512": Arm(SINGLE, 512),
    "own": Arm(OWN, GROWING, (10, 10)),
    "shared": Arm(SHARED, GROWING, (10, 10)),
    "plain": Arm(SINGLE, 8, (0, 2)),
    "start": Arm(ReaderSizes(start=True), 8, (0, 2)),
    "two heads": Arm(ReaderSizes(n_heads=2)),
    "differential": Arm(ReaderSizes(differential=True)),
}
"""What is trained."""


def trained(name: str, seed: int, **how: Any) -> Reader:
    """A reader of an arm, trained at the learning rate that suits the arm best."""
    arm = ARMS[name]
    return train_reader(
        arm.sizes,
        n=arm.n,
        marks=arm.marks,
        steps=STEPS,
        learning_rate=tuned_rate(name),
        seed=seed,
        **how,
    )


def tuned_rate(name: str) -> float:
    """The learning rate with the smallest mean loss over two tuning seeds, out of `RATES`."""
    found = tried_rates(name)
    return min(RATES, key=lambda rate: math.fsum(found[rate]))


def tried_rates(name: str) -> dict[float, list[float]]:
    """The loss of an arm on fresh rows, for each learning rate and tuning seed.

    They are kept in the library's table of tuned rates, and used again while nothing that they depend on has
    changed.
    """
    arm, seeds = ARMS[name], tuning_seeds(2)
    how: dict[str, Any] = {"n": arm.n, "marks": arm.marks, "steps": STEPS}

    def lost(rate: float, seed: int) -> float:
        return fresh_loss(train_reader(arm.sizes, learning_rate=rate, seed=seed, **how), arm, seed)

    return search_losses(
        f"allocation-{name.replace(' ', '-')}",
        {"sizes": arm.sizes, **how},
        [train_reader, fresh_loss, DifferentialAttention],
        lost,
        rates=RATES,
        seeds=seeds,
    )


@torch.no_grad()
def fresh_loss(reader: Reader, arm: Arm, seed: int, rows: int = 512) -> float:
    """The loss that an arm is trained with, on rows that it was not trained on, of its last length."""
    n = arm.n if isinstance(arm.n, int) else arm.n[-1]
    data = marked(make_generator(seed, "held out"), rows, n, arm.marks, width=arm.sizes.d_value)
    return float(loss_of(reader, data))


def loss_of(reader: Reader, data: Marked) -> Float[Tensor, ""]:
    """Mean square of the errors, each row's in units of its answer's variance: 1 / m for m marked values."""
    errors = (reader(data) - data.answers).square().mean(1, keepdim=True)
    return (data.counts.clamp(min=1) * errors).mean()


Remedy = Callable[[Reader], AbstractContextManager[None]]
"""What is changed in a trained reader while it reads."""


@torch.no_grad()
def r_squared(
    reader: Reader,
    *,
    n: int,
    m: int,
    seed: int,
    rows: int = 256,
    only_marked: bool = False,
    remedy: Remedy | None = None,
    last: int | None = None,
) -> float:
    """Share of the answers' variance that a reader explains, on fresh rows.

    Args:
        reader: a trained one.
        n, m: tokens and marked tokens of each row.
        seed: of the rows.
        rows: how many.
        only_marked: hide all other tokens, so that nothing else can be attended to.
        remedy: see `Remedy`.
        last: hide all but so many tokens at the end (a window).
    """
    data = marked(make_generator(seed, "evaluation"), rows, n, m, width=reader.enter.in_features)
    seen = None
    if only_marked:
        seen = data.marks
    elif last is not None:
        seen = (torch.arange(n) >= n - last).expand(rows, n)
    with nullcontext() if remedy is None else remedy(reader):
        said = reader(data, seen=seen)
    errors = (said - data.answers).square().mean()
    return 1 - float(errors * m)


@torch.no_grad()
def marked_weight(reader: Reader, *, n: int, m: int, seed: int, rows: int = 256) -> float:
    """Weight on all marked tokens together, averaged over heads and rows."""
    data = marked(make_generator(seed, "evaluation"), rows, n, m, width=reader.enter.in_features)
    with capture(reader, "attention.pattern") as seen:
        reader(data)
    pattern = seen["attention.pattern"][:, :, 0]
    return float((pattern * data.marks[:, None]).sum(-1).mean())


def learned_margin(reader: Reader, *, n: int, m: int, seed: int) -> float:
    """The margin that would give the marked tokens the weight that they get: the softmax read backwards."""
    return needed_margin(marked_weight(reader, n=n, m=m, seed=seed), n, m)


def predicted_r_squared(margin: float, n: int, m: int) -> float:
    r"""R2 of a layer that hands on marked and other values by their weights: $1 - (1 - a)^2\, n / (n - m)$.

    The answer is short of the marked values' mean by a share 1 - a, for which it gets the others' mean.

    >>> round(predicted_r_squared(math.log(63), 64, 1), 3)
    0.746
    """
    return 1 - (1 - total_weight(margin, n, m)) ** 2 * n / (n - m)


# Remedies that need no new training ---------------------------------------------------------------


def sharper(factor: float) -> Remedy:
    """All scores times a factor: a lower temperature (Chiang and Cholak 2022 take the logarithm of n)."""
    return lambda reader: intervene(reader, {"attention.queries": lambda queries: factor * queries})


def keep_largest(count: int) -> Remedy:
    """Only the largest `count` scores of each query take part: sparse attention by content."""

    def keep(scores: Tensor) -> Tensor:
        least = scores.topk(count, dim=-1).values[..., -1:]
        return scores.masked_fill(scores < least, -math.inf)

    return lambda reader: intervene(reader, {"attention.scores": keep})


# What is measured ---------------------------------------------------------------------------------

SIZES = tuple((n, m) for n in (32, 64, 128, 256, 512) for m in (1, 2, 4, 8, 16))


@measurement(
    seeds=1,
    coords={"of_margin": (4, 7, 10), "asked": ("1 of 32", "1 of 512", "10 of 512")},
    tolerance={"error": 1e-12},  # rounding, which differs between kinds of machines
)
def budget(seed: int) -> dict[str, Any]:
    """Weights of needed tokens by their margin: the softmax itself against the formula, over 25 sizes."""
    del seed  # nothing is drawn
    margins = [needed_margin(0.99, n, m) for n, m in SIZES]

    def totals(less: float) -> list[float]:
        return [
            float(margin_weights(margin - less, n, m)[:m].sum()) - 0.99
            for margin, (n, m) in zip(margins, SIZES, strict=True)
        ]

    return {
        "each": ("of_five", margin_weights(10.0, 64, 5)[:5]),
        "alone": float(margin_weights(10.0, 64)[0]),
        "error": ("size", totals(0.0)),
        "control": ("size", totals(1.0)),
        "one_of_8": total_weight(2.0, 8),
        "one_of_64": total_weight(2.0, 64),
        "ten_of_64": total_weight(2.0, 64, 10),
        "margin": (
            "asked",
            [needed_margin(0.99, 32), needed_margin(0.99, 512), needed_margin(0.99, 512, 10)],
        ),
        "reach": ("of_margin", [longest(0.5, margin) for margin in (4.0, 7.0, 10.0)]),
    }


LENGTHS = (32, 128, 512, 2048, 8192)
NEEDED = (1, 4, 10)
TRAINED_AT = (32, 128, 512)
EVERY = STEPS // 12
REMEDIES = (
    "as it is",
    "window of the last 64",
    "16 largest scores",
    "scores times ln n / ln 32",
    "trained at 512",
)


@measurement(
    seeds=12,
    coords={
        "needed": NEEDED,
        "tokens": LENGTHS,
        "trained_at": TRAINED_AT,
        "step": tuple(range(0, STEPS + 1, EVERY)),
        "split": (1, 10),
        "remedy": REMEDIES,
    },
    tolerance={"learning": 0.6, "margin": 1.0, "remedied": 0.2, "read": 0.05, "predicted": 0.05},
)
def reading(seed: int) -> dict[str, Any]:
    """One head that must return the mean of marked values: what it reads by length, marks and remedy."""
    readers, learning = {}, []
    for n in TRAINED_AT:
        curve: list[float] = []

        def look(step: int, reader: Reader, n: int = n, curve: list[float] = curve) -> None:
            curve.append(r_squared(reader, n=n, m=10, seed=seed, rows=64))

        readers[n] = trained(str(n), seed, look=look, every=EVERY)
        learning.append(curve)
    short, long = readers[32], readers[512]
    margin = learned_margin(short, n=32, m=1, seed=seed)
    far: dict[str, Any] = {"n": 2048, "m": 1, "seed": seed, "rows": 64}
    return {
        "learning": (("trained_at", "step"), learning),
        "margin": (
            "trained_at",
            [learned_margin(readers[n], n=n, m=1, seed=seed) for n in TRAINED_AT],
        ),
        "own_length": (
            "trained_at",
            [r_squared(readers[n], n=n, m=10, seed=seed) for n in TRAINED_AT],
        ),
        "alone": (
            "split",
            [r_squared(short, n=32, m=m, seed=seed, only_marked=True) for m in (1, 10)],
        ),
        "read": (
            ("needed", "tokens"),
            [
                [
                    r_squared(short, n=n, m=m, seed=seed, rows=64 if n > 1000 else 256)
                    for n in LENGTHS
                ]
                for m in NEEDED
            ],
        ),
        "predicted": (
            ("needed", "tokens"),
            [[predicted_r_squared(margin, n, m) for n in LENGTHS] for m in NEEDED],
        ),
        "remedied": (
            "remedy",
            [
                r_squared(short, **far),
                r_squared(short, last=64, **far),
                r_squared(short, remedy=keep_largest(16), **far),
                r_squared(short, remedy=sharper(math.log(2048) / math.log(32)), **far),
                r_squared(long, **far),
            ],
        ),
    }


KINDS = ("own", "shared")
SHARING_RATES = (8e-3, 1.6e-2, 3.2e-2)
"""Learning rates at which both kinds read their own length: the best for either is among them."""
FRESH = 1000
"""Added to the seeds of a comparison that was designed anew after a look at other ones."""


@measurement(
    seeds=12,
    coords={"kind": KINDS, "rate": SHARING_RATES, "tokens": (512, 4096)},
    tolerance={"read": 0.1},
)
def sharing(seed: int) -> dict[str, Any]:
    """Four heads with keys and values of their own, or with one set for all: ten marked values read."""
    seed += FRESH

    def read(kind: str, rate: float) -> list[float]:
        arm = ARMS[kind]
        how: dict[str, Any] = {"n": arm.n, "marks": arm.marks, "steps": STEPS}
        reader = train_reader(arm.sizes, learning_rate=rate, seed=seed, **how)
        return [r_squared(reader, n=n, m=10, seed=seed, rows=128) for n in (512, 4096)]

    return {
        "read": (
            ("kind", "rate", "tokens"),
            [[read(kind, rate) for rate in SHARING_RATES] for kind in KINDS],
        )
    }


COUNTS = (0, 1, 2)


@measurement(
    seeds=12,
    coords={"reader": ("plain", "start"), "marked": COUNTS, "token": ("start", "other")},
    tolerance={"error": 0.02, "start_weight": 0.1, "size": 0.3},
)
def nothing(seed: int) -> dict[str, Any]:
    """Rows of 8 tokens of which none, one or two are asked for, with and without a start token to look at."""
    readers = [trained(name, seed) for name in ("plain", "start")]
    return {
        "error": (
            ("reader", "marked"),
            [[reading_error(reader, n=8, m=m, seed=seed) for m in COUNTS] for reader in readers],
        ),
        "start_weight": (
            "marked",
            [start_weight(readers[1], n=8, m=m, seed=seed) for m in COUNTS],
        ),
        "size": ("token", value_sizes(readers[1], n=8, seed=seed)),
    }


@torch.no_grad()
def reading_error(reader: Reader, *, n: int, m: int, seed: int, rows: int = 1024) -> float:
    """Mean square of the difference between what a reader says and the answer, over rows and entries."""
    data = marked(make_generator(seed, "evaluation"), rows, n, m, width=reader.enter.in_features)
    return float((reader(data) - data.answers).square().mean())


@torch.no_grad()
def start_weight(reader: Reader, *, n: int, m: int, seed: int, rows: int = 1024) -> float:
    """Mean weight of a reader's start token."""
    data = marked(make_generator(seed, "evaluation"), rows, n, m, width=reader.enter.in_features)
    with capture(reader, "attention.pattern") as seen:
        reader(data)
    return float(seen["attention.pattern"][..., 0].mean())


@torch.no_grad()
def value_sizes(reader: Reader, *, n: int, seed: int) -> list[float]:
    """Root of the mean square of what the start token, and any other, would add to the answer alone."""
    data = marked(make_generator(seed, "evaluation"), 256, n, 0, width=reader.enter.in_features)
    with capture(reader, "attention.values") as seen:
        reader(data)
    attention: Any = reader.attention
    said = reader.read(attention.output(seen["attention.values"][:, 0]))
    return [float(part.square().mean().sqrt()) for part in (said[:, 0], said[:, 1:])]


DIFFERENCE_ARMS = ("32", "two heads", "differential")


@measurement(
    seeds=12,
    coords={"arm": DIFFERENCE_ARMS, "tokens": LENGTHS},
    tolerance={"read": 0.1, "others": 0.05, "balance": 0.2},
)
def difference(seed: int) -> dict[str, Any]:
    """One marked value, read by one head, by two, and by the difference of two softmaxes, by length."""
    readers = [trained(name, seed) for name in DIFFERENCE_ARMS]
    return {
        "read": (
            ("arm", "tokens"),
            [
                [
                    r_squared(reader, n=n, m=1, seed=seed, rows=64 if n > 1000 else 256)
                    for n in LENGTHS
                ]
                for reader in readers
            ],
        ),
        "balance": float(readers[-1].attention.balance),  # type: ignore[arg-type]
        "others": (
            "tokens",
            [1 - marked_weight(readers[0], n=n, m=1, seed=seed, rows=64) for n in LENGTHS],
        ),
    }


MIDDLE, DEPTH, SLOPE = 64, 4, 0.25
FORCES = ("causal mask", "distance", "both")


@measurement(seeds=1, coords={"force": FORCES, "place": tuple(range(1, MIDDLE + 1))})
def middle(seed: int) -> dict[str, Any]:
    """What each of 64 tokens contributes to the last one after four layers that know positions alone."""
    del seed  # nothing is drawn
    return {"share": (("force", "place"), [contributions(force) for force in FORCES])}


def contributions(force: str) -> Float[ndarray, "place"]:
    """Attention rollout to the last of `MIDDLE` tokens, over `DEPTH` layers of residual stream and attention.

    In each layer half of the stream stays and half is replaced by what attention brings (Abnar and Zuidema
    2020). Attention is causal and even, or falls with distance by `SLOPE` as in ALiBi, or half of either.
    """
    place = torch.arange(MIDDLE, dtype=torch.float64)
    ahead = torch.ones(MIDDLE, MIDDLE, dtype=torch.bool).triu(1)
    distance = (place[:, None] - place).abs()
    even, near = (
        scores.masked_fill(ahead, -math.inf).softmax(-1)
        for scores in (torch.zeros_like(distance), -SLOPE * distance)
    )
    attention = {"causal mask": even, "distance": near, "both": (even + near) / 2}[force]
    layer = (attention + torch.eye(MIDDLE, dtype=torch.float64)) / 2
    rows: ndarray = torch.linalg.matrix_power(layer, DEPTH)[-1].numpy()
    return rows
