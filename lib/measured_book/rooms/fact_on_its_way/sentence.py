"""What a reader's own sentence shows: where the answer to it is held, block by block."""

from __future__ import annotations

import torch
from measured_transformer.language.model import LanguageModel

from measured_book.smollm2.own import own_tokens
from measured_book.smollm2.sweeps import begin


@torch.no_grad()
def held(
    model: LanguageModel, form: str, subjects: tuple[str, str], answers: tuple[str, str]
) -> str:
    """A line for each block: how much of an answer one state brings into the run with the other subject.

    Args:
        model: any decoder with its tokenizer.
        form: the prompt, with `{}` in the place of the subject.
        subjects: the one that is asked for, and the other one, each one token; with the space before them.
        answers: to the first and to the second, each one token.

    Raises:
        ValueError: when the prompts differ in other than one token or have more than 128, an answer is not one
            token, two are the same, or the model is no language model.
    """
    for name, given in (("subjects", subjects), ("answers", answers)):
        if isinstance(given, str) or len(given) != 2 or given[0] == given[1]:
            raise ValueError(f"expected two different {name}, got {given!r}")
    if form.count("{}") != 1:
        raise ValueError(
            f"expected a prompt with {{}} once, in the place of the subject, got {form!r}"
        )
    one, other = (
        own_tokens(model, form.replace("{}", subject), least=1, whole=True) for subject in subjects
    )
    differ = (one != other).nonzero() if one.shape == other.shape else one.new_empty(0, 2)
    if len(differ) != 1:
        raise ValueError(
            f"expected two subjects of one token each in {form!r}, written with the space before them; got "
            f"{subjects[0]!r} and {subjects[1]!r}"
        )
    place = int(differ[0, 1])
    right, wrong = (model.tokenizer.token(answer) for answer in answers)
    clean, swapped = begin(one, model=model.model), begin(other, model=model.model)

    def gaps(state: torch.Tensor) -> torch.Tensor:
        logits = clean.last_logits(state)
        return logits[:, right] - logits[:, wrong]

    whole, base = float(gaps(clean.states[-1])), float(gaps(swapped.states[-1]))
    lines = [
        f"logit of{answers[0]} minus{answers[1]}: {whole:.2f} for{subjects[0]}, {base:.2f} for{subjects[1]}",
        "share that returns with one state, by the number of blocks before:",
        "blocks  at the subject  at the last token",
    ]
    for before in range(clean.blocks + 1):
        # Both places at once, a row for each.
        state = swapped.states[before].repeat(2, 1, 1)
        for row, at in enumerate((place, -1)):
            state[row, at] = clean.states[before][0, at]
        share = (gaps(swapped.onward(before, state)) - base) / (whole - base)
        shares = [round(value, 2) + 0.0 for value in share.tolist()]  # no minus before a zero
        lines.append(f"{before:6}{shares[0]:16.2f}{shares[1]:19.2f}")
    return "\n".join(lines)
