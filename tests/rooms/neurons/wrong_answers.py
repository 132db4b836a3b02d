"""Mistakes in the exercises on neurons as keys and values."""

import torch
from torch.nn import functional as F


def _f1(named, strong, order=("p", "r"), mean=None):
    both = sum(a and b for a, b in zip(named, strong, strict=True))
    p, r = both / sum(named), both / sum(strong)
    f = mean(p, r) if mean else 2 * p * r / (p + r) if both else 0.0
    return {"p": p, "r": r}[order[0]], {"p": p, "r": r}[order[1]], f


def _held(x, keys, key_biases, values, bias, i, level, *, how="set", inside=1, after=1):
    says = (x @ keys.T + inside * key_biases).relu()
    if how == "set":
        says[:, i] = level
    elif how == "silent":
        says[:, i] = 0
    elif how == "add":
        says[:, i] += level
    return says @ values + after * bias


def _looked_up(read, says, kept, *, best=False, unread=None):
    mean = sum(says) / len(says) if unread is None else unread
    found = []
    for sign in kept:
        own = [said for other, said in zip(read, says, strict=True) if other == sign]
        found.append((max(own) if best else sum(own) / len(own)) if own else mean)
    return found


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
    "neurons.held": {
        "untouched": (lambda *a: _held(*a, how="not"), "would have said"),
        "silent": (lambda *a: _held(*a, how="silent"), "is silent"),
        "added": (lambda *a: _held(*a, how="add"), "not added"),
        "no last bias": (lambda *a: _held(*a, after=0), "last bias"),
        "no first bias": (lambda *a: _held(*a, inside=0), "biases of the keys"),
        "sign": (lambda *a: -_held(*a), "one neuron at a time"),
    },
    "neurons.looked_up": {
        "largest": (lambda *a: _looked_up(*a, best=True), "the largest"),
        "zero for unread": (lambda *a: _looked_up(*a, unread=0.0), "overall mean"),
        "overall mean": (lambda r, s, k: [sum(s) / len(s)] * len(k), "at this character"),
        "one number": (lambda r, s, k: sum(s), "one for each"),
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
