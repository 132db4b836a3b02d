"""Mistakes in the exercises on heads and the grammar."""


def _shares(looked, ends, *, silent=False):
    there = (ends >= 0)[:, None]
    right = (looked == ends[:, None]) & there
    return right.sum((0, 2)) / (ends.numel() if silent else there.sum())


def _chosen(chosen_on, scored_on, *, silent=False):
    def answer(looked, ends):
        head = int(_shares(looked[chosen_on], ends[chosen_on]).argmax())
        return head, float(_shares(looked[scored_on], ends[scored_on], silent=silent)[head])

    return answer


EVEN, ODD = slice(0, None, 2), slice(1, None, 2)

WRONG = {
    "heads_and_grammar.offset": {
        "a count": ((3.0, 2 / 7, 0.75, 0.0), "how many are right"),
        "one prediction too few": ((6 / 7, 2 / 7, 0.75, 0.0), "word before them"),
        "predicted outside of the row": ((0.75, 0.25, 0.75, 0.0), "nothing is predicted"),
        "precision": ((0.75, 1 / 3, 0.75, 0.0), "arrows missed"),
        "all found": ((0.75, 2 / 7, 1.0, 0.25), "stands at 8"),
        "over the weaker offset": ((0.75, 2 / 7, 0.75, 0.75 - 2 / 7), "best offset is another"),
        "the score itself": ((0.75, 2 / 7, 0.75, 0.75), "difference"),
    },
    "heads_and_grammar.earlier": {
        "later": (lambda ends: [-1, *ends[:-1]], "wrong way"),
        "ahead kept": (lambda ends: [*ends[1:], -1], "points ahead"),
        "own place dropped": (
            lambda ends: [e if e < s else -1 for s, e in enumerate([*ends[1:], -1])],
            "from 1 to 0",
        ),
        "too short": (lambda ends: ends[1:], "list of 4 positions"),
    },
    "heads_and_grammar.chosen": {
        "chosen where it is scored": (_chosen(ODD, ODD), "rows it is scored on"),
        "chosen on all": (_chosen(slice(None), ODD), "best head of all rows"),
        "scored where it is chosen": (_chosen(EVEN, EVEN), "rows it was chosen on"),
        "all words": (_chosen(EVEN, ODD, silent=True), "without an arrow"),
        "the share alone": (lambda looked, ends: 0.5, "two things"),
        "the first head": (lambda looked, ends: (0, 0.0), "expected head"),
    },
    "heads_and_grammar.ceiling": {
        "own place forgotten": (
            lambda distances: sum(d < 0 for d in distances) / len(distances),
            "own position",
        ),
        "a head that may be silent": (
            lambda ds: 2 * sum(d <= 0 for d in ds) / (len(ds) + sum(d <= 0 for d in ds)),
            "at every start",
        ),
        "all": (lambda distances: 1.0, "expected 0.000"),
    },
}
