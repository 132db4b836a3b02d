"""Mistakes in the exercises on counting."""

WRONG = {
    "counting.parameters": {
        "no gate": (lambda d, m, gated, bias: 2 * d * m + (m + d) * bias, "matrix of its own"),
        "no biases": (lambda d, m, gated, bias: (2 + gated) * d * m, "where are the biases"),
        "all biases m": (
            lambda d, m, gated, bias: (2 + gated) * (d * m + m * bias),
            "stream's width",
        ),
        "the gate's bias": (
            lambda d, m, gated, bias: (2 + gated) * d * m + (m + d) * bias,
            "biases as well",
        ),
        "one matrix": (lambda d, m, gated, bias: d * m, "draw the boxes"),
    },
    "counting.operations": {
        "one for two": (
            lambda n, d, h, kv, e, m, gated: (
                2 * n * d * e * (h + kv) + 2 * n * n * h * e,
                n * d * m * (2 + gated),
            ),
            "two for a multiply-add",
        ),
        "no pairs": (
            lambda n, d, h, kv, e, m, gated: (
                4 * n * d * e * (h + kv),
                2 * n * d * m * (2 + gated),
            ),
            "where are the scores",
        ),
        "all heads": (
            lambda n, d, h, kv, e, m, gated: (
                8 * n * d * e * h + 4 * n * n * h * e,
                2 * n * d * m * (2 + gated),
            ),
            "fewer heads",
        ),
        "scores alone": (
            lambda n, d, h, kv, e, m, gated: (
                4 * n * d * e * (h + kv) + 2 * n * n * h * e,
                2 * n * d * m * (2 + gated),
            ),
            "mixing is another",
        ),
        "no gate": (
            lambda n, d, h, kv, e, m, gated: (
                4 * n * d * e * (h + kv) + 4 * n * n * h * e,
                4 * n * d * m,
            ),
            "the gate is a third map",
        ),
        "a number": (lambda n, d, h, kv, e, m, gated: 4 * n * d * m, "two numbers"),
    },
    "counting.equal_width": {
        "the same": (lambda d, m: m, "larger by half"),
        "a third": (lambda d, m: m / 3, "is lost"),
        "half": (lambda d, m: m // 2, "three matrices against two"),
        "of d": (lambda d, m: d, "set 3 d m' equal"),
        "one too many": (lambda d, m: 2 * m // 3 + 1, "set 3 d m' equal"),
        "one too few": (lambda d, m: 2 * m // 3 - 1, "set 3 d m' equal"),
        "words": (lambda d, m: "2 m / 3", "shall be a number"),
    },
}
