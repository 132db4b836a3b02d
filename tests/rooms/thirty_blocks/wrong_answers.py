"""Mistakes in the exercises of *Thirty blocks*."""

import math

import torch
from torch.nn.functional import cosine_similarity


def _angle(before, after):
    return cosine_similarity(before, after, dim=-1).arccos().mean()


WRONG = {
    "thirty_blocks.growth": {
        "adding": ((2.26, 0.9578), "multiplies"),
        "ratio": ((1.045**28, 0.3), "asked for is a cosine"),
        "angle": ((1.045**28, math.atan(0.3)), "its cosine"),
    },
    "thirty_blocks.angle": {
        "cosine": (lambda b, a: cosine_similarity(b, a, dim=-1).mean(), "that is the cosine"),
        "distance": (lambda b, a: 1 - cosine_similarity(b, a, dim=-1).mean(), "no angle"),
        "radians": (_angle, "divide by pi"),
        "degrees": (lambda b, a: _angle(b, a) * 180 / math.pi, "not in degrees"),
        "one": (
            lambda b, a: cosine_similarity(b.flatten(), a.flatten(), dim=0).arccos() / math.pi,
            "one angle for each text",
        ),
    },
    "thirty_blocks.repaired": {
        "sign": (
            lambda d, f, t: torch.stack(((f - d).sum() / d.sum(), (t - f).sum() / f.sum())),
            "mind the sign",
        ),
        "ratios": (
            lambda d, f, t: torch.stack((((d - f) / d).mean(), ((f - t) / f).mean())),
            "sum over the blocks first",
        ),
        "of the direct": (
            lambda d, f, t: torch.stack(((d - f).sum() / d.sum(), (f - t).sum() / d.sum())),
            "at a frozen norm",
        ),
    },
}
