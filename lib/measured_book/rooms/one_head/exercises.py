"""Exercises of the chapter on heads, one at a time and together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from measured_transformer.analysis.handmade import Layout

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/attention/heads"


@exercise(
    _CHAPTER,
    Drawing(
        "A layer answers four positions, each with one of {tokens} tokens. Two twins both serve three of "
        "the positions; a third head serves the fourth. Every head that serves a position adds {lead} to "
        "the right answer's logit; all other logits are 0. Three rises of the mean loss: without one twin, "
        "without both, without the third head.",
        lambda chance: {"tokens": chance.choice((3, 8, 12)), "lead": chance.choice((2, 3, 4, 6))},
    ),
)
def spare(answer: Answer, tokens: int = 5, lead: int = 5) -> None:
    """Three rises of the mean loss: without one twin, without both, without the head with a job of its own."""
    one, both, own = answer.numbers("without one twin", "without both", "without the third head")
    wrong, logit = tokens - 1, float(lead)
    single = math.log1p(wrong * math.exp(-logit))
    double = math.log1p(wrong * math.exp(-2 * logit))
    none = math.log1p(wrong)
    slips = {
        single - double: "that is the rise at the places that the twins serve; what of the mean?",
    }
    way = f"at three places of four the right answer's lead falls from {2 * lead} to {lead}"
    demand_number(
        one, 0.75 * (single - double), name="the first", way=way, within=0.005, slips=slips
    )
    slips = {
        2 * 0.75 * (single - double): "twice the rise of one: but what is left when both are gone?",
        none - double: "that is the rise at the places that the twins serve; what of the mean?",
    }
    way = "what does a model answer that knows nothing?"
    demand_number(
        both, 0.75 * (none - double), name="the second", way=way, within=0.005, slips=slips
    )
    slips = {0.25 * (none - double): "the third head has no twin: what is its lead?"}
    way = "one place of four loses the only head that serves it"
    demand_number(own, 0.25 * (none - single), name="the third", way=way, within=0.005, slips=slips)


def _needs_one_of(
    groups: list[set[int]], weights: list[float]
) -> Callable[[frozenset[int]], float]:
    """A loss that rises by a group's weight when all of its members are gone, and a little by each that is."""

    def loss(removed: frozenset[int]) -> float:
        gone = sum(w for group, w in zip(groups, weights, strict=True) if group <= removed)
        return float(gone + sum(0.001 * (head + 1) for head in removed))

    return loss


def _needs_each_other(removed: frozenset[int]) -> float:
    """A loss of four heads: the first two are worth something together only, each of the others on its own.

    To remove the cheapest each time is another order here than to keep the best each time, read backwards.
    """
    pair = 1.0 if removed & {0, 1} else 0.0
    return pair + 0.6 * len(removed & {2, 3}) + sum(0.001 * (head + 1) for head in removed)


@exercise(_CHAPTER)
def reranked(answer: Answer) -> None:
    """Write `reranked(loss, n)`: the order in which heads go when each time the cheapest one left is removed.

    `loss(frozenset)` is the loss without these heads.
    """
    cases = (
        (4, _needs_one_of([{0, 1}, {2}], [1.6, 0.2])),
        (3, _needs_one_of([{2}], [1.0])),
        (5, _needs_one_of([{0, 1, 2}, {3}, {4}], [2.0, 0.5, 0.1])),
        (4, _needs_each_other),
    )
    for n, loss in cases:
        found = [int(head) for head in answer(loss, n)]
        demand(
            sorted(found) == list(range(n)),
            f"expected each of {n} heads once, got {found}",
        )
        alone = sorted(range(n), key=lambda head: loss(frozenset({head})))
        right: list[int] = []
        while len(right) < n:
            left = [head for head in range(n) if head not in right]
            right.append(min(left, key=lambda head: loss(frozenset({*right, head}))))
        demand(
            found == right or found != alone,
            f"{found} is the order of the heads removed one at a time from the whole model; "
            "what does a head cost that is removed from what is left?",
        )
        demand(
            found != right[::-1],
            f"{found} begins with the heads that cost most; the cheapest go first",
        )
        demand(found == right, f"{found} does not always remove the cheapest head that is left")


@exercise(_CHAPTER)
def without_heads(answer: Answer) -> None:
    """Write `without_heads(mixed, gone)`: each head of `gone` gathers its mean over the sequences instead."""
    for size, heads, n, gone in ((5, 4, 3, [1, 2]), (3, 2, 6, [0]), (4, 3, 2, [])):
        mixed = normal(size, heads, n, 2, seed=size)
        found = tensor(answer(mixed, list(gone)), tuple(mixed.shape), name="what it returns")
        stay = [head for head in range(heads) if head not in gone]
        demand(close(found[:, stay], mixed[:, stay]), "a head that is not in `gone` has changed")
        taken, own = found[:, gone], mixed[:, gone]
        if not gone:
            continue
        demand(
            not close(taken, torch.zeros_like(own)),
            "these heads say nothing at all: that is zero ablation; asked for is the mean",
        )
        demand(
            not close(taken, own.mean((0, 2), keepdim=True).expand_as(own)),
            "the mean runs over the positions too: position by position, please",
        )
        demand(
            not close(taken, own.mean((0, 1), keepdim=True).expand_as(own)) or len(gone) == 1,
            "the mean runs over the heads too: each head has its own",
        )
        demand(
            close(taken, own.mean(0, keepdim=True).expand_as(own)),
            "a head that is gone must be, in every sequence, its mean over the sequences",
        )


@exercise(_CHAPTER)
def survives(answer: Answer) -> None:
    """Write `survives(n, removed, copies)`: the chance that not all copies of a head are removed."""
    for n, removed, copies in ((4, 2, 2), (32, 8, 1), (32, 8, 2), (16, 4, 1), (6, 2, 3)):
        found = number(answer(n, removed, copies))
        sets = list(itertools.combinations(range(n), removed)) if n < 10 else []
        right = (
            1 - math.comb(n - copies, removed - copies) / math.comb(n, removed)
            if (copies <= removed)
            else 1.0
        )
        if sets:
            counted = sum(not set(range(copies)) <= set(gone) for gone in sets) / len(sets)
            assert close(counted, right)
        demand(
            copies == 1 or not close(found, 1 - removed / n),
            f"with {copies} copies the answer is {found:.4g}, as if there were one",
        )
        demand(
            copies == 1 or not close(found, 1 - (removed / n) ** copies),
            "the removed heads are drawn without putting back: when one copy is gone, fewer removals are left",
        )
        demand(not close(found, 1 - right), f"{found:.4g} is the chance that all copies are gone")
        demand(close(found, right), f"expected another chance for {copies} copies, got {found:.4g}")


@exercise(_CHAPTER)
def place_share(answer: Answer) -> None:
    """Write `place_share(patterns)`: the share of a head's deviations from even that the place explains."""
    name = "what `place_share` returns"
    same = normal(1, 5, 5, seed=1).softmax(-1).repeat(4, 1, 1)
    found = tensor(answer(same), (), name=name)
    demand(close(found, 1.0), f"a pattern that never changes is explained in full, not {found:.3g}")
    one = torch.eye(2, dtype=torch.float64)
    found = tensor(answer(torch.stack([one, one.flip(0)])), (), name=name)
    demand(
        close(found, 0.0),
        f"the mean of these two patterns is even, so the place explains nothing; got {found:.3g}",
    )
    for n, size in ((4, 6), (7, 3)):
        patterns = (2 * normal(size, n, n, seed=n)).softmax(-1)
        found = tensor(answer(patterns), (), name=name)
        demand(-1e-9 < found < 1 + 1e-9, f"a share lies between 0 and 1, got {found:.3g}")
        even = (patterns.mean(0) - 1 / n).square().sum()
        total = sum((each - 1 / n).square().sum() for each in patterns) / size
        about_mean = patterns.mean(0).square().sum() / patterns.square().sum((1, 2)).mean()
        demand(
            not close(found, about_mean),
            "this measures weights from zero; attention that is even deviates from nothing",
        )
        demand(
            close(found, even / total),
            "above: squares of the mean deviation; below: the mean over sequences of the squares",
        )


@exercise(_CHAPTER)
def mirror_head(answer: Answer) -> None:
    """Write `mirror_head(layout)`: query and key matrices of a head that looks at the mirrored position."""
    for vocab, length in ((3, 4), (2, 7)):
        layout = Layout(vocab, length)
        given = answer(layout)
        demand(
            isinstance(given, tuple | list) and len(given) == 2,
            "expected two matrices, for queries and for keys",
        )
        query, key = (
            tensor(one, name=f"the matrix for {what}")
            for one, what in zip(given, ("queries", "keys"), strict=True)
        )
        demand(
            query.ndim == 2 and query.shape == key.shape and len(query) == layout.width,
            f"expected two matrices of shape (layout.width, some) = ({layout.width}, some), got "
            f"{tuple(query.shape)} and {tuple(key.shape)}",
        )
        stream = torch.zeros(length, layout.width, dtype=torch.float64)
        stream[:, layout.place] = torch.eye(length, dtype=torch.float64)
        stream[torch.arange(length), torch.arange(length) % vocab] = 1
        scores = (stream @ query) @ (stream @ key).T
        pattern = scores.softmax(-1)
        mirrored = pattern.flip(1).diagonal()
        demand(pattern.diagonal().mean() < 0.9, "the head looks at its own position")
        ahead = max(pattern.diagonal(by).mean() for by in (1, -1))
        demand(ahead < 0.9, "the head looks at a neighbour, at the same distance from everywhere")
        best = bool((scores.argmax(1) == torch.arange(length).flip(0)).all())
        demand(
            not best or bool((mirrored > 0.99).all()),
            f"the mirrored position has the largest score, but only {float(mirrored.min()):.2f} of the "
            "weight: make the scores larger",
        )
        demand(
            bool((mirrored > 0.99).all()),
            f"from position 0 of {length} the head gives the last one {float(mirrored[0]):.2f} of its weight",
        )
