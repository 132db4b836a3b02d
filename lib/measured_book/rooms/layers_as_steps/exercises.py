"""Exercises of the chapter on refining and rewriting."""

from __future__ import annotations

import random

import torch
from torch import Tensor
from torch.nn import functional as F

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

_CHAPTER = "book/residual/layers-as-steps"
# Seeds and numbers of blocks at which every mistake gives another share.
_OPPOSED = ((2, 5), (5, 6), (8, 6))


def _team(chance: random.Random) -> dict[str, int]:
    first, second, third = chance.sample((2, 3, 4, 5, 6), 3)
    start, carried = 60 * chance.randint(1, 3), chance.randint(8, 13)
    return {"start": start, "first": first, "second": second, "third": third, "carried": carried}


@exercise(
    _CHAPTER,
    Drawing(
        "Three refiners take away 1/{first}, 1/{second} and 1/{third} of what is left, in this order, "
        "beginning at {start}. Four numbers: where the team ends (a) as built, (b) without the second, (c) "
        "with the first working twice; and (d) what is in the last slot when the relay of the chapter, "
        "whose stream is ({carried}, 0, 0, 0) at first, works in the order first, third, second, third.",
        _team,
    ),
)
def teams(
    answer: Answer,
    start: int = 24,
    first: int = 2,
    second: int = 3,
    third: int = 4,
    carried: int = 7,
) -> None:
    """Four numbers: where a team of refiners ends, without one, with one twice, and what a relay brings."""
    whole, without, twice, relay = answer.numbers("(a)", "(b)", "(c)", "(d)")
    one, two, three = (1 - 1 / each for each in (first, second, third))
    end = start * one * two * three
    slips = {
        start
        * (
            1 - 1 / first - 1 / second - 1 / third
        ): "each takes away a share of what is *left*, not of what there was at first",
        start - end: "that is what the three have taken away; asked for is what is left",
        start
        / (
            first * second * third
        ): "that multiplies what each takes away; what each leaves is to be multiplied",
    }
    way = "what share of the distance does each of the three leave?"
    demand_number(whole, end, way=way, name="(a)", within=0.001, slips=slips)
    slips = {end / three: "that is without the third", end / one: "that is without the first"}
    way = "leave one of the three factors out"
    demand_number(without, end / two, way=way, name="(b)", within=0.001, slips=slips)
    slips = {
        end * two: "that runs the second one twice",
        end * three: "that runs the third one twice",
    }
    way = "one of the three factors comes twice"
    demand_number(twice, end * one, way=way, name="(c)", within=0.001, slips=slips)
    slips = {
        0.0: "look again at the fourth step: what stands in slot three by then?",
        2.0 * carried: "when the third member ran for the first time, slot three was empty",
    }
    way = "go through the members in this order and write down all four slots after each"
    demand_number(relay, float(carried), way=way, name="(d)", within=0.001, slips=slips)


@exercise(_CHAPTER)
def reordered(answer: Answer) -> None:
    """Write `reordered(x, branches, order)`: the stream after these branches, in this order."""
    x = normal(3, 4, seed=0)
    mixes = [normal(4, 4, seed=i) for i in (1, 2, 3)]

    def branch(mix: Tensor) -> object:
        return lambda stream: torch.tanh(stream @ mix)

    branches = [branch(mix) for mix in mixes]

    def run(order: list[int], *, residual: bool = True, from_start: bool = False) -> Tensor:
        found = x
        for i in order:
            written = torch.tanh((x if from_start else found) @ mixes[i])
            found = found + written if residual else written
        return found

    for order in ([0, 1, 2], [2, 0, 1], [1, 1], [0, 2], []):
        found = tensor(answer(x.clone(), list(branches), list(order)), (3, 4))
        right = run(order)
        if order:
            text = "what a branch gives is added to the stream, it does not replace it"
            demand(not close(found, run(order, residual=False)), text)
            text = "each branch reads the stream as it is by then, not as it was at the start"
            demand(len(order) < 2 or not close(found, run(order, from_start=True)), text)
            text = "the branches ran in the order of the list, whatever the order says"
            demand(order == [0, 1, 2] or not close(found, run([0, 1, 2])), text)
        demand(close(found, right), f"the stream after the branches {order} is another one")


@exercise(_CHAPTER, chosen_inputs=True)
def opposed(answer: Answer) -> None:
    """Write `opposed(writes)`: the share of pairs of blocks whose centred writes point against one another."""
    for seed, layers in _OPPOSED:
        # Positions of very different lengths: a mean of cosines is no cosine of all entries. And offsets that
        # point much the same way, so that without centring hardly anything points apart.
        writes = normal(layers, 7, 4, seed=seed) * torch.exp(normal(1, 7, 1, seed=seed + 20))
        writes = writes + 2 * normal(layers, 1, 4, seed=seed + 40).abs()
        found = number(answer(writes.clone()))
        raw = _cosines(writes)
        rows, columns = torch.triu_indices(layers, layers, 1)
        text = "subtract each block's mean write over the positions first"
        demand(not close(found, float((raw.mean(-1)[rows, columns] < 0).double().mean())), text)
        each = _cosines(writes - writes.mean(1, keepdim=True))
        pairs = each.mean(-1)[rows, columns] < 0
        of_all = _cosines(writes - writes.mean((0, 1)))
        text = "each block has a mean of its own; one mean for all blocks does not take it away"
        right = float(pairs.double().mean())
        other = float((of_all.mean(-1)[rows, columns] < 0).double().mean())
        demand(not close(found, other), text)
        text = "a block and itself are no pair: they only make the share smaller"
        demand(not close(found, float((each.mean(-1) < 0).double().mean())), text)
        text = "take the mean cosine of a pair over the positions first, then its sign"
        demand(not close(found, float((each[rows, columns] < 0).double().mean())), text)
        demand(not close(found, float(pairs.sum())), "asked for is a share of the pairs")
        text = f"for {layers} blocks got {found:.4g}"
        demand(close(found, right), f"{text}: mean cosine below zero, over all pairs of blocks")


def _cosines(writes: Tensor) -> Tensor:
    units = F.normalize(writes, dim=-1)
    return torch.einsum("ipd,jpd->ijp", units, units)


@exercise(_CHAPTER)
def direct(answer: Answer) -> None:
    """Write `direct(writes, scale, weight, unembedding, answer)`: what each write adds to the right logit."""
    writes, weight, unembedding = normal(4, 6, seed=0), normal(6, seed=1), normal(5, 6, seed=2)
    for scale, token in ((2.5, 3), (0.5, 0)):
        given = (writes.clone(), scale, weight.clone(), unembedding.clone(), token)
        found = tensor(answer(*given), (4,))
        centred = (writes - writes.mean(-1, keepdim=True)) / scale * weight
        logits = centred @ unembedding.T
        right = logits[:, token] - logits.mean(-1)
        text = "the final norm subtracts each write's mean, too"
        rough = writes / scale * weight @ unembedding.T
        demand(not close(found, rough[:, token] - rough.mean(-1)), text)
        demand(not close(found, logits[:, token]), "above the mean logit of all tokens, was asked")
        demand(not close(found, right * scale), "the divisor of the final norm was left out")
        own = F.layer_norm(writes, (6,), eps=0.0) * weight @ unembedding.T
        text = "the divisor is that of the whole stream, held at its value, not one of each write"
        demand(not close(found, own[:, token] - own.mean(-1), 1e-4), text)
        demand(close(found, right), "the parts are other ones; do they add up to the logit?")


@exercise(_CHAPTER)
def repair(answer: Answer) -> None:
    """Write `repair(before, after, scale_before, scale_after, place)`: direct, later, norm and total."""
    for seed, place in ((0, 1), (1, 2), (2, 0)):
        before, after = normal(5, seed=seed), normal(5, seed=seed + 10)
        after[:place] = before[:place]
        given = (before.clone(), after.clone(), 2.0, 1.6, place)
        found = tensor(torch.stack([torch.as_tensor(one) for one in answer(*given)]), (4,))
        change = (after - before) / 2.0
        direct, later = change[place], change[place + 1 :].sum()
        total = after.sum() / 1.6 - before.sum() / 2.0
        right = torch.stack([direct, later, total - direct - later, total])
        text = "the norm is held at the whole model's divisor for `direct` and `later`"
        own = (after / 1.6 - before / 2.0)[place]
        demand(not close(found[0], own, 1e-5), text)
        text = "parts divide by a divisor; without it they are no logits"
        demand(not close(found[0], after[place] - before[place], 1e-5), text)
        text = "`later` counts what comes after the silenced part, not the part itself"
        demand(not close(found[1], change[place:].sum(), 1e-5), text)
        text = "the total divides by the divisor that the silenced model has"
        demand(not close(found[3], change.sum(), 1e-5), text)
        demand(close(found[2], right[2], 1e-5), "`norm` is what is left of the total")
        demand(close(found, right, 1e-5), "the four numbers are other ones")
