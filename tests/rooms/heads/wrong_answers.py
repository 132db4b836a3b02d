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


def circuit(*, query, key, value, output, sharp=20.0):
    """A head over the stream of the exercises: token, place, note and answer, 22 entries."""
    eye = torch.eye(22, dtype=torch.float64)

    def matrix(part):
        return eye[:, part] if isinstance(part, slice) else part

    return lambda: (sharp * matrix(query), matrix(key), matrix(value), eye[output])


TOKEN, PLACE, NOTE, SAID = slice(0, 5), slice(5, 12), slice(12, 17), slice(17, 22)
BACK = torch.eye(22, dtype=torch.float64)[:, PLACE] @ torch.diag(torch.ones(6).double(), -1)
LOOKS_BACK = {"query": BACK, "key": PLACE, "value": TOKEN, "output": NOTE}
MATCHES = {"query": TOKEN, "key": NOTE, "value": TOKEN, "output": SAID}


def score(A, B):
    return (A @ B).norm() / (A.norm() * B.norm())


WRONG = {
    "heads.split": {
        "straight": (
            lambda x, n: x.reshape(x.shape[0], n, x.shape[1], -1),
            "mixes positions with heads",
        ),
        "taking turns": (
            lambda x, n: x.unflatten(-1, (-1, n)).permute(0, 3, 1, 2),
            "heads take turns",
        ),
        "no swap": (lambda x, n: x.unflatten(-1, (n, -1)), "shall have the shape (2, 3, 4, 5)"),
        "heads backwards": (
            lambda x, n: x.unflatten(-1, (n, -1)).transpose(1, 2).flip(1),
            "another head or position",
        ),
    },
    "heads.merge": {
        "straight": (
            lambda m: m.reshape(m.shape[0], m.shape[2], -1),
            "several positions of one head",
        ),
        "taking turns": (
            lambda m: m.permute(0, 2, 3, 1).flatten(-2),
            "do not stand side by side",
        ),
        "no merge": (lambda m: m.transpose(1, 2), "shall have the shape (2, 4, 15)"),
    },
    "heads.previous_token": {
        "itself": (circuit(**LOOKS_BACK | {"query": PLACE}), "looks at its own position"),
        "the next one": (
            circuit(**LOOKS_BACK | {"query": PLACE, "key": BACK}),
            "gives the position before it only",
        ),
        "too soft": (circuit(**LOOKS_BACK, sharp=3.0), "sharper!"),
        "over the token": (circuit(**LOOKS_BACK | {"output": TOKEN}), "outside the entries 12"),
        "the place noted": (
            circuit(**LOOKS_BACK | {"value": slice(5, 10)}),
            "not the token one place back",
        ),
        "three matrices": (lambda: (BACK, BACK, BACK), "expected four matrices"),
        "another stream": (
            lambda: (torch.eye(7), torch.eye(7), torch.eye(7), torch.eye(7)),
            "shall have the shape (22, 7)",
        ),
    },
    "heads.induction": {
        "the copy itself": (
            circuit(**MATCHES | {"key": TOKEN}),
            "looks at copies of its own token",
        ),
        "by its note": (circuit(**MATCHES | {"query": NOTE, "key": TOKEN}), "should look behind"),
        "too soft": (circuit(**MATCHES, sharp=2.0), "should look behind"),
        "the note said": (circuit(**MATCHES | {"value": NOTE}), "says another token"),
        "over the note": (circuit(**MATCHES | {"output": NOTE}), "outside the entries 17"),
    },
    "heads.terms": {
        "blocks in another order": (blocks_in_another_order, "do not add up"),
        "columns of the heads take turns": (heads_take_turns, "only other heads' outputs change"),
        "equal shares": (equal_shares, "only other heads' outputs change"),
        "a constant": (equal_corrections, "although its own output is zero"),
        "the sum": (lambda o, W, n: o @ W, "shall have the shape (3, 4, 6)"),
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
