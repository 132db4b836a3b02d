"""Exercises of the chapter on attention."""

from __future__ import annotations

import math

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    first,
    normal,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/attention/attention"


@exercise(_CHAPTER)
def row(answer: Answer) -> None:
    """Four numbers: round's weights on red and on ball, its redness without a mask and with a causal one."""
    red, ball, redness, masked = answer.numbers(
        "weight on red", "weight on ball", "redness", "redness, masked"
    )
    e = math.e
    total, unscaled = 2 + e, 2 + e**2
    slips = {
        1 / unscaled: "the dot product has not been divided by the root of the width",
        e**2 / unscaled: "the dot product has not been divided by the root of the width",
        1 / 3: "all scores alike give that; round does ask for something",
        0.0: "a score of zero is not a weight of zero: what is its exponential?",
        1.0: "that is an exponential; which share of their sum is it?",
        e: "that is an exponential; which share of their sum is it?",
    }
    way = "which scores does the query of round get, and what are their exponentials?"
    demand_number(red, 1 / total, name="the weight on red", way=way, within=0.03, slips=slips)
    demand_number(ball, e / total, name="the weight on ball", way=way, within=0.02, slips=slips)
    way = "average the first number of the three values with your weights"
    slips = {1 / total: "that is a weight; how red is red?"}
    demand_number(redness, 3 / total, name="the redness", way=way, within=0.03, slips=slips)
    way = "which words may round see, and what do their weights add up to?"
    slips = {
        3 / total: "as if ball still took its share: the mask comes before the softmax",
        3.0: "round may see itself too",
        0.5: "that is a weight; how red is red?",
    }
    demand_number(masked, 1.5, name="the redness with a mask", way=way, slips=slips)


@exercise(_CHAPTER)
def masked_attention(answer: Answer) -> None:
    """Write `attention(queries, keys, values, mask)`: each query's average of the values that it may see.

    Queries (query, width), keys (key, width), values (key, other width), mask (query, key) True where allowed.
    """
    for n_query, n_key, width, wide, seed in ((3, 3, 4, 2, 1), (2, 5, 3, 7, 2), (1, 4, 9, 1, 3)):
        q, k = normal(n_query, width, seed=seed), normal(n_key, width, seed=seed + 10)
        v = normal(n_key, wide, seed=seed + 20)
        mask = torch.ones(n_query, n_key, dtype=torch.bool)
        found = tensor(answer(q, k, v, mask), (n_query, wide))
        constant = tensor(answer(q, k, torch.ones_like(v), mask), (n_query, wide))
        demand(
            close(constant, 1.0, 1e-9), "when all values are one, some query gets something else"
        )
        flat = tensor(answer(0 * q, k, v, mask), (n_query, wide))
        text = "a query of zeros likes all keys alike, yet does not get the mean of the values"
        demand(close(flat, v.mean(0).expand(n_query, wide), 1e-9), text)
        open_ = mask.clone()
        open_[:, -1] = False
        hidden = tensor(answer(q, k, v, open_), (n_query, wide))
        changed = v.clone()
        changed[-1] += 5
        text = "the value of a key that nobody may see still matters"
        demand(close(tensor(answer(q, k, changed, open_)), hidden, 1e-9), text)
        constant = tensor(answer(q, k, torch.ones_like(v), open_), (n_query, wide))
        text = "with one key masked, the weights of the others no longer add up to one"
        demand(close(constant, 1.0, 1e-9), text)
        ours = ((q @ k.T) / math.sqrt(width)).softmax(-1) @ v
        unscaled, by_width = (q @ k.T).softmax(-1) @ v, ((q @ k.T) / width).softmax(-1) @ v
        demand(
            not close(found, unscaled, 1e-9), "the scores grow with the width: nothing divides them"
        )
        demand(
            not close(found, by_width, 1e-9), "scores are divided by too much: it is not the width"
        )
        demand(close(found, ours, 1e-6), "the weights are not those of a softmax over the keys")


@exercise(_CHAPTER)
def window_mask(answer: Answer) -> None:
    """Write `window_mask(n, w)`: a Boolean (query, key), True for the query itself and the w - 1 before it."""
    for n, w in ((5, 2), (4, 1), (6, 6), (3, 8)):
        mask = tensor(answer(n, w), (n, n), boolean=True)
        at = first(~mask.diagonal())
        demand(not at, f"query {at[0]} does not see itself" if at else "")
        at = first(mask.triu(1))
        demand(not at, f"query {at[0]} looks at key {at[1]}, which comes later" if at else "")
        at = first(mask.tril(-w))
        text = (
            f"query {at[0]} looks at key {at[1]}, which lies outside of a window of {w}"
            if at
            else ""
        )
        demand(not at, text)
        wanted = torch.ones(n, n, dtype=torch.bool).tril() & ~torch.ones(
            n, n, dtype=torch.bool
        ).tril(-w)
        at = first(wanted & ~mask)
        text = (
            f"query {at[0]} does not look at key {at[1]}, which is in its window of {w}"
            if at
            else ""
        )
        demand(not at, text)


@exercise(_CHAPTER)
def spread(answer: Answer) -> None:
    """One number: the standard deviation of the scores in (c), divided by the root of the model's width."""
    slips = {
        1 / 8: "that is a variance, or a division by the number of heads",
        1.0: "that is right for a division by the root of the head's width",
        8.0: "that is the root of the variance before any division",
        64.0: "that is the variance before any division",
    }
    way = "what is the variance of a dot product over the width of one head, and by what is it divided?"
    demand_number(answer.number(), 8**-0.5, way=way, within=0.02, slips=slips)


@exercise(_CHAPTER)
def padding(answer: Answer) -> None:
    """Two numbers: the redness and the roundness that ball gets when two places of padding are not masked."""
    redness, roundness = answer.numbers("redness", "roundness")
    e = math.e
    total = e**2 + e + 3
    way = "which scores do the two places get, and what do they add to the sum of the exponentials?"
    slips = {
        3 * e**2 / (e**2 + e + 1): "that is without the padding: a score of zero takes no weight?",
        3 * e**2 / (e**2 + e + 2): "there are two places of padding",
        e**2 / total: "that is a weight; how red is red?",
    }
    demand_number(redness, 3 * e**2 / total, name="the redness", way=way, slips=slips)
    slips = {
        3 * e / (e**2 + e + 1): "that is without the padding",
        e / total: "that is a weight; how round is round?",
    }
    demand_number(roundness, 3 * e / total, name="the roundness", way=way, within=0.02, slips=slips)
