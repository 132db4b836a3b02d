"""What heads look at: their patterns in a handful of numbers, and the classes of a taxonomy.

A head's pattern is a matrix of weights for every sequence. `observe` turns many of them into a handful of
numbers a head: how much attention falls on the next token, on the own one, on a place that the task asks for;
how even it is; how much of it the place alone explains, whatever the tokens. `memberships` turns the numbers
into the classes of a taxonomy, by thresholds that stand in one place.

Shapes: patterns are (example, head, query, key), each row of weights summing to one over the keys that the
query may see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

# What heads look at ---------------------------------------------------------------------------------

Patterns = Float[Tensor, "example head query key"]
POSITIONAL, CONTENT, SELF, GLOBAL = "positional", "content", "self", "global"
CLASSES = (POSITIONAL, CONTENT, SELF, GLOBAL)
"""The four classes of the case study's taxonomy, see `memberships`."""


@dataclass(frozen=True)
class HeadTable:
    """One number a head for each statistic.

    Attributes:
        masses: by name, the mean weight on the position of that name: `offset -1` (the one before), `offset 1`
            and so on, `self`, `first`, and those that were asked for.
        entropy: mean entropy of a row over the largest it could have, from 0 (one key) to 1 (even).
        effective: number of keys attended to, the exponential of the mean entropy.
        distance: mean number of positions between a query and what it attends to.
        place_share: share of the pattern's variation about even attention that its mean over the sequences
            has: 1 for a head that ignores the tokens, 0 for one whose mean is even.
    """

    masses: Mapping[str, Float[ndarray, "head"]]
    entropy: Float[ndarray, "head"]
    effective: Float[ndarray, "head"]
    distance: Float[ndarray, "head"]
    place_share: Float[ndarray, "head"]

    @property
    def offset_mass(self) -> Float[ndarray, "head"]:
        """The mass on that fixed offset, other than the own position, that has most of it."""
        return np.max([mass for n, mass in self.masses.items() if n.startswith("offset ")], axis=0)


@dataclass(frozen=True)
class Observed:
    """Statistics of every sequence, from which `table` takes means.

    Attributes:
        masses: by name (example head), see `HeadTable`.
        entropy, nats, distance: (example head); entropy relative to its largest value, and as it is.
        deviations: patterns less even attention, zero where a query may not look.
        groups: for each sequence the number of its group; place means place and group.
    """

    masses: Mapping[str, Float[Tensor, "example head"]]
    entropy: Float[Tensor, "example head"]
    nats: Float[Tensor, "example head"]
    distance: Float[Tensor, "example head"]
    deviations: Patterns
    groups: Int[Tensor, "example"]

    def table(self, examples: Int[Tensor, "example"] | None = None) -> HeadTable:
        """The means over all sequences, or over those of these numbers (with repetition: a bootstrap)."""
        which = torch.arange(len(self.entropy)) if examples is None else examples

        def mean(values: Tensor) -> Float[ndarray, "head"]:
            return values[which].mean(0).double().numpy()

        return HeadTable(
            masses={name: mean(mass) for name, mass in self.masses.items()},
            entropy=mean(self.entropy),
            effective=np.exp(mean(self.nats)),
            distance=mean(self.distance),
            place_share=_place_share(self.deviations[which], self.groups[which]),
        )


def observe(
    patterns: Patterns,
    *,
    allowed: Bool[Tensor, "..."] | None = None,
    queries: Bool[Tensor, "..."] | None = None,
    targets: Mapping[str, Int[Tensor, "..."]] | None = None,
    groups: Int[Tensor, "example"] | None = None,
    offsets: Sequence[int] = (-3, -2, -1, 1, 2, 3),
) -> Observed:
    """Measure heads on many sequences.

    Args:
        patterns: their weights.
        allowed: (query, key) or (example, query, key), True where a query may look; everywhere when None.
        queries: (query) or (example, query), True for the queries that count; all when None.
        targets: further positions by name, (query) or (example, query): the key that is meant, -1 for none.
        groups: for each sequence a number, such as its length, that a head may go by besides the place.
        offsets: distances of which the mass is measured; queries for which there is no such key are left
            out, as are those of other targets.

    Raises:
        ValueError: when patterns have not four axes, or a mask, target or group does not fit them.

    >>> from measured_transformer.analysis.handmade import heads_model
    >>> from measured_transformer.internals.capture import capture
    >>> model = heads_model(["next", "uniform"], vocab=5, length=4)
    >>> with capture(model, "blocks.0.attention.pattern") as seen:
    ...     _ = model(torch.tensor([[3, 1, 4, 2], [0, 0, 1, 2]]))
    >>> table = observe(seen["blocks.0.attention.pattern"]).table()
    >>> table.masses["offset 1"].round(2).tolist(), table.entropy.round(2).tolist()
    ([1.0, 0.25], [0.25, 1.0])
    """
    if patterns.ndim != 4:
        raise ValueError(
            f"patterns must have the shape (example, head, query, key), got {tuple(patterns.shape)}"
        )
    patterns = patterns.detach().cpu()
    n_example, _, n_query, n_key = patterns.shape
    shape = (n_example, n_query, n_key)
    seen = _fitted("allowed", allowed, shape, torch.bool)
    counts = _fitted("queries", queries, shape[:2], torch.bool) & seen.any(-1)
    grouped = torch.zeros(n_example, dtype=torch.int64) if groups is None else groups.cpu()
    if grouped.shape != (n_example,):
        raise ValueError(f"groups must be one number a sequence, got shape {tuple(grouped.shape)}")

    place = torch.arange(n_query)
    named: dict[str, Tensor] = {f"offset {k}": place + k for k in offsets}
    named |= {"self": place, "first": torch.zeros(n_query, dtype=torch.int64)}
    masses = {
        name: _mass(patterns, _fitted(name, where, shape[:2], torch.int64), seen, counts)
        for name, where in {**named, **(targets or {})}.items()
    }
    visible = seen.sum(-1)
    nats = torch.special.entr(patterns.double()).sum(-1)
    several = (counts & (visible > 1))[:, None]
    largest = visible.clamp_min(2).double().log()[:, None]
    between = (torch.arange(n_key) - place[:, None]).abs()
    even = seen / visible.clamp_min(1)[..., None]
    deviations = (patterns - even[:, None]).masked_fill(~counts[:, None, :, None], 0.0)
    return Observed(
        masses=masses,
        entropy=_mean(nats / largest, several),
        nats=_mean(nats, several),
        distance=_mean((patterns * between).sum(-1).double(), counts[:, None]),
        deviations=deviations,
        groups=grouped,
    )


def _mass(patterns: Patterns, where: Tensor, seen: Tensor, counts: Tensor) -> Tensor:
    """Mean weight on one key a query, over the queries that count and may see that key."""
    n_key = patterns.shape[-1]
    there = (where >= 0) & (where < n_key)
    index = where.clamp(0, n_key - 1)[..., None]
    there = there & counts & seen.gather(-1, index)[..., 0]
    spread = index[:, None].expand(-1, patterns.shape[1], -1, -1)
    return _mean(patterns.gather(-1, spread)[..., 0].double(), there[:, None])


def _mean(values: Tensor, where: Tensor) -> Float[Tensor, "example head"]:
    """Mean over the queries that count; 0 where there are none."""
    where = where.expand_as(values)
    return values.masked_fill(~where, 0.0).sum(-1) / where.sum(-1).clamp_min(1)


def _place_share(deviations: Patterns, groups: Tensor) -> Float[ndarray, "head"]:
    total = deviations.square().sum((0, 2, 3)).double()
    explained = torch.zeros_like(total)
    for group in groups.unique():
        own = deviations[groups == group]
        explained += len(own) * own.mean(0).square().sum((1, 2)).double()
    # A head that is even everywhere has nothing to explain: no token moves it either.
    return torch.where(total > 1e-12, explained / total.clamp_min(1e-300), 1.0).numpy()


def _fitted(name: str, given: Tensor | None, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    if given is None:
        return torch.ones(shape, dtype=kind)
    if given.dtype != kind or given.shape not in (shape, shape[1:]):
        wanted = "Boolean" if kind == torch.bool else "whole numbers"
        raise ValueError(
            f"{name} must be {wanted} of shape {shape} or {shape[1:]}, got {given.dtype} of shape "
            f"{tuple(given.shape)}"
        )
    return given.cpu().expand(shape)


# Classes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thresholds:
    """Where the classes of a taxonomy begin.

    Attributes:
        mass: least weight on one fixed offset, or on the own position.
        content: least share of the variation that the place does not explain.
        unevenness: largest shortfall of the entropy from its largest value for a head that looks everywhere.
    """

    mass: float = 0.5
    content: float = 0.5
    unevenness: float = 0.1

    def times(self, factor: float) -> Thresholds:
        """Every threshold multiplied.

        >>> Thresholds().times(0.75).mass
        0.375
        """
        own = dataclasses.asdict(self)
        return Thresholds(**{name: factor * value for name, value in own.items()})


DECLARED = Thresholds()
"""A head belongs to a class when more than half of it does."""
STRICT = Thresholds(mass=0.7, content=0.2, unevenness=0.2)
"""Another reasonable choice: clear masses, but whoever is moved by the tokens a little counts as content."""


def memberships(table: HeadTable, thresholds: Thresholds = DECLARED) -> Bool[ndarray, "head class"]:
    """Which of `CLASSES` each head belongs to: none, one or several.

    - positional: attends to one fixed offset, other than 0;
    - content: its pattern varies with the tokens;
    - self: attends to its own position;
    - global: attends to all positions nearly evenly.
    """
    return np.stack(
        [
            table.offset_mass > thresholds.mass,
            1 - table.place_share > thresholds.content,
            table.masses["self"] > thresholds.mass,
            1 - table.entropy < thresholds.unevenness,
        ],
        axis=-1,
    )


def labels(member: Bool[ndarray, "head class"]) -> list[str]:
    """A name for each head: its class, "none", or its classes joined by a plus.

    >>> labels(np.array([[True, False, False, False], [False, True, False, True]]))
    ['positional', 'content+global']
    """
    return ["+".join(np.array(CLASSES)[row].tolist()) or "none" for row in member]


def stability(
    observed: Observed,
    generator: torch.Generator,
    *,
    draws: int = 20,
    thresholds: Thresholds = DECLARED,
) -> float:
    """Share of heads that keep their label when the sequences are drawn again, with repetition."""
    n = len(observed.entropy)
    first = labels(memberships(observed.table(), thresholds))
    kept = []
    for _ in range(draws):
        again = observed.table(torch.randint(n, (n,), generator=generator))
        kept.append(np.mean(np.array(labels(memberships(again, thresholds))) == first))
    return float(np.mean(kept))


def kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Cohen's kappa: agreement of two labellings beyond that of chance; 1 when they agree throughout.

    Source: Cohen (1960).

    Raises:
        ValueError: when the labellings are empty or differ in length.

    >>> kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    if len(first) != len(second) or not first:
        raise ValueError(
            f"expected two labels for each of one or more heads, got {len(first)} and {len(second)}"
        )
    n = len(first)
    agree = sum(a == b for a, b in zip(first, second, strict=True)) / n
    chance = sum(list(first).count(name) * list(second).count(name) for name in set(first)) / n**2
    return 1.0 if chance == 1 else (agree - chance) / (1 - chance)


def depends_on_tokens(
    patterns: Patterns,
    keys: Int[Tensor, "example key"],
    queries: Int[Tensor, "example query"],
    generator: torch.Generator,
    *,
    shuffles: int = 59,
) -> Float[ndarray, "head"]:
    """p-value, for each head, of its pattern having nothing to do with the tokens.

    At each place the mean weight is taken off, and what is left is averaged over all places that have the same
    two tokens, at query and key. How far these averages lie from zero is compared with what comes out
    when the sequences' tokens have been dealt out anew among the patterns: the value is the share of
    `shuffles` (and the true one) that reach the true one.

    Args:
        patterns: the weights.
        keys, queries: the tokens there.
        generator: deals them out.
        shuffles: how often.
    """
    patterns = patterns.detach().cpu().float()
    vocab = int(max(keys.max(), queries.max())) + 1
    at_key = torch.nn.functional.one_hot(keys.cpu(), vocab).float()
    at_query = torch.nn.functional.one_hot(queries.cpu(), vocab).float()
    centred = patterns - patterns.mean(0)

    def apart(order: Tensor) -> Tensor:
        asking, asked = at_query[order], at_key[order]
        by_key = centred @ asked[:, None]  # (example, head, query, vocab)
        sums = torch.einsum("eqa,ehqb->hab", asking, by_key)
        count = torch.outer(asking.sum((0, 1)), asked.sum((0, 1))).clamp_min(1)
        return (sums.square() / count).sum((1, 2))

    n = len(patterns)
    true = apart(torch.arange(n))
    reached = torch.zeros(patterns.shape[1])
    for _ in range(shuffles):
        reached += apart(torch.randperm(n, generator=generator)) >= true
    return ((1 + reached.double()) / (1 + shuffles)).numpy()
