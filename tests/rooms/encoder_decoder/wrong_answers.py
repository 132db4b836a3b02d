"""Mistakes in the exercises on encoder and decoder."""

import torch


def _head(asking, asked, told, real):
    scores = asking @ asked.transpose(-1, -2) / asking.shape[-1] ** 0.5
    if real is not None:
        scores = scores.masked_fill(~real[:, None], -torch.inf)
    return scores.softmax(-1) @ told


def _counted(links, right):
    agree = sum(a == b for a, b in zip(links, right, strict=True))
    return agree, len(links), sum(b >= 0 for b in right)


def _f_score(links, right):
    agree, made, known = _counted(links, right)
    return 2 * agree / (made + known)


def _recall(links, right):
    agree, _, known = _counted(links, right)
    return 1 - agree / known


def _precision(links, right):
    agree, made, _ = _counted(links, right)
    return 1 - agree / made


def _half(links, right):
    agree, made, known = _counted(links, right)
    return 1 - agree / (made + known)


def _chosen(
    texts, penalty, *, score=lambda logs, penalty: sum(logs) / len(logs) ** penalty, ended=True
):
    scores = {i: score(logs, penalty) for i, (logs, done) in enumerate(texts) if done or not ended}
    return max(scores, key=scores.get)


WRONG = {
    "encdec.best_text": {
        "running texts": (lambda texts, p: _chosen(texts, p, ended=False), "has not ended"),
        "no penalty": (lambda texts, p: _chosen(texts, 0.0), "power of the penalty"),
        "multiplied": (lambda texts, p: _chosen(texts, -p), "power of the penalty"),
        "the least likely": (
            lambda texts, p: _chosen(texts, p, score=lambda logs, p: -sum(logs) / len(logs) ** p),
            "add up",
        ),
        "the first": (lambda texts, p: 0, "expected text"),
    },
    "encdec.counts": {
        "columns of the target": ((200, 648, 1), "columns belong to the source"),
        "rows of the source": ((648, 648, 1), "rows belong to the target"),
        "one head": ((45, 648, 1), "one head"),
        "the other attention": ((360, 360, 1), "asks itself"),
        "every word": ((360, 648, 5), "does the memory change"),
    },
    "encdec.cross": {
        "no mask": (lambda x, m, r, q, k, v: _head(x @ q, m @ k, m @ v, None), "padding"),
        "inverted": (lambda x, m, r, q, k, v: _head(x @ q, m @ k, m @ v, ~r), "nothing but"),
        "exchanged": (lambda x, m, r, q, k, v: _head(x @ k, m @ q, m @ v, r), "exchanged"),
        "unscaled": (
            lambda x, m, r, q, k, v: _head(x @ q * 5**0.5, m @ k, m @ v, r),
            "root of the head",
        ),
        "the source asks": (
            lambda x, m, r, q, k, v: _head(m @ q, x @ k, x @ v, None),
            "who asks",
        ),
        "a constant": (lambda x, m, r, q, k, v: torch.zeros(3, 4, 5).double(), "off by"),
        "no tensor": (lambda *_: 1.0, "expected a tensor"),
    },
    "encdec.error_rate": {
        "agreement": (_f_score, "one minus"),
        "recall": (_recall, "have no right one"),
        "precision": (_precision, "below the line"),
        "once": (_half, "counts twice"),
        "a constant": (lambda links, right: 2.0, "links are right"),
    },
}
