"""Mistakes in the exercises on many heads."""

import torch


def blocks_in_another_order(concatenated, W_O, n_heads):
    outputs = concatenated.unflatten(1, (n_heads, -1)).transpose(0, 1)
    return outputs @ W_O.unflatten(0, (n_heads, -1)).flip(0)


def heads_take_turns(concatenated, W_O, n_heads):
    outputs = concatenated.unflatten(1, (-1, n_heads)).permute(2, 0, 1)
    return outputs @ W_O.unflatten(0, (-1, n_heads)).transpose(0, 1)


def equal_shares(concatenated, W_O, n_heads):
    return (concatenated @ W_O / n_heads).expand(n_heads, -1, -1)


def equal_corrections(concatenated, W_O, n_heads):
    outputs = concatenated.unflatten(1, (n_heads, -1)).transpose(0, 1)
    found = outputs @ W_O.unflatten(0, (n_heads, -1))
    found[0] += 1.0
    found[-1] -= 1.0
    return found


def score(A, B):
    return (A @ B).norm() / (A.norm() * B.norm())


WRONG = {
    "heads.terms": {
        "blocks in another order": (blocks_in_another_order, "do not add up"),
        "columns of the heads take turns": (heads_take_turns, "only other heads' outputs change"),
        "equal shares": (equal_shares, "only other heads' outputs change"),
        "a constant": (equal_corrections, "although its own output is zero"),
        "the sum": (lambda o, W, n: o @ W, "shall have the shape (3, 4, 6)"),
    },
    "heads.choices": {
        "the width": ((768, 768 * 768, 94208), "that is the width of the stream"),
        "a factor": ((64, 768 * 64, 94208), "one of its two factors"),
        "both factors": ((64, 768 * 768, 2 * 768 * 64), "some changes of them cancel"),
        "all entries": ((64, 768 * 768, 768 * 768), "full rank"),
    },
    "heads.blend": {
        "evenly": ((0.5, 0.5), "the tokens a, b is that of b, a"),
        "only one": ((1.0, 0.0), "not looked at"),
        "no pattern": ((0.7, 0.7), "sum to one"),
        "a difference": ((1.5, -0.5), "never negative"),
    },
    "heads.virtual": {
        "like one head": ((0.5, 0.5, 0.0), "over how many paths"),
        "evenly": ((1 / 3, 1 / 3, 1 / 3), "over how many paths"),
        "paths without weights": ((1, 2, 1), "sum to one"),
    },
    "heads.excess": {
        "no baseline": (score, "in a stream of width 4"),
        "no sizes": (lambda A, B: 2 * (A @ B).norm(), "how large the two matrices are"),
        "the other order": (
            lambda A, B: score(B.T, A.T) * A.shape[0] ** 0.5,
            "rather than 1",
        ),
        "a constant": (lambda A, B: 2.0, "B reads nothing of what A writes"),
        "spectral norms": (
            lambda A, B: (
                2
                * torch.linalg.matrix_norm(A @ B, 2)
                / (torch.linalg.matrix_norm(A, 2) * torch.linalg.matrix_norm(B, 2))
            ),
            "rather than 1",
        ),
    },
}
