"""Mistakes in the exercises on longer sequences."""

WRONG = {
    "positions.turned_pairs": {
        "counted from one": (20, "from i = 0"),
        "a radian": (27, "one radian"),
        "the exponent of a dimension": (11, "exponent"),
        "a half": (20.5, "whole"),
        "all": (32, "compare"),
    },
    "positions.gaps": {
        "no gap outside": ((512 / 32, 512 / 256), "as well"),
        "from end to end": ((511 / 31, 511 / 255), "need not be"),
        "between": ((15.0, 1.0), "at least one away"),
        "only the second": ((513 / 33, 1.5), "all alike"),
    },
}
