"""Mistakes in the exercises on attention."""

import math

import torch

E = math.e


def head(
    scale=None, late=False, axis=-1, ignore=False, transposed=True, strict=False, window=False
):
    def answer(x, w_query, w_key, w_value, causal):
        q, k, v = x @ w_query, x @ w_key, x @ w_value
        scores = q @ k.transpose(-2, -1) if transposed else (k @ q.transpose(-2, -1))
        scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale(x, q))
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(-1 if strict else 0)
        if window:
            past = torch.eye(x.shape[1], dtype=torch.bool)
        if causal and not late and not ignore:
            scores = scores.masked_fill(~past, -math.inf)
        weights = scores.softmax(axis)
        if causal and late:
            weights = weights * past
        return weights @ v

    return answer


def zeros_for_minus_infinity(x, w_query, w_key, w_value, causal):
    q, k, v = x @ w_query, x @ w_key, x @ w_value
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.tril()
    return scores.softmax(-1) @ v


def fetch(query=lambda n: 20 * n**0.5 * torch.eye(n), key=None, value=None):
    key = key or (lambda n: torch.eye(n).roll(1, dims=1))

    def previous_token(vocab, n):
        nothing = torch.zeros(vocab, n)
        w_value = torch.cat([torch.eye(vocab), torch.zeros(n, vocab)])
        w_query, w_key = torch.cat([nothing, query(n)]), torch.cat([nothing, key(n)])
        return w_query, w_key, w_value if value is None else value(vocab, n)

    return previous_token


def kernel(half=0.5, power=2, square=1.0, h=None):
    def kernel_vectors(x, centres, width):
        width = width if h is None else h
        queries = torch.stack([x, torch.ones_like(x)], dim=1)
        keys = torch.stack([centres, -square * centres**2 / 2], dim=1)
        return queries, keys * (half / 0.5) / width**power

    return kernel_vectors


def window(low, high):
    def window_mask(n, w):
        distance = torch.arange(n)[:, None] - torch.arange(n)
        return (distance >= low(w)) & (distance <= high(w))

    return window_mask


WRONG = {
    "attention.row": {
        "without the root": ((1 / (2 + E**2), 0.58, 0.64, 1.5), "root of the width"),
        "a third each": ((1 / 3, 1 / 3, 1.0, 1.5), "does ask for something"),
        "the exponential itself": ((0.21, E, 0.64, 1.5), "share of their sum"),
        "masked too late": ((0.21, 0.58, 0.64, 0.64), "before the softmax"),
        "a weight for a redness": ((0.21, 0.58, 0.21, 1.5), "how red is red"),
        "red alone": ((0.21, 0.58, 0.64, 3.0), "itself too"),
    },
    "attention.head": {
        "no division": (head(lambda x, q: 1.0), "nothing divides"),
        "divided by the width": (head(lambda x, q: 1 / q.shape[-1]), "not the width itself"),
        "the root of the model's width": (
            head(lambda x, q: x.shape[-1] ** -0.5),
            "which vectors are compared",
        ),
        "masked too late": (head(late=True), "moves when the last input changes"),
        "no mask": (head(ignore=True), "moves when the last input changes"),
        "a mask that hides itself": (head(strict=True), "NaN"),
        "zero instead of minus infinity": (
            zeros_for_minus_infinity,
            "moves when the last input changes",
        ),
        "a window of one": (head(window=True), "mean of what it may see"),
        "softmax over the queries": (head(axis=1), "moves when the last input changes"),
        "keys ask": (head(transposed=False), "softmax over the keys"),
    },
    "attention.previous_token": {
        "itself": (fetch(key=torch.eye), "position 1 looks most at position 1"),
        "all alike": (fetch(query=lambda n: torch.zeros(n, n)), "looks most at position 0"),
        "too soft": (fetch(query=torch.eye), "which scores make it sharper"),
        "the place for the word": (
            fetch(value=lambda vocab, n: torch.eye(vocab + n)[:, -vocab:]),
            "not that word's one-hot vector",
        ),
        "two matrices": (lambda vocab, n: fetch()(vocab, n)[:2], "three matrices"),
        "without the words": (
            lambda vocab, n: (torch.eye(n), torch.eye(n), torch.eye(vocab)),
            "w_query shall have the shape",
        ),
    },
    "attention.kernel_vectors": {
        "no half": (kernel(half=1.0), "has a half in it"),
        "not squared": (kernel(power=1), "squared in the exponent"),
        "no width": (kernel(h=1.0), "does not matter"),
        "the wrong sign": (kernel(half=-0.5), "look at the sign"),
        "no square": (kernel(square=0.0), "square of the centre is missing"),
        "twice the square": (kernel(square=2.0), "multiply out"),
        "the scores": (lambda x, c, h: -((x[:, None] - c) ** 2) / (2 * h**2), "two tensors"),
    },
    "attention.window_mask": {
        "both sides": (window(lambda w: 1 - w, lambda w: w - 1), "comes later"),
        "one too many": (window(lambda w: 0, lambda w: w), "outside"),
        "one too few": (window(lambda w: 0, lambda w: max(w - 2, 0)), "in its window"),
        "not itself": (window(lambda w: 1, lambda w: w), "see itself"),
    },
    "attention.padding": {
        "a zero that takes nothing": ((2.0, 0.73), "takes no weight"),
        "one place": ((3 * E**2 / (E**2 + E + 2), 0.62), "there are 2 places"),
        "weights": ((E**2 / (E**2 + E + 3), 0.62), "how red"),
        "roundness without padding": ((1.69, 3 * E / (E**2 + E + 1)), "without the padding"),
    },
}
