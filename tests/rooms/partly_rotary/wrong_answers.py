"""Mistakes in the exercise on what is new beyond the trained length."""

import math

TURN = 2 * math.pi * 10_000 ** (1 / 8)

WRONG = {
    "partly_rotary.new": {
        "all": ((256, 31, TURN), "some of these"),
        "those of training": ((64, 31, TURN), "the ones of training"),
        "from one": ((193, 31, TURN), "begin at 0"),
        "the window": ((192, 32, TURN), "the token itself"),
        "a radian": ((192, 31, TURN / 2 / math.pi), "two pi"),
        "the next pair": ((192, 31, 2 * math.pi * 10_000 ** (2 / 8)), "counted from 0"),
        "the slowest of all": ((192, 31, 2 * math.pi * 10_000 ** (7 / 8)), "does not turn"),
        "half of them": ((128, 31, TURN), "list the distances"),
        "everything": ((192, 255, TURN), "farthest"),
        "one turn": ((192, 31, 1.0), "base^(-i/pairs)"),
    },
}
