"""Mistakes in the exercises on entropy as a signal."""

import math

import numpy as np

HALF = (math.log(2) + math.log(7) / 2) / math.log(8)


def _strict(failed, others):
    return (failed[:, None] > others[None, :]).mean()


def _means(failed, others):
    return (np.sign(failed.mean() - others.mean()) + 1) / 2


WRONG = {
    "entropy_signal.rows": {
        "nats": ((math.log(2), 0.0, HALF), "largest value"),
        "share of keys": ((0.25, 0.0, HALF), "counts doublings"),
        "even": ((1.0, 0.0, HALF), "all eight"),
        "one is even": ((1 / 3, 1.0, HALF), "least even"),
        "a share": ((1 / 3, 1 / 8, HALF), "is zero"),
        "nats again": ((1 / 3, 0.0, HALF * math.log(8)), "largest value"),
        "half": ((1 / 3, 0.0, 0.5), "not half the entropy"),
        "a seventh": (
            (1 / 3, 0.0, (math.log(2) / 2 + math.log(7) / 2) / math.log(8)),
            "share a half",
        ),
    },
    "entropy_signal.curve": {
        "mirrored": (lambda failed, others: 1 - _strict(failed, others), "*other* one"),
        "ties lost": (_strict, "ties"),
        "means": (_means, "every"),
    },
    "entropy_signal.ends": {
        "low is a sign": ((1.0, 0.75, 1.0), "highest entropies"),
        "never": ((0.0, 0.75, 1.0), "do have the lowest"),
        "the other sign": ((0.5, 0.25, 1.0), "high entropy"),
        "as before": ((0.5, 0.5, 1.0), "three quarters lie"),
        "sides": ((0.5, 0.75, 0.5), "which side"),
        "one side": ((0.5, 0.75, 0.75), "far away, too"),
    },
}
