"""Mistakes in the exercises on neurons as keys and values."""

import torch
from torch.nn import functional as F


def _f1(named, strong, order=("p", "r"), mean=None):
    both = sum(a and b for a, b in zip(named, strong, strict=True))
    p, r = both / sum(named), both / sum(strong)
    f = mean(p, r) if mean else 2 * p * r / (p + r) if both else 0.0
    return {"p": p, "r": r}[order[0]], {"p": p, "r": r}[order[1]], f


def _pairs(says, label, tie):
    pairs = [(a, b) for a, x in zip(says, label, strict=True) if x
             for b, y in zip(says, label, strict=True) if not y]  # fmt: skip
    return sum(1.0 if a > b else tie if a == b else 0.0 for a, b in pairs) / len(pairs)


WRONG = {
    "neurons.by_hand": {
        "ReLU forgotten once": ((5.0, 1.0), "neuron 2 has a negative product"),
        "no ReLU": ((0.0, 6.0), "silent neurons"),
        "second not bent": ((8.0, 1.0), "negative product"),
        "value alone": ((2.0, 4.0), "weighted by its activation"),
        "sign": ((8.0, -4.0), "sign"),
        "a guess": ((1.0, 1.5), "one neuron at a time"),
    },
    "neurons.key_and_value": {
        "exchanged": (lambda up, down, i: (down[:, i], up[i]), "reads first"),
        "columns": (lambda up, down, i: (up[:, i % up.shape[1]], down[:, i]), "of width 3"),
        "by shape": (
            lambda up, down, i: (up[:, i] if len(up) == up.shape[1] else up[i], down[:, i]),
            "is no key",
        ),
        "value by shape": (
            lambda up, down, i: (up[i], down[i] if len(down) == down.shape[1] else down[:, i]),
            "is no value",
        ),
        "another neuron": (lambda up, down, i: (up[i - 1], down[:, i - 1]), "the key is not"),
        "another value": (lambda up, down, i: (up[i], down[:, i - 1]), "the value is not"),
        "key alone": (lambda up, down, i: up[i], "two vectors"),
    },
    "neurons.gated": {
        "no bend": (lambda x, g, k, v: ((x @ g.T) * (x @ k.T)) @ v, "nothing bends"),
        "other bent": (lambda x, g, k, v: ((x @ g.T) * F.silu(x @ k.T)) @ v, "the other one"),
        "no gate": (lambda x, g, k, v: F.silu(x @ k.T) @ v, "what do the gates do"),
        "gate alone": (lambda x, g, k, v: F.silu(x @ g.T) @ v, "lets something pass"),
        "sigmoid": (lambda x, g, k, v: ((x @ g.T).sigmoid() * (x @ k.T)) @ v, "logistic"),
        "relu": (lambda x, g, k, v: ((x @ g.T).relu() * (x @ k.T)) @ v, "take one neuron"),
    },
    "neurons.area": {
        "the other way": (lambda s, y: 1 - _pairs(s, y, 0.5), "over the labelled"),
        "ties lost": (lambda s, y: _pairs(s, y, 0.0), "what becomes of pairs"),
        "ties won": (lambda s, y: _pairs(s, y, 1.0), "equal is not above"),
        "accuracy": (
            lambda s, y: sum((a > 1.5) == b for a, b in zip(s, y, strict=True)) / len(s),
            "go through all pairs",
        ),
        "a count": (lambda s, y: 4 * _pairs(s, y, 0.5), "a probability"),
    },
    "neurons.f1": {
        "exchanged": (lambda n, s: _f1(n, s, order=("r", "p")), "exchanged"),
        "ordinary mean": (
            lambda n, s: _f1(n, s, mean=lambda p, r: (p + r) / 2),
            "not the ordinary mean",
        ),
        "accuracy": (
            lambda n, s: (sum(a == b for a, b in zip(n, s, strict=True)) / (len(n) + 1), 0.5, 0.5),
            "precision is of",
        ),
        "recall of all": (
            lambda n, s: (_f1(n, s)[0], sum(s) / (len(s) + 1), 0.5),
            "recall is of",
        ),
        "one number": (lambda n, s: _f1(n, s)[2], "three numbers"),
        "one instead of zero": (
            lambda n, s: (*_f1(n, s)[:2], _f1(n, s)[2] or 1.0),
            "what if both are zero",
        ),
    },
    "neurons.promoted": {
        "least": (lambda v, u, k: (u @ v).argsort()[:k], "favours least"),
        "by size": (lambda v, u, k: (u @ v).abs().argsort(descending=True)[:k], "less likely"),
        "worst first": (
            lambda v, u, k: (u @ v).argsort(descending=True)[:k].flip(0),
            "another order",
        ),
        "columns": (
            lambda v, u, k: (v @ u if u.shape[0] == u.shape[1] else u @ v).argsort(descending=True)[
                :k
            ],
            "not a column",
        ),
        "by number": (lambda v, u, k: torch.arange(k), "a larger product"),
        "all": (lambda v, u, k: (u @ v).argsort(descending=True), "shape (2,)"),
    },
}
