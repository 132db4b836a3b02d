"""Mistakes in the exercises on probes and lenses."""

import math
from itertools import pairwise

import torch


def _projection(states, labels):
    c = states[labels == 1].mean(0) - states[labels == 0].mean(0)
    c = c / c.norm()
    return states - ((states - states.mean(0)) @ c)[:, None] * c


def _uncentred(states, labels):
    x = states - states.mean(0)
    c = states[labels == 1].mean(0) - states[labels == 0].mean(0)
    reader = torch.linalg.solve(x.T @ x / len(x), c)
    return states - (states @ reader)[:, None] * c / (c @ reader)


def _nullspace(states, labels):
    x = states - states.mean(0)
    c = states[labels == 1].mean(0) - states[labels == 0].mean(0)
    reader = torch.linalg.solve(x.T @ x / len(x), c)
    reader = reader / reader.norm()
    return states - (x @ reader)[:, None] * reader


def _in(log, first=1.0, shifted=0):
    def code(labels, fit, portions):
        bits = first * portions[0]
        for known, end in pairwise(portions):
            ones = fit(end if shifted else known)
            bits -= sum(log(ones[i] if labels[i] else 1 - ones[i]) for i in range(known, end))
        return float(bits)

    return code


WRONG = {
    "probes.by_heart": {
        "chance": ((0.5, 0.0, 0.5), "which word it is"),
        "control at chance": ((1.0, 0.5, 0.5), "not at chance"),
        "others known": ((1.0, 0.0, 1.0), "it has not"),
    },
    "probes.leace": {
        "nothing": (lambda states, labels: states, "still differ"),
        "projection": (_projection, "are enough"),
        "one round of INLP": (_nullspace, "still differ"),
        "not centred": (_uncentred, "less the mean"),
        "one entry": (lambda states, labels: states[:, :1], "shape"),
    },
    "probes.online_code": {
        "nats": (_in(math.log, math.log(2)), "nats"),
        "nothing for the first": (_in(math.log2, 0.0), "one bit a label"),
        "fitted on what is sent": (_in(math.log2, 1.0, 1), "before it"),
    },
}
