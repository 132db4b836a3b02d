"""Mistakes in the exercise on the position on its way through the layers."""

WRONG = {
    "positions.diluted": {
        "variance one": ((1 / 24, 2**-12), "not variance one"),
        "a quarter": ((1 / 96, 2**-12), "as large as it"),
        "by the variance": ((1 / 48, 2**-24), "standard deviation"),
        "no norm": ((1 / 48, 1 / 5), "each norm shrinks"),
        "one norm": ((1 / 48, 2**-0.5), "how often"),
    },
}
