"""Mistakes in the exercise on a learned sink and an output gate."""

import math

WEIGHT = 20 / (20 + math.exp(5))
GATE = math.log(20) - 5
FOUND = math.exp(9) / (math.exp(9) + 19 + math.exp(5))

WRONG = {
    "ways_to_write_nothing.quiet": {
        "what the sink gets": ((1 - WEIGHT, GATE, FOUND), "what the sink gets"),
        "no exponential": ((20 / 25, GATE, FOUND), "by its exponential"),
        "one key": ((WEIGHT / 20, GATE, FOUND), "all get together"),
        "the sign": ((WEIGHT, -GATE, FOUND), "mind the sign"),
        "the gate itself": ((WEIGHT, WEIGHT, FOUND), "as its sigmoid"),
        "one key's log-odds": ((WEIGHT, -5, FOUND), "has an exponential"),
        "no sink": ((WEIGHT, GATE, math.exp(9) / (math.exp(9) + 19)), "without the sink"),
        "what it does not get": ((WEIGHT, GATE, 1 - FOUND), "does not get"),
        "as before": ((WEIGHT, GATE, 0.5), "has changed"),
        "nothing right": ((0.5, GATE, FOUND), "count the exponentials"),
    },
}
