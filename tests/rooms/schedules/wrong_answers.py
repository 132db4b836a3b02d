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


def falling(step, steps, warmup, decay, fall):
    if step >= steps - decay:
        return fall((step - steps + decay) / decay)
    return min(1.0, (step + 1) / max(1, warmup))


def second_sum(rates, kept):
    momentum = total = 0.0
    before, found = rates[0], []
    for rate in rates:
        momentum, before = kept * momentum + before - rate, rate
        total += momentum
        found.append(total)
    return found


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
    "schedules.bounce": {
        "side to side": (lambda rate: 2 * rate / (2 - rate), "from one side to the other"),
        "the height": (lambda rate: (rate / (2 - rate)) ** 2 / 2, "at a rate of 1"),
        "half the rate": (lambda rate: rate / 2, "at a rate of 1"),
        "the rate": (lambda rate: rate, "does not lead to"),
        "below the floor": (lambda rate: -rate / (2 - rate), "not negative"),
    },
    "schedules.cooled": {
        "a straight line": (
            lambda s, n, w, d: falling(s, n, w, d, lambda u: 1 - u),
            "straight line",
        ),
        "the wrong root": (
            lambda s, n, w, d: falling(s, n, w, d, lambda u: (1 - u) ** 0.5),
            "root of one minus",
        ),
        "one step early": (
            lambda s, n, w, d: falling(s, n, w, d, lambda u: 1 - (u + 1 / d) ** 0.5),
            "one step late or early",
        ),
        "no warm-up": (lambda s, n, w, d: falling(s, n, 1, d, lambda u: 1 - u**0.5), "warm-up"),
        "from zero": (
            lambda s, n, w, d: (
                s / w if s < w <= n - d else falling(s, n, 1, d, lambda u: 1 - u**0.5)
            ),
            "rate of zero",
        ),
        "twice": (lambda s, n, w, d: 2 * falling(s, n, w, d, lambda u: 1 - u**0.5), "above 1"),
    },
    "schedules.area": {
        "rises": (
            lambda rates, kept: [-one for one in second_sum(rates, kept)],
            "counts as positive",
        ),
        "the momenta": (
            lambda rates, kept: np.diff(second_sum(rates, kept), prepend=0.0).tolist(),
            "adds them up",
        ),
        "nothing kept": (
            lambda rates, kept: [rates[0] - rate for rate in rates],
            "nothing is kept",
        ),
        "one missing": (lambda rates, kept: second_sum(rates, kept)[1:], "rates have"),
        "all kept": (lambda rates, kept: second_sum(rates, 1.0), "kept give"),
    },
}
