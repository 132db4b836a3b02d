"""Exercises of the chapter on induction and learning in context."""

from __future__ import annotations

import math

import torch

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

SUBJECT = "induction"


@exercise(
    "book/inside/induction",
    Drawing(
        "Two numbers: the weight of an induction head on one match with a score of {score} among {keys} keys, "
        "whose others have the score 0, and the score that gives the match a weight of {wanted}.",
        lambda chance: {
            "score": chance.choice((2, 4, 5)),
            "keys": chance.randint(12, 40),
            "wanted": chance.choice((0.9, 0.95, 0.98)),
        },
    ),
)
def weight(answer: Answer, score: int = 3, keys: int = 10, wanted: float = 0.99) -> None:
    """How sharp an induction head must be: its weight on one match among ten keys, and the score for 0.99."""
    found, needed = answer.numbers("(a)", "(b)")
    match, others, odds = math.exp(score), keys - 1, wanted / (1 - wanted)
    demand_number(
        found,
        match / (match + others),
        name="(a)",
        way=f"the match has the score {score}, each of the {others} other keys 0",
        slips={
            match / (match + keys): f"of {keys} keys one is the match, so {others} are left",
            score / keys: "weights go with the exponential of the score",
        },
    )
    demand_number(
        needed,
        math.log(odds * others),
        name="(b)",
        way=f"solve e^s / (e^s + {others}) = {wanted} for s",
        slips={
            math.log(odds): f"there are {others} other keys, not one",
            math.log(others): "this is the score for a weight of one half",
        },
    )


@exercise("book/inside/induction")
def copying(answer: Answer) -> None:
    """Write `copying(embedding, value, output, unembedding)`: the copying score of a head."""
    for vocab, d_model, d_head, seed in ((5, 6, 3, 0), (6, 6, 6, 1), (8, 9, 7, 3), (12, 8, 2, 2)):
        embedding, unembedding = (
            normal(vocab, d_model, seed=seed),
            normal(d_model, vocab, seed=seed + 10),
        )
        value, output = (
            normal(d_model, d_head, seed=seed + 20),
            normal(d_head, d_model, seed=seed + 30),
        )
        whole = embedding @ value @ output @ unembedding
        values = torch.linalg.eigvals(whole)
        expected = float(values.real.sum() / values.abs().sum())
        found = number(answer(embedding, value, output, unembedding))
        wrong = float((values.real > 1e-9).double().mean())
        demand(
            close(found, expected, 1e-6) or not close(found, wrong, 1e-9),
            "this is the share of positive eigenvalues; the score weighs each by its size",
        )
        wrong = float(values.real.sum() / values.real.abs().sum())
        demand(
            close(found, expected, 1e-6) or not close(found, wrong, 1e-9),
            "eigenvalues may be complex: the sizes are those of complex numbers",
        )
        demand(close(found, expected, 1e-6), "the score is not sum(Re lambda) / sum(|lambda|)")


@exercise("book/inside/induction")
def match(answer: Answer) -> None:
    """Write `match(embedding, query, key, value, output)`: own token against the token in front of the key."""
    for vocab, d_model, d_head, seed in ((5, 6, 3, 0), (4, 7, 2, 1)):
        embedding = normal(vocab, d_model, seed=seed)
        query, key, value = (normal(d_model, d_head, seed=seed + i) for i in (10, 20, 30))
        output = normal(d_head, d_model, seed=seed + 40)
        expected = (embedding @ query) @ (embedding @ value @ output @ key).T
        found = tensor(answer(embedding, query, key, value, output), (vocab, vocab))
        demand(
            not close(found, expected.T, 1e-6),
            "rows should be the query's token, columns the token in front of the key",
        )
        demand(
            not close(found, embedding @ query @ (embedding @ key).T, 1e-6),
            "this compares the query with the key's own token: the note of the first head is missing",
        )
        demand(
            close(found, expected, 1e-6),
            "the matrix differs from the scores of each token with each note",
        )


@exercise("book/inside/induction")
def descent_head(answer: Answer) -> None:
    """Write `descent_head(x, y, asked, rate)`: one step of gradient descent as linear attention."""
    for points, inputs, seed in ((6, 3, 1), (1, 1, 0), (4, 5, 2)):
        x, y = normal(points, inputs, seed=seed), normal(points, seed=seed + 10)
        asked, rate = normal(inputs, seed=seed + 20), 0.25
        expected = rate * ((x @ asked) @ y)
        found = number(answer(x, y, asked, rate))
        demand(
            not close(found, float(expected / rate), 1e-9),
            "the rate is missing: it belongs to the values",
        )
        demand(
            points == 1 or not close(found, float((x @ asked).softmax(0) @ y), 1e-9),
            "there is no softmax in linear attention, nor in a gradient",
        )
        demand(
            close(found, float(expected), 1e-6),
            "the answer is not that of one step from w = 0 on half the sum of squared errors",
        )


@exercise("book/inside/induction")
def ridge(answer: Answer) -> None:
    """Write `ridge(x, y, asked, variance)`: the best guess, for w of variance one and noise of `variance`."""
    for points, inputs, seed in ((1, 2, 0), (7, 2, 1), (5, 4, 2)):
        x, y = normal(points, inputs, seed=seed), normal(points, seed=seed + 10)
        asked, variance = normal(inputs, seed=seed + 20), 0.3
        gram = x.T @ x
        eye = torch.eye(inputs, dtype=x.dtype)
        expected = float(asked @ torch.linalg.solve(gram + variance * eye, x.T @ y))
        found = number(answer(x, y, asked, variance))
        shortest = float(asked @ torch.linalg.pinv(x) @ y)
        demand(
            not close(found, shortest, 1e-9),
            "this is least squares: it trusts noisy points too much",
        )
        wrong = float(asked @ torch.linalg.solve(gram + variance**2 * eye, x.T @ y))
        demand(not close(found, wrong, 1e-9), "the penalty is the variance, not its square")
        demand(close(found, expected, 1e-6), "the guess is not the mean of y given the points")
