"""Mistakes in the exercises on warm-up."""


def moves(gradients, beta1, beta2, *, correct=True, late=0, root=True, swap=False, sign=1):
    m = v = 0.0
    found = []
    if swap:
        beta1, beta2 = beta2, beta1
    for t, g in enumerate(gradients, start=1):
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        up, down = (1 - beta1 ** (t + late), 1 - beta2 ** (t + late)) if correct else (1, 1)
        found.append(sign * m / up / ((v / down) ** 0.5 if root else v / down))
    return found


def moved(**slip):
    return lambda gradients, beta1, beta2: moves(gradients, beta1, beta2, **slip)


def with_epsilon(gradients, beta1, beta2):
    return [one * (1 if max(gradients) < 50 else 0.99) for one in moves(gradients, beta1, beta2)]


WRONG = {
    "warm_up.moves": {
        "not corrected": (moved(correct=False), "corrected"),
        "corrected one step late": (moved(late=1), "corrected"),
        "no root": (moved(root=False), "a whole one"),
        "betas exchanged": (moved(swap=True), "move 2 is not Adam's"),
        "uphill": (moved(sign=-1), "reversed"),
        "a scale": (with_epsilon, "does not know their scale"),
        "one move missing": (lambda g, a, b: moves(g, a, b)[1:], "shall have the shape"),
    },
    "warm_up.limit": {
        "as without": (lambda beta: 2.0, "still shrinks"),
        "the reach": (lambda beta: 2 / (1 - beta), "still shrinks"),
        "the sum is not averaged": (lambda beta: 2 * (1 + beta), "still shrinks"),
        "twice": (lambda beta: 2 * (1 + beta) / (1 - beta) ** 2, "runs away"),
        "for plain descent": (lambda beta: 1.0, "plain descent"),
    },
    "warm_up.rise": {
        "from zero": (lambda step, w: min(1.0, step / w), "wasted"),
        "too far": (lambda step, w: (step + 1) / w, "above 1"),
        "one late": (lambda step, w: min(1.0, (step + 1) / (w + 1)), "not reached"),
        "too early": (lambda step, w: min(1.0, (step + 2) / w), "too early"),
        "a root": (lambda step, w: min(1.0, (step + 1) / w) ** 0.5, "same amount"),
        "falls": (
            lambda step, w: min((step + 1) / w, w / (step + 1)),
            "does not stay",
        ),
    },
    "warm_up.rectified": {
        "another beta": ((1999.0, 6), "0.999"),
        "half": ((49.0, 6), "factor of two"),
        "too early": ((99.0, 5), "not above 5 yet"),
        "too late": ((99.0, 7), "before"),
        "no step": ((99.0, 5.3), "whole numbers"),
    },
    "warm_up.uncorrected": {
        "both corrected": ((1.0, 3.1623, 31.623), "both corrections"),
        "no root": ((5.0, 3.1623, 31.623), "under a root"),
        "m corrected": ((0.70711, 31.623, 31.623), "not corrected either"),
        "m not corrected": ((0.70711, 3.1623, 3.1623), "divided by 1 - beta1"),
    },
    "warm_up.alarm": {
        "low": (lambda s, c, b: s <= c.quantile(1 - b), "is low"),
        "of the signal itself": (lambda s, c, b: s > s.quantile(1 - b), "instead of"),
        "no budget": (lambda s, c, b: s > c.max(), "too seldom"),
        "the mean": (lambda s, c, b: s > c.mean(), "too often"),
        "numbers": (lambda s, c, b: s, "true or false"),
    },
}
