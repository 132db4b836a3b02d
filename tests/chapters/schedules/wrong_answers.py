"""Mistakes in the exercises on schedules."""

import numpy as np


def wasteful(schedule, rate, steps, *, share=0.9, part=0.05, of="sum"):
    spent = np.cumsum([rate * schedule(step) for step in range(steps)])
    whole = spent[-1] if of == "sum" else rate * steps
    return bool(spent[int(part * steps) - 1] >= share * whole)


def judged(**slip):
    return lambda schedule, rate, steps: wasteful(schedule, rate, steps, **slip)


def root(step, peak, warmup):
    return peak * min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)


WRONG = {
    "schedules.budget": {
        "the root counted from the warm-up": ((299.5, 0.632, 406.25), "steps of the ramp"),
        "the ramp forgotten": ((299.5, 0.632, 625), "spent a part"),
        "what is left": ((300, 0.368, 506), "what is left"),
        "per cent": ((300, 63.2, 506), "not per cent"),
        "the product": ((0.0048, 0.632, 506), "divide by the peak"),
    },
    "schedules.rescaled": {
        "from zero": (lambda s, p, w: p * min(s / w, (w / max(s, 1)) ** 0.5), "rate of zero"),
        "without a peak": (lambda s, p, w: root(s, 1.0, w), "times the peak"),
        "the width of the source": (
            lambda s, p, w: min((s + 1) ** -0.5, (s + 1) * w**-1.5) * 512**-0.5,
            "times the peak",
        ),
        "twice the warm-up": (lambda s, p, w: root(s, p, 2 * w), "comes at step"),
        "linear decay": (
            lambda s, p, w: p * min((s + 1) / w, w / (s + 1)),
            "four times as far",
        ),
    },
    "schedules.wasteful": {
        "against a constant rate": (judged(of="steps"), "exponential decay over 25 steps"),
        "a tenth": (judged(part=0.1), "just after a twentieth"),
        "all": (judged(share=0.99), "just before a twentieth"),
        "always": (lambda schedule, rate, steps: True, "a constant rate is called wasteful"),
        "a number": (lambda schedule, rate, steps: 0.04, "True or False"),
        "the rate itself": (
            lambda schedule, rate, steps: rate < 0.01 and wasteful(schedule, rate, steps),
            "with a rate of 3",
        ),
    },
    "schedules.pair_noise": {
        "the variance": (lambda a, b: a.var(ddof=1) + b.var(ddof=1), "is the variance"),
        "deviations added": (lambda a, b: a.std(ddof=1) + b.std(ddof=1), "do not add up"),
        "by n": (lambda a, b: (a.var() + b.var()) ** 0.5, "too small"),
        "of means": (
            lambda a, b: (a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)) ** 0.5,
            "two means",
        ),
        "paired": (lambda a, b: (a[: len(b)] - b[: len(a)]).std(ddof=1), "paired by seed"),
        "subtracted": (lambda a, b: abs(a.var(ddof=1) - b.var(ddof=1)) ** 0.5, "take noise away"),
        "one arm alone": (lambda a, b: a.std(ddof=1), "together"),
    },
}
