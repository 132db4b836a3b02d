"""Mistakes in the exercises on very deep models."""

import math

_ANGLE = math.atan(1 / math.sqrt(96))

WRONG = {
    "very_deep.runs_needed": {
        "not rounded": (lambda share, doubt: math.log(doubt) / math.log(share), "whole number"),
        "rounded down": (lambda share, doubt: int(math.log(doubt) / math.log(share)), "by luck"),
        "one more": (lambda share, doubt: int(math.log(doubt) / math.log(share)) + 2, "fewer"),
        "the other end": (
            lambda share, doubt: math.ceil(math.log(1 - doubt) / math.log(share)),
            "too unlikely",
        ),
        "of failures": (
            lambda share, doubt: math.ceil(math.log(doubt) / math.log(1 - share)),
            "failures",
        ),
    },
    "very_deep.blocks_to_sameness": {
        "a line": (
            lambda factor, smallest: math.ceil((1 - smallest) / (1 - factor)),
            "not of what was",
        ),
        "one short": (
            lambda factor, smallest: math.ceil(math.log(smallest) / math.log(factor) - 1e-9) - 1,
            "is left then",
        ),
        "twice": (
            lambda factor, smallest: 2 * math.ceil(math.log(smallest) / math.log(factor) - 1e-9),
            "earlier",
        ),
        "not rounded": (
            lambda factor, smallest: math.log(smallest) / math.log(factor) + 0.5,
            "whole",
        ),
    },
    "very_deep.deep_norm_share": {
        "post-norm": (lambda layers: 4.0**-layers, "plain post-norm"),
        "pre-norm": (lambda layers: 1 / (1 + 2 * layers), "that is pre-norm"),
        "one sublayer a block": (
            lambda layers: (math.sqrt(2 * layers) / (1 + math.sqrt(2 * layers))) ** layers,
            "writes twice",
        ),
        "lengths": (
            lambda layers: ((2 * layers) ** 0.25 / (1 + (2 * layers) ** 0.25)) ** (2 * layers),
            "add as squares",
        ),
        "root": (
            lambda layers: (math.sqrt(2 * layers) / (1 + math.sqrt(2 * layers))) ** layers * 1.01,
            "after the next",
        ),
    },
    "very_deep.last_turn": {
        "radians": (_ANGLE, "radians"),
        "no root": (math.degrees(math.atan(1 / 96)), "at right angles"),
        "straight up": (90.0, "the sum turn"),
        "first block": (45.0, "has grown"),
        "the other angle": (90 - math.degrees(_ANGLE), "the sum and the write"),
        "one write too many": (math.degrees(math.atan(1 / math.sqrt(97))), "near it"),
        "one write too few": (math.degrees(math.atan(1 / math.sqrt(95))), "near it"),
        "half of it": (3.0, "triangle"),
    },
}
