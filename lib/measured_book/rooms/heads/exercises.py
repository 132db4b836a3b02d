"""Exercises of the chapter on many heads."""

from __future__ import annotations

import math

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    first,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/attention/heads"


@exercise(_CHAPTER)
def split(answer: Answer) -> None:
    """Write `split(x, n_heads)`: (batch, position, n_heads * d_head) to (batch, head, position, d_head)."""
    for batch, n, heads, width in ((2, 4, 3, 5), (1, 3, 2, 2), (2, 1, 4, 3)):
        x = normal(batch, n, heads * width, seed=1)
        found = tensor(answer(x, heads), (batch, heads, n, width), name="what `split` returns")
        expected = torch.stack([x[:, :, h * width : (h + 1) * width] for h in range(heads)], dim=1)
        turns = torch.stack([x[:, :, h::heads] for h in range(heads)], dim=1)
        demand(
            heads == 1 or not close(found, turns),
            "heads take turns along the width; the columns of one head shall stand side by side",
        )
        demand(
            n == 1 or not close(found, x.reshape(batch, heads, n, width)),
            "reshaping straight to the wanted shape mixes positions with heads: give the width two axes "
            "first, then swap axes",
        )
        demand(close(found, expected), "an entry has gone to another head or position")


@exercise(_CHAPTER)
def merge(answer: Answer) -> None:
    """Write `merge(mixed)`: from (batch, head, position, d_head) to (batch, position, n_heads * d_head)."""
    for batch, n, heads, width in ((2, 4, 3, 5), (1, 3, 2, 2), (2, 1, 4, 3)):
        mixed = normal(batch, heads, n, width, seed=2)
        shape = (batch, n, heads * width)
        found = tensor(answer(mixed), shape, name="what `merge` returns")
        expected = torch.cat([mixed[:, h] for h in range(heads)], dim=-1)
        demand(
            n == 1 or not close(found, mixed.reshape(shape)),
            "reshaping straight away puts several positions of one head into one row: swap axes first",
        )
        demand(close(found, expected), "the outputs do not stand side by side, head after head")


@exercise(_CHAPTER)
def terms(answer: Answer) -> None:
    """Write `terms(concatenated, W_O, n_heads)`: what each head adds, (n_heads, n, d), one after the other."""
    for heads, width, n, d in ((3, 2, 4, 6), (2, 3, 1, 4), (1, 2, 3, 5), (4, 1, 5, 3)):
        outputs, weight = normal(n, heads * width, seed=1), normal(heads * width, d, seed=2)
        found = tensor(answer(outputs, weight, heads), (heads, n, d), name="what `terms` returns")
        demand(
            close(found.sum(0), outputs @ weight), "the terms do not add up to what the layer adds"
        )
        for head in range(heads):
            others = torch.ones(heads * width, dtype=torch.bool)
            others[head * width : (head + 1) * width] = False
            changed = outputs + 3 * others
            again = tensor(answer(changed, weight, heads), (heads, n, d))
            demand(
                close(again[head], found[head]),
                f"the term of head {head} changes when only other heads' outputs change",
            )
            silent = torch.where(others, outputs, 0.0)
            again = tensor(answer(silent, weight, heads), (heads, n, d))
            demand(
                close(again[head], torch.zeros(n, d)),
                f"head {head} adds something although its own output is zero",
            )


@exercise(_CHAPTER)
def blend(answer: Answer) -> None:
    """Two weights with which one head can bring two one-hot tokens in one vector, so that their order shows."""
    near, far = answer.numbers("the weight one place back", "the weight three places back")
    demand(min(near, far) > -1e-9, "weights of a head are never negative")
    demand(
        abs(near + far - 1) < 1e-6,
        f"a head's weights sum to one, these to {near + far:.6g}",
    )
    demand(
        min(near, far) > 1e-6,
        "one of the two places is not looked at, so nothing is known of its token",
    )
    demand(
        abs(near - far) > 1e-6,
        "with these weights the vector of the tokens a, b is that of b, a",
    )


@exercise(
    _CHAPTER,
    Drawing(
        "A head of layer zero gives {stay} of its attention to its own position and the rest to the one "
        "before; a head of layer one does the same, and they compose by values. Three weights of the "
        "virtual head, far from the start: on the own position, one place back and two places back.",
        lambda chance: {"stay": chance.choice((0.2, 0.3, 0.4, 0.6, 0.7, 0.8))},
    ),
)
def virtual(answer: Answer, stay: float = 0.5) -> None:
    """Three weights of a virtual head: on the own position, one place back and two places back."""
    found = answer.numbers("the own position", "one back", "two back")
    demand(
        abs(sum(found) - 1) < 1e-6,
        f"the weights of a pattern sum to one, these to {sum(found):.6g}",
    )
    way = "over how many paths does the second head reach that position, and what is each worth?"
    names = ("the weight on the own position", "the weight one back", "the weight two back")
    weights = (stay**2, 2 * stay * (1 - stay), (1 - stay) ** 2)
    for value, right, name in zip(found, weights, names, strict=True):
        demand_number(value, right, name=name, way=way)


@exercise(_CHAPTER)
def excess(answer: Answer) -> None:
    """Write `excess(A, B)`: the composition score of what A writes and what B reads, over its baseline."""
    whole = torch.eye(4, dtype=torch.float64)
    same = number(answer(whole[:, :1] @ whole[:1], whole[:, :1] @ whole[:1]))
    demand(
        close(same, 2.0),
        "of two maps along one and the same direction, in a stream of width 4, the score is as large as it can "
        f"be, yet what comes is {same:.6g}",
    )
    apart = number(answer(whole[:, :1] @ whole[:1], whole[:, 1:2] @ whole[1:2]))
    demand(close(apart, 0.0), f"B reads nothing of what A writes, yet what comes is {apart:.6g}")
    first_map, second = normal(3, 6, seed=1), normal(6, 5, seed=2)
    found = number(answer(first_map, second))
    louder = number(answer(7 * first_map, second / 3))
    demand(close(found, louder), "the result depends on how large the two matrices are")
    squares = []
    for seed in range(60):
        turn = torch.linalg.qr(normal(6, 6, seed=100 + seed)).Q
        squares.append(number(answer(first_map @ turn, second)) ** 2)
    mean = math.sqrt(math.fsum(squares) / len(squares))
    demand(
        abs(mean - 1) < 0.15,
        f"with random rotations between the two, the root of the mean square is {mean:.2f} rather than 1",
    )
    both = (normal(6, 6, seed=3), normal(6, 6, seed=4))
    forth, back = number(answer(*both)), number(answer(both[1], both[0]))
    expected = (both[0] @ both[1]).norm() / (both[1] @ both[0]).norm()
    wrong = torch.tensor([not close(forth / back, expected)])
    demand(not first(wrong), "what A writes is to be read by B, in this order")


_VOCAB, _PLACES = 5, 7
_TOKEN, _PLACE = slice(0, _VOCAB), slice(_VOCAB, _VOCAB + _PLACES)
_NOTE = slice(_VOCAB + _PLACES, 2 * _VOCAB + _PLACES)
_SAID = slice(2 * _VOCAB + _PLACES, 3 * _VOCAB + _PLACES)
_WIDTH = 3 * _VOCAB + _PLACES


def _one_hot(tokens: list[int]) -> torch.Tensor:
    """A stream that holds tokens and their places; note and answer are empty."""
    x = torch.zeros(len(tokens), _WIDTH, dtype=torch.float64)
    rows = torch.arange(len(tokens))
    x[rows, torch.tensor(tokens)] = 1
    x[rows, _PLACE.start + rows] = 1
    return x


def _sequences() -> list[list[int]]:
    return [[3, 1, 4, 1, 0, 4, 2], [0, 0, 1, 2, 2], [4, 3, 2, 1, 0, 4, 3], [2, 0, 2, 0, 2]]


def _four(answer: Answer) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The four matrices that an answer gives, each of a head of one width."""
    found = answer()
    demand(
        isinstance(found, (tuple, list)) and len(found) == 4,
        "expected four matrices, W_Q, W_K, W_V and W_O",
    )
    names = ("W_Q", "W_K", "W_V", "W_O")
    given = [torch.as_tensor(matrix) for matrix in found]
    for name, matrix in zip(names, given, strict=True):
        demand(matrix.ndim == 2, f"{name} has {matrix.ndim} axes, expected two")
    scored, carried = given[0].shape[1], given[2].shape[1]
    q, k = (tensor(m, (_WIDTH, scored), name=n) for m, n in zip(given, names[:2], strict=False))
    v = tensor(given[2], (_WIDTH, carried), name="W_V")
    o = tensor(given[3], (carried, _WIDTH), name="W_O")
    return q, k, v, o


def _run(
    x: torch.Tensor, four: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The pattern of a causal head without a scale, and what it writes."""
    q, k, v, o = four
    n = len(x)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    pattern = ((x @ q) @ (x @ k).T).masked_fill(hidden, -math.inf).softmax(-1)
    return pattern, pattern @ x @ v @ o


def _demand_quiet(write: torch.Tensor, part: slice) -> None:
    """The head writes into one part of the stream alone."""
    other = torch.ones(_WIDTH, dtype=torch.bool)
    other[part] = False
    demand(
        close(write[:, other], torch.zeros(len(write), int(other.sum()))),
        f"the head also writes outside the entries {part.start} to {part.stop - 1}",
    )


@exercise(_CHAPTER)
def previous_token(answer: Answer) -> None:
    """Write `previous_token()`: W_Q, W_K, W_V, W_O of a head that notes the token one place back."""
    four = _four(answer)
    for tokens in _sequences():
        x = _one_hot(tokens)
        pattern, write = _run(x, four)
        weight = pattern.diagonal(-1)
        demand(
            not close(pattern.diagonal()[1:], torch.ones(len(tokens) - 1), 0.01),
            "each query looks at its own position",
        )
        here = f"the query at position {int(weight.argmin()) + 1}"
        few = 0.5 < float(weight.min()) < 0.99
        demand(not few, f"{here} gives the position before it {float(weight.min()):.2f}: sharper!")
        demand(
            float(weight.min()) >= 0.99,
            f"{here} gives the position before it only {float(weight.min()):.2f}",
        )
        _demand_quiet(write, _NOTE)
        expected = x[:-1, _TOKEN]
        demand(
            close(write[1:, _NOTE], expected, 0.02),
            "the note is not the token one place back, one-hot",
        )


@exercise(_CHAPTER)
def induction(answer: Answer) -> None:
    """Write `induction()`: W_Q, W_K, W_V, W_O of the later head of an induction pair."""
    four = _four(answer)
    for tokens in _sequences():
        x = _one_hot(tokens)
        x[1:, _NOTE] = x[:-1, _TOKEN]  # as a perfect previous-token head leaves it
        pattern, write = _run(x, four)
        for query, token in enumerate(tokens):
            found = [j for j in range(1, query + 1) if tokens[j - 1] == token]
            if not found:
                continue
            copies = [j for j in range(query + 1) if tokens[j] == token]
            here = f"in {tokens}, the query at position {query}"
            demand(
                set(copies) & set(found) or float(pattern[query, copies].sum()) < 0.9,
                f"{here} looks at copies of its own token: match the key's note, not its token",
            )
            demand(
                float(pattern[query, found].sum()) >= 0.99,
                f"{here} should look behind earlier copies of token {token}, at {found}",
            )
            _demand_quiet(write, _SAID)
            expected = x[found][:, _TOKEN].mean(0)
            demand(
                close(write[query, _SAID], expected, 0.02),
                f"{here} looks at the right place, and says another token than what stands there",
            )
