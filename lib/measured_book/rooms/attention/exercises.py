"""Exercises of the chapter on attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    first,
    normal,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

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
def head(answer: Answer) -> None:
    """Write `head(x, w_query, w_key, w_value, causal)`: one head of self-attention for a batch.

    `x` (batch, position, d), matrices (d, d_h), (d, d_h) and (d, d_v); `causal` hides later positions.
    """
    for batch, n, d, width, wide, seed in (
        (2, 4, 5, 3, 2, 1),
        (3, 6, 4, 9, 4, 2),
        (1, 3, 2, 1, 6, 3),
    ):
        x = normal(batch, n, d, seed=seed)
        w_q, w_k = normal(d, width, seed=seed + 10), normal(d, width, seed=seed + 20)
        w_v, shape = normal(d, wide, seed=seed + 30), (batch, n, wide)
        found = tensor(answer(x, w_q, w_k, w_v, False), shape)
        flat = tensor(answer(x, 0 * w_q, w_k, w_v, False), shape)
        text = "queries of zeros like all keys alike, yet some position does not get the mean of the values"
        demand(close(flat, (x @ w_v).mean(1, keepdim=True).expand(shape), 1e-9), text)
        _demand_past(answer, x, (w_q, w_k, w_v), shape)
        scores, v = x @ w_q @ (x @ w_k).transpose(1, 2), x @ w_v
        for scale, text in (
            (1.0, "the scores grow with the width: nothing divides them"),
            (1 / width, "scores are divided by too much: it is not the width itself"),
            (d**-0.5, "that is the root of the width of x; which vectors are compared?"),
        ):
            if width > 1 and not close(scale, width**-0.5):
                demand(not close(found, (scale * scores).softmax(-1) @ v, 1e-9), text)
        text = "the weights are not those of a softmax over the keys"
        demand(close(found, (scores / math.sqrt(width)).softmax(-1) @ v, 1e-6), text)


def _demand_past(
    answer: Answer, x: Tensor, matrices: tuple[Tensor, Tensor, Tensor], shape: tuple[int, ...]
) -> None:
    """Under a causal mask: nothing of the future, and the whole budget for the past."""
    w_q, w_k, w_v = matrices
    masked = tensor(answer(x, *matrices, True), shape)
    last = x.clone()
    last[:, -1] += 1.5
    moved = tensor(answer(last, *matrices, True), shape)
    text = "with causal=True an earlier position moves when the last input changes"
    demand(close(masked[:, :-1], moved[:, :-1], 1e-9), text)
    flat = tensor(answer(x, 0 * w_q, w_k, w_v, True), shape)
    counts = torch.arange(1, shape[1] + 1, dtype=x.dtype)[:, None]
    text = (
        "with causal=True and queries of zeros a position does not get the mean of what it may see"
    )
    demand(close(flat, (x @ w_v).cumsum(1) / counts, 1e-9), text)


@exercise(_CHAPTER)
def previous_token(answer: Answer) -> None:
    """Write `previous_token(vocab, n)`: w_query, w_key and w_value of a head that fetches the word before.

    The input of a word is its one-hot vector (vocab entries) beside that of its place (n entries).
    """
    for vocab, n, seed in ((4, 3, 1), (5, 8, 2), (3, 16, 3)):
        given = answer(vocab, n)
        counted = isinstance(given, (list, tuple)) and len(given) == 3
        demand(counted, "the function shall return three matrices, w_query, w_key and w_value")
        w_q = tensor(given[0], name="w_query")
        demand(
            w_q.ndim == 2 and w_q.shape[0] == vocab + n,
            f"w_query shall have the shape ({vocab + n}, any width), got {tuple(w_q.shape)}",
        )
        w_k = tensor(given[1], tuple(w_q.shape), name="w_key")
        w_v = tensor(given[2], (vocab + n, vocab), name="w_value")
        words = torch.randint(vocab, (n,), generator=torch.Generator().manual_seed(seed))
        token = torch.eye(vocab, dtype=torch.float64)[words]
        x = torch.cat([token, torch.eye(n, dtype=torch.float64)], dim=1)
        scores = (x @ w_q) @ (x @ w_k).T / math.sqrt(w_q.shape[1])
        past = torch.ones(n, n, dtype=torch.bool).tril()
        pattern = scores.masked_fill(~past, -math.inf).softmax(-1)
        chosen = pattern.argmax(1)
        at = first(chosen[1:] != torch.arange(n - 1))
        text = f"position {at[0] + 1} looks most at position {int(chosen[at[0] + 1])}" if at else ""
        demand(not at, text)
        least = pattern.diagonal(-1).min()
        text = f"the place is right, but gets a weight of only {least:.3f}: which scores make it sharper?"
        demand(least > 0.99, text)
        found, wanted = pattern @ (x @ w_v), token[:-1]
        text = "the head looks at the right place, but what it fetches is not that word's one-hot vector"
        demand(bool(((found[1:] - wanted).abs() < 0.01).all()), text)


@exercise(_CHAPTER)
def kernel_vectors(answer: Answer) -> None:
    """Write `kernel_vectors(x, centres, width)`: queries and keys with a Gaussian kernel's weights.

    `x` (query,) and `centres` (key,) are numbers; returned are queries (query, w) and keys (key, w).
    """
    for n_query, n_key, h, seed in ((3, 4, 1.0, 1), (5, 2, 0.3, 2), (2, 6, 2.0, 3)):
        x, centres = normal(n_query, seed=seed), normal(n_key, seed=seed + 10)
        given = answer(x, centres, h)
        paired = isinstance(given, (list, tuple)) and len(given) == 2
        demand(paired, "the function shall return two tensors, queries and keys")
        q, k = tensor(given[0], name="queries"), tensor(given[1], name="keys")
        fits = q.ndim == k.ndim == 2 and q.shape[1] == k.shape[1]
        text = f"expected queries ({n_query}, w) and keys ({n_key}, w), got {tuple(q.shape)}, {tuple(k.shape)}"
        demand(fits and (len(q), len(k)) == (n_query, n_key), text)
        found = (q @ k.T).softmax(-1)
        apart = (x[:, None] - centres).square()
        for power, text in (
            (apart / h**2, "the exponent has a half in it"),
            (apart / (2 * h), "the width of the kernel is squared in the exponent"),
            (apart / 2, "the width of the kernel does not matter"),
            (-apart / (2 * h**2), "the farthest centre has the largest weight: look at the sign"),
            (-x[:, None] * centres / h**2, "the term with the square of the centre is missing"),
        ):
            if not close((-power).softmax(-1), (-apart / (2 * h**2)).softmax(-1), 1e-6):
                demand(not close(found, (-power).softmax(-1), 1e-9), text)
        text = "the weights are not those of the kernel: multiply out the square of the distance"
        demand(close(found, (-apart / (2 * h**2)).softmax(-1), 1e-9), text)


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


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: the redness and the roundness that ball gets when {places} places of "
        "padding are not masked.",
        lambda chance: {"places": chance.randint(3, 12)},
    ),
)
def padding(answer: Answer, places: int = 2) -> None:
    """Two numbers: the redness and the roundness that ball gets when two places of padding are not masked."""
    redness, roundness = answer.numbers("redness", "roundness")
    e = math.e
    total = e**2 + e + 1 + places
    way = "which scores do these places get, and what do they add to the sum of the exponentials?"
    slips = {
        3 * e**2 / (e**2 + e + 1): "that is without the padding: a score of zero takes no weight?",
        3 * e**2 / (e**2 + e + 2): f"there are {places} places of padding",
        e**2 / total: "that is a weight; how red is red?",
    }
    demand_number(redness, 3 * e**2 / total, name="the redness", way=way, slips=slips)
    slips = {
        3 * e / (e**2 + e + 1): "that is without the padding",
        e / total: "that is a weight; how round is round?",
    }
    demand_number(roundness, 3 * e / total, name="the roundness", way=way, within=0.02, slips=slips)
