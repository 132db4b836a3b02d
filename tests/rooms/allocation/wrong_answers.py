"""Mistakes in the exercises on attention as a budget."""

import math

LEAD = math.log(9) + math.log(999)
MASS = 1 / (1 + 7999 * math.exp(-LEAD))
MORE = math.log(7999 / 999)

WRONG = {
    "allocation.needle": {
        "log-odds alone": ((math.log(9), MASS, MORE, 0.9), "how many others"),
        "others alone": ((math.log(999), MASS, MORE, 0.9), "what mass"),
        "the wrong logarithm": ((math.log10(9 * 999), MASS, MORE, 0.9), "natural logarithm"),
        "an eighth of the mass": ((LEAD, 0.9 / 8, MORE, 0.9), "odds change"),
        "the whole lead": ((LEAD, MASS, LEAD + MORE, 0.9), "has to be added"),
        "one of eight": ((LEAD, MASS, MORE, 0.9 / 8), "together"),
        "the mass as it was": ((LEAD, 0.9, MORE, 0.9), "number of others"),
    },
    "allocation.cancel": {
        "a difference": (lambda a, b: (1.0, -1.0), "still come through"),
        "exchanged": (lambda a, b: (-(1 - a) / (a - b), (1 - b) / (a - b)), "still come through"),
        "not scaled": (lambda a, b: (1.0, -(1 - a) / (1 - b)), "needed mean comes out"),
        "one number": (lambda a, b: 1 / a, "shape (2,)"),
    },
    "allocation.count": {
        "the start counted": (lambda weight: 1 / weight, "start token itself"),
        "the weight": (lambda weight: weight, "with 1 marked"),
        "the odds upside down": (lambda weight: weight / (1 - weight + 1e-9), "with 3 marked"),
    },
}
