"""Mistakes in the exercise on the scores of a router."""

WRONG = {
    "experts_at_length.z_loss": {
        "mean first": (lambda scores: scores.logsumexp(-1).mean() ** 2, "square first"),
        "squares of scores": (lambda scores: scores.square().sum(-1).mean(), "one number a token"),
        "over tokens": (lambda scores: scores.logsumexp(0).square().mean(), "columns"),
        "no square": (lambda scores: scores.logsumexp(-1).mean(), "another number"),
        "overflows": (lambda scores: scores.exp().sum(-1).log().square().mean(), "overflows"),
    },
}
