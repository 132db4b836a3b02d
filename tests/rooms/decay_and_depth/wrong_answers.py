"""Mistakes in the exercises on weight decay and on rates over depth."""

import math


def product(factors, by):
    return math.prod(1 - by * factor for factor in factors)


WRONG = {
    "decay_and_depth.left": {
        "without the peak": (lambda f, peak, decay, own: product(f, decay), "contains the peak"),
        "always the peak": (lambda f, peak, decay, own: product(f, peak * decay), "no part of it"),
        "no schedule": (
            lambda f, peak, decay, own: (1 - (decay if own else peak * decay)) ** len(f),
            "a factor of its own",
        ),
        "what is lost": (
            lambda f, peak, decay, own: 1 - product(f, decay if own else peak * decay),
            "is lost",
        ),
        "one step": (
            lambda f, peak, decay, own: 1 - (decay if own else peak * decay) * sum(f),
            "one after the other",
        ),
    },
    "decay_and_depth.rule_of_depth": {
        "one number": (lambda m, a: m ** (a - 1), "two numbers"),
        "the move": (lambda m, a: (m ** (1 - a), m ** (0.5 - a)), "undo it"),
        "squares": (lambda m, a: (m ** (a - 0.5), m ** (0.5 - a)), "not as squares"),
        "lengths": (lambda m, a: (m ** (a - 1), m ** (1 - a)), "at right angles"),
        "no rule": (lambda m, a: (m**-a, m ** (0.5 - a)), "another factor"),
        "no size": (lambda m, a: (m ** (a - 1), 3.0), "another size"),
    },
}
