"""Exercises of the chapter on neurons as keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/feed-forward/neurons"


@exercise(
    _CHAPTER,
    Drawing(
        "The two numbers that the chapter's three neurons write together for the token ({one}, {two}).",
        lambda chance: {"one": chance.randint(-4, 4), "two": chance.randint(-3, -1)},
    ),
)
def by_hand(answer: Answer, one: int = 1, two: int = 2) -> None:
    """The two numbers that the chapter's three neurons write together for the token (1, 2)."""
    found = answer.numbers("first", "second")
    keys, values = ((2, 1), (1, -1), (-1, 0)), ((2, 1), (3, 3), (5, -5))
    products = [one * k + two * m for k, m in keys]
    way = "one neuron at a time: product with the key, ReLU, times the value"
    for i, name in enumerate(("the first number", "the second number")):
        writes = [product * value[i] for product, value in zip(products, values, strict=True)]
        right = sum(write for write, p in zip(writes, products, strict=True) if p > 0)
        slips = {
            float(
                right + writes[n]
            ): f"neuron {n + 1} has a negative product; what does ReLU make of it?"
            for n in (2, 1, 0)
            if products[n] < 0
        }
        slips[float(sum(writes))] = "without ReLU silent neurons would write, too"
        if i == 0:
            slips.setdefault(2.0, "that is a value; it is to be weighted by its activation")
        demand_number(found[i], float(right), way=way, name=name, within=0.001, slips=slips)


@exercise(_CHAPTER)
def key_and_value(answer: Answer) -> None:
    """Write `key_and_value(up, down, i)`: what neuron i reads with and writes, from two `nn.Linear` weights."""
    for seed, (d, m) in enumerate(((3, 5), (4, 4), (2, 7))):
        up, down, i = normal(m, d, seed=seed), normal(d, m, seed=seed + 9), m - 2
        pair: Any = answer(up, down, i)
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise Fault("the function shall return two vectors, the key and the value")
        found = [tensor(one, name=name) for one, name in zip(pair, ("key", "value"), strict=True)]
        for name, one in zip(("the key", "the value"), found, strict=True):
            demand(
                tuple(one.shape) == (d,),
                f"{name} is a vector of the stream, of width {d}; got the shape {tuple(one.shape)}",
            )
        key, value = found
        demand(
            not (close(key, down[:, i]) and close(value, up[i])),
            "these are the two vectors, but a neuron reads first and writes then",
        )
        if d == m:
            demand(
                not close(key, up[:, i]),
                "where both widths are equal, a column of `up` fits in shape, but is no key",
            )
            demand(
                not close(value, down[i]),
                "where both widths are equal, a row of `down` fits in shape, but is no value",
            )
        demand(close(key, up[i]), "the key is not what this neuron's product is taken with")
        demand(close(value, down[:, i]), "the value is not what this neuron writes per unit")


@exercise(_CHAPTER)
def gated(answer: Answer) -> None:
    """Write `gated(x, gates, keys, values)`: SwiGLU without biases as a sum over neurons, a row each."""
    for seed, (n, d, m) in enumerate(((2, 3, 5), (4, 4, 4), (1, 2, 1))):
        x = normal(n, d, seed=seed)
        gates, keys, values = (normal(m, d, seed=seed + 7 * k) for k in (1, 2, 3))
        found: Tensor = tensor(answer(x, gates, keys, values), (n, d))
        gate, read = x @ gates.T, x @ keys.T
        demand(
            not close(found, (gate * read) @ values), "nothing bends here: what becomes of a gate?"
        )
        demand(
            not close(found, (gate * F.silu(read)) @ values),
            "one of the two products is bent, and this is the other one",
        )
        demand(not close(found, F.silu(read) @ values), "what do the gates do?")
        demand(
            not close(found, F.silu(gate) @ values),
            "an open gate lets something pass: what?",
        )
        demand(
            not close(found, (gate.sigmoid() * read) @ values),
            "SiLU is more than a logistic function: x times that of x",
        )
        demand(close(found, (F.silu(gate) * read) @ values), "the values differ; take one neuron")


@exercise(_CHAPTER)
def held(answer: Answer) -> None:
    """Write `held(x, keys, key_biases, values, bias, i, level)`: ReLU network, neuron i held at a level."""
    for seed, (n, d, m) in enumerate(((2, 3, 5), (4, 4, 4), (1, 2, 1))):
        x, keys, values = (
            normal(*size, seed=seed + k) for k, size in ((0, (n, d)), (7, (m, d)), (14, (m, d)))
        )
        key_biases, bias = normal(m, seed=seed + 21), normal(d, seed=seed + 28)
        i, level = m - 1, 0.75
        key_biases[i] = 9.0  # active for every token, so that each slip shows
        found: Tensor = tensor(answer(x, keys, key_biases, values, bias, i, level), (n, d))
        says = (x @ keys.T + key_biases).relu()
        silent, fixed = says.clone(), says.clone()
        silent[:, i], fixed[:, i] = 0, level
        demand(not close(found, says @ values + bias), "all neurons say what they would have said")
        demand(
            not close(found, silent @ values + bias),
            "this neuron is silent; held at a level it writes that much of its value everywhere",
        )
        demand(
            not close(found, (says + (fixed - silent)) @ values + bias),
            "the level stands in the place of what the neuron says; it is not added to it",
        )
        demand(not close(found, fixed @ values), "what becomes of the last bias?")
        unbiased = (x @ keys.T).relu()
        unbiased[:, i] = level
        if not close(unbiased, fixed):
            demand(
                not close(found, unbiased @ values + bias),
                "the biases of the keys are missing: they belong inside the ReLU",
            )
        demand(close(found, fixed @ values + bias), "the values differ; take one neuron at a time")


@exercise(_CHAPTER)
def looked_up(answer: Answer) -> None:
    """Write `looked_up(read, says, kept)`: predict a neuron from the last character alone.

    `read` and `kept` are strings of characters, `says` what the neuron said at each of the first.
    """
    cases = (
        ("abab", [1.0, 0.0, 3.0, 0.0], "ba"),
        ("aab", [1.0, 2.0, 6.0], "abbz"),
        ("x", [2.0], "y"),
    )
    for read, says, kept in cases:
        given: Any = answer(read, list(says), kept)
        if isinstance(given, Tensor):
            given = given.tolist()
        if not isinstance(given, (list, tuple)) or len(given) != len(kept):
            raise Fault(f"the function shall return {len(kept)} numbers, one for each of {kept!r}")
        found = [number(one) for one in given]
        mean = sum(says) / len(says)
        table = {
            sign: [said for other, said in zip(read, says, strict=True) if other == sign]
            for sign in read
        }
        for sign, one in zip(kept, found, strict=True):
            shown = f"read {read!r} with {says}; for {sign!r} got {one:.4g}"
            if sign not in table:
                demand(close(one, mean), f"{shown}; it was not read, so the overall mean is best")
                continue
            own = table[sign]
            right = sum(own) / len(own)
            if len(own) > 1:
                demand(
                    close(one, right) or not close(one, max(own)),
                    f"{shown}; that is the largest, and a table over the whole range has the mean",
                )
            demand(close(one, right), f"{shown}; the mean of what was said at this character")


@exercise(_CHAPTER)
def f1(answer: Answer) -> None:
    """Write `f1(named, strong)`: from two Boolean lists, precision, recall and their harmonic mean."""
    cases = (
        ([True, True, False, False], [True, False, True, False]),
        ([True, True, True, False, False], [True, False, False, False, False]),
        ([True, False, False, False, False, False], [True, True, True, True, False, False]),
        ([True, False, False], [False, True, True]),
    )
    for named, strong in cases:
        given: Any = answer(list(named), list(strong))
        if isinstance(given, Tensor):
            given = given.tolist()
        if not isinstance(given, (list, tuple)) or len(given) != 3:
            raise Fault("the function shall return three numbers: precision, recall and F1")
        precision, recall, mean = (number(one) for one in given)
        both = sum(a and b for a, b in zip(named, strong, strict=True))
        right = (both / sum(named), both / sum(strong))
        shown = f"for {named} and {strong}"
        if right[0] != right[1]:
            demand(
                not (close(precision, right[1]) and close(recall, right[0])),
                f"{shown} precision and recall are exchanged",
            )
        demand(close(precision, right[0]), f"{shown} precision is of the contexts that are named")
        demand(close(recall, right[1]), f"{shown} recall is of the strongest contexts")
        if both and right[0] != right[1]:
            demand(
                not close(mean, sum(right) / 2),
                f"{shown} F1 is not the ordinary mean: one poor number must not be made up for",
            )
        expected = 2 * both / (sum(named) + sum(strong))
        demand(close(mean, expected), f"{shown} the harmonic mean differs; what if both are zero?")


@exercise(_CHAPTER)
def promoted(answer: Answer) -> None:
    """Write `promoted(value, unembedding, k)`: the k tokens that a value favours most, best first."""
    for seed, (d, v, k) in enumerate(((3, 7, 2), (5, 5, 3), (4, 9, 1))):
        value, unembedding = normal(d, seed=seed), normal(v, d, seed=seed + 5)
        given: Any = answer(value, unembedding, k)
        found = tensor(given, (k,), name="the list of tokens").long()
        scores = unembedding @ value
        right = scores.argsort(descending=True)[:k]
        if torch.equal(found, right):
            continue
        demand(
            not torch.equal(found, scores.argsort()[:k]), "these are the tokens it favours least"
        )
        demand(
            not torch.equal(found, scores.abs().argsort(descending=True)[:k]),
            "a large negative product makes a token less likely",
        )
        demand(
            not torch.equal(found.sort().values, right.sort().values),
            "the right tokens in another order; the one pushed most comes first",
        )
        if d == v:
            demand(
                not torch.equal(found, (value @ unembedding).argsort(descending=True)[:k]),
                "the unembedding has a row for each token, not a column",
            )
        raise Fault("other tokens have a larger product of their row with the value")
