"""Mistakes in the exercises on gradients and where the norm stands."""

import math


def _to(length):
    return lambda gradients: [
        g / g.norm() * length([float(g.norm()) for g in gradients]) for g in gradients
    ]


def _sizes(first, writes):
    sizes = [first]
    for write in writes:
        sizes.append(math.hypot(sizes[-1], write))
    return sizes


def _lengths_added(first, writes):
    sizes = _sizes(first, writes)
    found = [1 / sizes[-1]]
    for size, write in zip(sizes[-2::-1], writes[::-1], strict=True):
        found.append(found[-1] * (1 + write / size))
    return found[::-1]


def _jacobian_without_diagonal(pattern, values, g):
    return -pattern * (pattern @ values @ g)


WRONG = {
    "norm_gradients.on_the_skip": {
        "squared": ((2.0**-24, 1.0), "squared length"),
        "one norm a block": ((2.0**-6, 1.0), "two sublayers"),
        "once": ((2.0**-0.5, 1.0), "one sublayer's factor"),
        "nothing": ((0.0, 1.0), "small, not zero"),
        "both": ((2.0**-12, 2.0**-12), "which norms lie"),
        "growth": ((2.0**-12, 5.0), "what stands on the skip path"),
    },
    "norm_gradients.tower": {
        "sizes": (lambda first, writes: _sizes(first, writes), "those are the sizes"),
        "no final norm": (
            lambda first, writes: [_sizes(first, writes)[-1] / s for s in _sizes(first, writes)],
            "without the final norm",
        ),
        "no branches": (
            lambda first, writes: [1 / _sizes(first, writes)[-1] for _ in _sizes(first, writes)],
            "comes back through the branches",
        ),
        "from the top": (
            lambda first, writes: [1 / s for s in _sizes(first, writes)][::-1],
            "the embedding comes first",
        ),
        "squared": (
            lambda first, writes: [1 / s**2 for s in _sizes(first, writes)],
            "squared lengths",
        ),
        "lengths added": (_lengths_added, "squared lengths that add up"),
        "one short": (lambda first, writes: [1 / s for s in _sizes(first, writes)][1:], "shape"),
        "sublayers counted": (
            lambda first, writes: [1 / (1 + k) ** 0.5 for k in range(len(writes) + 1)],
            "by hand",
        ),
    },
    "norm_gradients.score_gradient": {
        "no softmax": (lambda pattern, values, g: values @ g, "softmax is still to come"),
        "no normalisation": (
            lambda pattern, values, g: pattern * (values @ g),
            "lowers the other weights",
        ),
        "not weighted": (
            lambda pattern, values, g: values @ g - pattern @ values @ g,
            "hardly any weight",
        ),
        "half": (_jacobian_without_diagonal, "how each weight depends"),
    },
    "norm_gradients.rate_factors": {
        "once": ((3.0, 3.0), "V's gradient is W's times something"),
        "inverse": ((1 / 9, 3.0), "other way round"),
        "nothing": ((1.0, 3.0), "not W's"),
        "Adam as descent": ((9.0, 9.0), "does not see"),
        "Adam unmoved": ((9.0, 1.0), "W's step is not V's"),
    },
    "norm_gradients.equalise": {
        "arithmetic": (_to(lambda lengths: sum(lengths) / len(lengths)), "arithmetic mean"),
        "unit": (_to(lambda lengths: 1.0), "length one"),
        "largest": (_to(max), "all came out"),
        "not at all": (lambda gradients: gradients, "still differ"),
        "signs": (lambda gradients: [g.sign() for g in gradients], "another direction"),
        "one for all": (
            lambda gradients: [math.prod(float(g.norm()) for g in gradients)],
            "a list of 2",
        ),
    },
}
