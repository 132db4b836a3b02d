r"""Attention as a budget: what a lead of scores buys, and a layer that has to read marked values among many.

A softmax hands out weights that sum to one. Where m of n scores lead all others by $g$, the m leaders get
$m e^g / (m e^g + n - m)$ together: their *mass*. A `Reader` learns such a lead from data, and what it has
learnt can then be asked at other lengths and with other remedies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn

from measured_transformer.evidence.profile import Profile
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.training.device import cpu_threads
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.training.tuning import search_losses

# Arithmetic of the budget -----------------------------------------------------------------------


def mass(lead: float, n: int, m: int = 1) -> float:
    """What m of n tokens get together when they lead all others by this much.

    >>> round(mass(2.0, 8), 3)
    0.514

    Raises:
        ValueError: unless 1 <= m < n.
    """
    _check_counts(n, m)
    return 1 / (1 + (n - m) / m * math.exp(-lead))


def needed_lead(share: float, n: int, m: int = 1) -> float:
    """By how much m of n tokens must lead for their mass to be this share: ln(a (n - m) / (m (1 - a))).

    >>> round(mass(needed_lead(0.99, 64, 5), 64, 5), 12)
    0.99

    Raises:
        ValueError: unless 1 <= m < n and the share lies strictly between 0 and 1.
    """
    _check_counts(n, m)
    _check_mass(share)
    return math.log(share / (1 - share)) + math.log((n - m) / m)


def longest(share: float, lead: float, m: int = 1) -> float:
    """The number of tokens up to which a lead keeps the mass of m of them at this share.

    >>> round(longest(0.5, math.log(30), 2))
    62

    Raises:
        ValueError: unless m is at least 1 and the share lies strictly between 0 and 1.
    """
    _check_mass(share)
    if m < 1:
        raise ValueError(f"expected at least one token, got m={m}")
    return m * (1 + math.exp(lead) * (1 - share) / share)


def led_weights(lead: float, n: int, m: int = 1) -> Float[ndarray, "token"]:
    """Softmax over n scores of which the first m are `lead` and all others zero.

    Raises:
        ValueError: unless at least one token is needed and one is not.
    """
    _check_counts(n, m)
    scores = torch.zeros(n, dtype=torch.float64)
    scores[:m] = lead
    weights: ndarray = scores.softmax(0).numpy()
    return weights


def _check_counts(n: int, m: int) -> None:
    if not 1 <= m < n:
        raise ValueError(f"expected at least one needed token and fewer than all, got m={m}, n={n}")


def _check_mass(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"a mass to be reached lies strictly between 0 and 1, got {share}")


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
        """The mean of the marked values."""
        return (self.values * self.marks[..., None]).sum(1) / self.counts


def marked(
    generator: torch.Generator, rows: int, n: int, m: int | tuple[int, int], *, width: int = 8
) -> Marked:
    """Draw rows of n tokens, m of them marked at random places.

    Args:
        generator: where the numbers come from.
        rows: number of rows.
        n: tokens in a row.
        m: how many are marked; least and most, where each row shall have its own number.
        width: of a value.

    Raises:
        ValueError: when fewer than one or more than all tokens would be marked.
    """
    least, most = (m, m) if isinstance(m, int) else m
    if not 1 <= least <= most <= n:
        raise ValueError(f"expected 1 <= least <= most <= n={n} marked tokens, got {least}, {most}")
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
    evenly.
    """

    def __init__(
        self,
        *,
        d_value: int = 8,
        d_model: int = 20,
        n_heads: int = 1,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
    ) -> None:
        """Draw fresh weights. The sizes are those of `parts.attention.MultiHeadAttention`, and its errors."""
        super().__init__()
        self.enter = Linear(d_value, d_model, bias=False)
        self.mark = nn.Parameter(torch.randn(d_model))
        self.question = nn.Parameter(0.1 * torch.randn(d_model))
        self.attention = MultiHeadAttention(
            d_model, n_heads, n_kv_heads=n_kv_heads, d_head=d_head, bias=False
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
    """Train a reader on fresh rows with Adam; each row's error counts in units of its answer's variance.

    The mean of m values has a variance of 1/m, so that errors are multiplied by m: the loss is one minus R2.

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
            errors = (reader(data) - data.answers).square().mean(1, keepdim=True)
            updates.zero_grad(set_to_none=True)
            (data.counts * errors).mean().backward()
            updates.step()
            falling.step()
        if look is not None:
            look(steps, reader)
    return reader.eval()


def tuned_rate(
    name: str,
    sizes: ReaderSizes,
    rates: Sequence[float],
    *,
    profile: Profile,
    n: int | tuple[int, ...],
    m: int,
    marks: tuple[int, int],
    steps: int,
    rows: int = 8,
) -> float:
    """The rate with the largest mean R2 over two tuning seeds, reading m marked among n (the last n).

    What was chosen is kept as a record of this name, and used again while nothing that it depends on has
    changed.
    """
    seeds = profile.seeds(quick=2, full=2, stream="tuning")
    asked = {
        "sizes": sizes,
        "n": n,
        "m": m,
        "marks": marks,
        "rates": list(rates),
        "seeds": seeds,
        "steps": steps,
        "rows": rows,
    }
    longest_row = n if isinstance(n, int) else n[-1]

    def lost(rate: float, seed: int) -> float:
        reader = train_reader(
            sizes, n=n, marks=marks, steps=steps, learning_rate=rate, seed=seed, rows=rows
        )
        return -r_squared(reader, n=longest_row, m=m, seed=seed)

    found = search_losses(name, asked, [train_reader, r_squared], lost, rates=rates, seeds=seeds)
    return min(rates, key=lambda rate: math.fsum(found[rate]))


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
    if remedy is None:
        said = reader(data, seen=seen)
    else:
        with remedy(reader):
            said = reader(data, seen=seen)
    errors = (said - data.answers).square().mean()
    return 1 - float(errors * m)


@torch.no_grad()
def marked_mass(reader: Reader, *, n: int, m: int, seed: int, rows: int = 256) -> float:
    """Weight on all marked tokens together, averaged over heads and rows."""
    data = marked(make_generator(seed, "evaluation"), rows, n, m, width=reader.enter.in_features)
    with capture(reader, "attention.pattern") as seen:
        reader(data)
    pattern = seen["attention.pattern"][:, :, 0]
    return float((pattern * data.marks[:, None]).sum(-1).mean())


def learnt_lead(reader: Reader, *, n: int, m: int, seed: int) -> float:
    """The lead that would give the marked tokens the mass that they get: the softmax read backwards."""
    return needed_lead(marked_mass(reader, n=n, m=m, seed=seed), n, m)


def predicted_r_squared(lead: float, n: int, m: int) -> float:
    r"""R2 of a layer that hands on marked and other values by their weights: $1 - (1 - a)^2\, n / (n - m)$.

    The answer is short of the marked values' mean by a share 1 - a, for which it gets the others' mean.

    >>> round(predicted_r_squared(math.log(63), 64, 1), 3)
    0.746
    """
    return 1 - (1 - mass(lead, n, m)) ** 2 * n / (n - m)


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
