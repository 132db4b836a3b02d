"""Mistakes in the exercise on curves over the number of examples."""

WRONG = {
    "few_shot.ahead": {
        "every token": (
            lambda logits, answers, options: (logits.argmax(-1) == answers).float().mean(),
            "options alone",
        ),
        "places": (
            lambda logits, answers, options: (
                (logits[:, options].argmax(-1) == answers).float().mean()
            ),
            "number",
        ),
        "all": (lambda logits, answers, options: 1.0, "another one"),
    },
}
