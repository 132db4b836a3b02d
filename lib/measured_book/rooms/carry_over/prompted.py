"""What prompts are for: facts that are traced, probes for words and numbers, and texts that are continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.probing import dealt, fit_probe
from measured_transformer.inference.generate import Greedy, generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import BLOCKS, texts
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA, ordinary_tokens

# Facts ----------------------------------------------------------------------------------------------

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Russia": "Moscow",
    "China": "Beijing",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Portugal": "Lisbon",
    "Poland": "Warsaw",
    "Cuba": "Havana",
    "Peru": "Lima",
    "England": "London",
}
DRAWN, KNOWN = 10, 5
"""Countries of a draw, and how many are traced: those whose capital the model gives most probability."""
NOISES = 2
LOUD = 3.0
"""The noise on the subject's embedding, in deviations of the entries of all embeddings."""
POSITIONS = {"subject": 3, "last": 4}
TRACED = BLOCKS[1::2]
"""Blocks whose network is restored, one at a time."""


@measurement(
    seeds=10,
    coords={"position": tuple(POSITIONS), "block": TRACED},
    tolerance={"effect": 0.02, "clean": 0.02, "spoilt": 0.02},
    pretrained=NEEDS,
)
@torch.no_grad()
def tracing(seed: int) -> dict[str, Any]:
    """The probability of a capital that returns when one network gets back what it wrote before the noise.

    Raises:
        ValueError: when the tokenizer cuts the prompts otherwise than into five tokens.
    """
    lm = smollm2()
    model, draws = lm.model, make_generator(seed, "facts")
    order = torch.randperm(len(CAPITALS), generator=draws)[:DRAWN].tolist()
    facts = [list(CAPITALS.items())[i] for i in order]
    prompts = torch.tensor([lm.tokenizer.encode(f"The capital of {one} is") for one, _ in facts])
    if prompts.shape[1] != 5:
        raise ValueError(f"expected prompts of five tokens, got {prompts.shape[1]}")
    answers = torch.tensor([lm.tokenizer.token(f" {city}") for _, city in facts])
    told = model.unembed(model.stream(prompts)[:, -1:])[:, 0].softmax(-1)
    sure = told.gather(1, answers[:, None])[:, 0]
    best = sure.argsort(descending=True, stable=True)[:KNOWN]
    tokens, right = prompts[best].repeat(NOISES, 1), answers[best].repeat(NOISES)
    with capture(model, "blocks.*.feedforward.out") as seen:
        model.stream(tokens)
    noise = torch.randn(len(tokens), model.config.d_model, generator=draws)
    noise = noise * LOUD * model.token_embedding.weight.std()

    def spoil(x: Tensor) -> Tensor:
        x[:, POSITIONS["subject"]] += noise
        return x

    with intervene(model, {"embedding": spoil}):
        sweep = begin(tokens)

    def probability(state: Float[Tensor, "row position d_model"]) -> float:
        found = sweep.last_logits(state).softmax(-1).gather(1, right[:, None])
        return float(found.double().mean())

    def restore(position: int, value: Tensor) -> Callable[[Tensor], Tensor]:
        def change(x: Tensor) -> Tensor:
            x[:, position] = value[:, position]
            return x

        return change

    spoilt = probability(sweep.states[-1])
    effects = []
    for position in POSITIONS.values():
        row = []
        for block in TRACED:
            name = f"blocks.{block - 1}.feedforward.out"
            with intervene(model, {name: restore(position, seen[name])}):
                row.append(probability(sweep.onward(block - 1)) - spoilt)
        effects.append(row)
    return {
        "effect": (("position", "block"), effects),
        "clean": float(sure[best].double().mean()),
        "spoilt": spoilt,
    }


# Probes ---------------------------------------------------------------------------------------------

DEPTHS = (0, 5, 10, 15, 20, 25, 30)
LETTERS, PLACES, STRINGS = 8, 8, 72
"""Words of the strings, their length and number; a third of them are held out."""
NOUNS = {
    "dog": "dogs",
    "book": "books",
    "king": "kings",
    "girl": "girls",
    "boy": "boys",
    "house": "houses",
    "car": "cars",
    "teacher": "teachers",
    "doctor": "doctors",
    "student": "students",
    "tree": "trees",
    "door": "doors",
}
"""Nouns in the singular and the plural."""
SENTENCES = 120
"""Beginnings of sentences; a third of them are held out."""
WHAT = ("number", "control")


@measurement(
    seeds=10,
    coords={"what": (*WHAT, "token", "position"), "depth": DEPTHS},
    tolerance=dict.fromkeys(("survives", "noun", "subject"), 0.05),
    pretrained=NEEDS,
)
@torch.no_grad()
def probing(seed: int) -> dict[str, Any]:
    """Accuracy of linear probes for the token and the position, and for nouns' number and dealt labels."""
    draws = make_generator(seed, "probes")
    known = ordinary_tokens(smollm2().tokenizer)
    words = known[torch.randperm(len(known), generator=draws)[:LETTERS]]
    letters = torch.randint(LETTERS, (STRINGS, PLACES), generator=draws)
    read = states_at(words[letters])
    places = torch.arange(PLACES).expand(STRINGS, PLACES)
    survives = [
        [accuracy(x, label.flatten(), STRINGS * 2 // 3 * PLACES) for x in read.flatten(1, 2)]
        for label in (letters, places)
    ]
    subject, place, tokens = beginnings(draws)
    states = states_at(tokens)[:, :, -1]  # at the noun behind the preposition
    nan = [[float("nan")] * len(DEPTHS)] * 2
    found = {
        name: [
            [scored(x, types, draws, control=what == "control") for x in states] for what in WHAT
        ]
        for name, types in (("noun", place), ("subject", subject))
    }
    return {
        "survives": (("what", "depth"), [*nan, *survives]),
        "noun": (("what",), [found["noun"][i][-1] for i in range(2)] + [float("nan")] * 2),
        "subject": (("what", "depth"), [*found["subject"], *nan]),
    }


def states_at(
    tokens: Int[Tensor, "text position"],
) -> Float[Tensor, "depth text position d_model"]:
    """The stream at each of `DEPTHS`."""
    names = ["embedding" if n == 0 else f"blocks.{n - 1}.residual_post" for n in DEPTHS]
    model = smollm2().model
    with capture(model, *names) as seen:
        model.stream(tokens)
    return torch.stack([seen[name] for name in names])


def beginnings(
    draws: torch.Generator,
) -> tuple[Int[Tensor, "text"], Int[Tensor, "text"], Int[Tensor, "text position"]]:
    """Beginnings such as *The dogs near the house*: which form either noun has, and the tokens.

    Forms count singulars first; so a form's number is whether it is at least as many as there are nouns.
    """
    forms = [*NOUNS, *NOUNS.values()]
    drawn = torch.randint(len(forms), (2, SENTENCES), generator=draws)
    encode = smollm2().tokenizer.encode
    rows = [encode(f"The {forms[a]} near the {forms[b]}") for a, b in drawn.T.tolist()]
    return drawn[0], drawn[1], torch.tensor(rows)


def accuracy(
    states: Float[Tensor, "example d_model"], labels: Int[Tensor, "example"], fitted: int
) -> float:
    """Of a linear probe, on the examples behind those that it is fitted on."""
    probe = fit_probe(states[:fitted], labels[:fitted], n_labels=int(labels.max()) + 1)
    return float((probe.answers(states[fitted:]) == labels[fitted:]).double().mean())


def scored(
    states: Float[Tensor, "example d_model"],
    types: Int[Tensor, "example"],
    draws: torch.Generator,
    *,
    control: bool,
) -> float:
    """Accuracy of a probe for the number of a noun, or for labels dealt to its forms, mean over deals."""
    labels = (types >= len(NOUNS)).long()
    rows, fitted = dealt(labels, types, draws) if control else labels[None], SENTENCES * 2 // 3
    probe = fit_probe(states[:fitted], rows[:, :fitted], n_labels=2)
    return float((probe.answers(states[fitted:]) == rows[:, fitted:]).double().mean())


# Texts that are written on ----------------------------------------------------------------------------

PROMPT, WRITTEN, RUN = 16, 24, 4
"""Tokens that are read and written, and of a run that may have stood there before."""
WAYS = ("greedy", "T = 1", "the text")


@measurement(
    seeds=10, coords={"way": WAYS}, tolerance={"repeated": 0.2}, pretrained=NEEDS, data=DATA
)
@torch.no_grad()
def writing(seed: int) -> dict[str, Any]:
    """How much of what the model writes after a prompt stood in the same text before."""
    model, whole = smollm2().model, texts(seed, 2, PROMPT + WRITTEN)
    prompts = whole[:, :PROMPT].tolist()
    found = []
    for strategy in (Greedy(), Sampling(make_generator(seed, "sampling"))):
        written = generate(model, prompts, max_new_tokens=WRITTEN, strategy=strategy)
        rows = [p + w.tolist() for p, w in zip(prompts, written.tokens, strict=True)]
        found.append(repeated(rows))
    return {"repeated": (("way",), [*found, repeated(whole.tolist())])}


def repeated(rows: list[list[int]]) -> float:
    """Share of the runs behind the prompt that stood in the same text before.

    >>> repeated([[1, 2, 3, 4] * 12])
    1.0
    """
    shares = []
    for row in rows:
        runs = [tuple(row[i : i + RUN]) for i in range(len(row) - RUN + 1)]
        seen = [run in set(runs[:i]) for i, run in enumerate(runs) if i >= PROMPT]
        shares.append(sum(seen) / len(seen))
    return sum(shares) / len(shares)
