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


WRONG = {
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
