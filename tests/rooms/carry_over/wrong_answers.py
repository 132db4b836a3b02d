"""Mistakes in the exercises of *What carries over*."""

WRONG = {
    "carry_over.outcome": {
        "only what is confirmed carries over": (
            lambda small, real: (
                "undecided"
                if real == "inconclusive"
                else "carries over"
                if small == real == "confirmed"
                else "does not"
            ),
            "missing in both models",
        ),
        "the same word is asked for": (
            lambda small, real: (
                "undecided"
                if real == "inconclusive"
                else "carries over"
                if small == real
                else "does not"
            ),
            "missing in both models",
        ),
        "an undecided row is lost": (
            lambda small, real: (
                "carries over" if (small == "confirmed") == (real == "confirmed") else "does not"
            ),
            "decides nothing",
        ),
    },
    "carry_over.chance": {
        "yes alone": ((0.25, 0.49), "both may say no"),
        "only the second": ((0.5, 0.49), "both may say no"),
    },
}
