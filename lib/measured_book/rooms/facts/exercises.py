"""Exercises of the chapter on facts in feed-forward networks."""

from __future__ import annotations

import math
from typing import Any

import torch

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/feed-forward/facts"
_TABLES = (
    ([(0, 0, 1)], (2, 2, 2)),
    ([(0, 0, 1), (0, 1, 0), (1, 0, 2), (2, 1, 1)], (3, 2, 3)),
    ([(3, 2, 0), (3, 0, 0), (1, 2, 0), (0, 1, 3), (2, 2, 1)], (4, 3, 4)),
)


@exercise(_CHAPTER)
def slots(answer: Answer) -> None:
    """Write `slots(facts, sizes)`: (w1, b1, w2) of a ReLU network that stores facts with a neuron for each."""
    for facts, sizes in _TABLES:
        subjects, relations, objects = sizes
        given: Any = answer(facts, sizes)
        if not isinstance(given, (list, tuple)) or len(given) != 3:
            raise Fault("the function shall return three things: w1, b1 and w2")
        m = len(facts)
        w1 = tensor(given[0], (subjects + relations, m), name="w1")
        b1 = tensor(given[1], (m,), name="b1")
        w2 = tensor(given[2], (m, objects), name="w2")
        known = {(s, r): o for s, r, o in facts}
        for s in range(subjects):
            for r in range(relations):
                x = torch.zeros(subjects + relations, dtype=torch.float64)
                x[s], x[subjects + r] = 1, 1
                written = (x @ w1 + b1).relu() @ w2
                asked = f"asked for subject {s} and relation {r}, it writes {_short(written)}"
                if (s, r) in known:
                    demand(written.abs().max() > 1e-9, f"{asked}: this fact's neuron does not fire")
                    best = int(written.argmax())
                    alone = int((written >= written.max() - 1e-9).sum()) == 1
                    demand(best == known[s, r] and alone, f"{asked}: that is not the fact's object")
                    others = written.index_fill(0, torch.tensor([best]), 0.0)
                    demand(
                        written[best] > 1e-9 and others.abs().max() < 1e-9,
                        f"{asked}: the fact's object shall get a positive number, and the others nothing",
                    )
                else:
                    demand(
                        written.abs().max() < 1e-9,
                        f"{asked}, though no fact is stored for this pair: one of the two should not be enough",
                    )


@exercise(_CHAPTER)
def reader(answer: Answer) -> None:
    """Write `reader(key, others)`: among all r with key · r = 1 the one that moves the other facts least."""
    for seed, (facts, m) in enumerate(((6, 3), (12, 5), (20, 8))):
        others, key = normal(facts, m, seed=seed), normal(m, seed=seed + 10)
        found = tensor(answer(key, others), (m,))
        product = float(found @ key)
        demand(
            close(product, 1.0),
            f"key · r is {product:.4g}: the fact itself would not move by the change",
        )
        plain, inverse = key / (key @ key), torch.linalg.inv(others.T @ others)
        demand(
            not close(found, plain),
            "that is the shortest r; it does not look at the other facts at all",
        )
        least = inverse @ key / (key @ inverse @ key)
        cost, best = (float((others @ r).square().sum()) for r in (found, least))
        demand(
            cost <= best * (1 + 1e-6) + 1e-9,
            f"the other facts move by {cost:.4g} in all (sum of squares), and they need not move so much",
        )


@exercise(_CHAPTER)
def at_once(answer: Answer) -> None:
    """Write `at_once(keys, added, others, weight)`: the change that rewrites many facts by least squares."""
    for seed, (facts, rest, m, d) in enumerate(((1, 9, 3, 2), (4, 20, 6, 3), (8, 15, 5, 4))):
        keys, others = normal(facts, m, seed=seed).relu() + 0.1, normal(rest, m, seed=seed + 10)
        added, weight = normal(facts, d, seed=seed + 20), 10.0
        found = tensor(answer(keys, added, others, weight), (d, m), name="the change")
        s = others.T @ others
        right = torch.linalg.solve(s + weight * keys.T @ keys, weight * keys.T @ added).T

        equal = torch.linalg.solve(s + keys.T @ keys, keys.T @ added).T
        demand(
            not close(found, equal),
            "a fact to rewrite counts no more than one to keep: where does the weight go?",
        )
        alone = sum(torch.outer(r, k) / (k @ k) for k, r in zip(keys, added, strict=True))
        demand(
            not close(found, alone),
            "those are shortest edits, one for each fact, added up: they disturb one another and the others",
        )
        demand(
            close(found, right, 1e-6),
            "the least squares are elsewhere: put the gradient with respect to the change to zero, with the "
            "weight on the facts that are to be rewritten",
        )


@exercise(_CHAPTER)
def bits(answer: Answer) -> None:
    """Write `bits(facts, objects, parameters)`: bits that a stored table takes, for each parameter."""
    for facts, objects, parameters in ((1, 2, 1), (256, 16, 1024), (100, 10, 50), (362, 16, 1912)):
        found = number(answer(facts, objects, parameters))
        shown = (
            f"for {facts} facts, {objects} objects and {parameters} parameters it gives {found:.5g}"
        )
        right = facts * math.log2(objects) / parameters
        demand(
            objects == 2 or not close(found, facts / parameters),
            f"{shown}: which of {objects} objects it is takes more than one bit",
        )
        demand(
            not close(found, facts * math.log(objects) / parameters, 1e-4),
            f"{shown}: those are nats; how many yes-or-no questions are that?",
        )
        demand(
            not close(found, facts * objects / parameters),
            f"{shown}: one object is chosen, so not every object costs a bit",
        )
        demand(
            parameters == 1 or not close(found, facts * math.log2(objects)),
            f"{shown}: that is the whole table; shared among its parameters?",
        )
        demand(close(found, right), f"{shown}; begin with one fact and two objects")


def _short(values: torch.Tensor) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in values.tolist()) + ")"
