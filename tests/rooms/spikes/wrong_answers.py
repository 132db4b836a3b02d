"""Mistakes in the exercises on loss spikes."""

from math import log


def silence(limit=38.0, ways=2.0, curvature=4.0):
    shrink = log(limit * 0.1 / (0.01 * curvature))
    return ways * shrink / -log(0.98), ways * shrink / -log(0.999)


HALF = log(2) / -log(0.98)


def clipped(power_q=0.5, power_k=0.5, cap_of=lambda largest, cap: min(1.0, cap / largest)):
    def qk_clip(w_q, w_k, largest, cap):
        factor = cap_of(largest, cap)
        return w_q * factor**power_q, w_k * factor**power_k

    return qk_clip


WRONG = {
    "spikes.silence": {
        "no root": ((*silence(ways=1.0), HALF), "under a root"),
        "plain descent": ((*silence(limit=2.0), HALF), "plain descent"),
        "no curvature": ((*silence(curvature=1.0), HALF), "where is the curvature"),
        "grows": ((-silence()[0], silence()[1], HALF), "positive"),
        "of the root": ((*silence(), 2 * HALF), "of its root"),
        "another memory": ((*silence(), 693.0), "that is for 0.999"),
    },
    "spikes.qk_clip": {
        "the whole factor twice": (clipped(1, 1), "its square"),
        "queries alone": (clipped(1, 0), "share the factor evenly"),
        "always": (clipped(cap_of=lambda largest, cap: cap / largest), "nothing needs to change"),
        "half": (clipped(0.25, 0.25), "by which factor"),
        "the product": (lambda q, k, largest, cap: q @ k.T, "two matrices"),
        "entries": (
            lambda q, k, largest, cap: (q.clamp(-1, 1), k.clamp(-1, 1)),
            "by one factor",
        ),
    },
}
