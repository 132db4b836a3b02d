"""What *A Transformer in one sitting* measures: tables of counts, a small GPT that learns to write, its growth.

The text is the reference of the Python language as release 3.11.7 of Python brings it along (the help topics
of `pydoc`; copyright 2001-2023 Python Software Foundation, under its licence, version 2). It lies beside the
results, because other releases have other texts, and models of another text are other models.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.interop.bare import from_decoder
from measured_transformer.models.bare import BareGPT
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.opened_text import TEXT, whole_text
from measured_transformer.tasks.task import Batch, Part, check_sizes
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.evidence.kept_weights import packed
from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# The text -----------------------------------------------------------------------------------------

SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
VOCAB = 103
"""Different characters of the text."""


@cache
def part_of(part: Part) -> str:
    """Four fifths for training, a tenth for validation and one for the test, cut between paragraphs."""
    text = whole_text()
    start, end = (
        int(share * len(text))
        if share in (0.0, 1.0)
        else text.index("\n\n", round(share * len(text))) + 2
        for share in SHARES[part]
    )
    return text[start:end]


@cache
def alphabet() -> str:
    """The characters of the text, sorted; a character's token is its place in it."""
    return "".join(sorted(set(whole_text())))


def encode(text: str) -> Int[Tensor, "position"]:
    """The tokens of a text: for each character its place in the alphabet."""
    place = {character: i for i, character in enumerate(alphabet())}
    return torch.tensor([place[character] for character in text])


def decode(tokens: Int[Tensor, "position"]) -> str:
    """The text that tokens stand for."""
    return "".join(alphabet()[int(token)] for token in tokens)


@cache
def _tokens(part: Part) -> Int[Tensor, "token"]:
    return encode(part_of(part))


@dataclass(frozen=True)
class Characters:
    """Windows of the text, character by character; each position is scored on the character that follows.

    Attributes:
        length: number of predictions asked for.
        part: which part of the text is drawn from.

    Raises:
        ValueError: when `length` is not a positive whole number.
    """

    length: int = 64
    part: Part = "train"
    causal = True
    vocab = VOCAB

    def __post_init__(self) -> None:
        check_sizes(length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part."""
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = _tokens(self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n + 1)]
        return Batch(windows[:, :-1], windows[:, 1:], torch.ones(size, n, dtype=torch.bool))


# Tables of counts ---------------------------------------------------------------------------------

CONTEXTS = (0, 1, 2, 3, 4, 5, 6)


def bigram_table(
    tokens: Int[Tensor, "position"],
    vocab: int,
) -> Float[Tensor, "token next"]:
    """How likely each token is after each other, from counts plus one."""
    pairs = vocab * tokens[:-1] + tokens[1:]
    counts = 1.0 + torch.bincount(pairs, minlength=vocab**2)
    counts = counts.view(vocab, vocab)
    return counts / counts.sum(1, keepdim=True)


class Counts:
    """What followed each `context` of characters in a text, mixed with the counts after shorter contexts.

    The share of the shorter ones is that of Witten and Bell (1991): a context after which t different
    characters have been seen, n times in all, leaves t / (n + t) to them. It has nothing to be tuned.
    """

    def __init__(self, text: str, longest: int, vocab: int) -> None:
        """Count what followed contexts of 0 to `longest` characters."""
        self.vocab = vocab
        self.next: list[dict[str, Counter[str]]] = [
            defaultdict(Counter) for _ in range(longest + 1)
        ]
        for n, table in enumerate(self.next):
            for i in range(n, len(text)):
                table[text[i - n : i]][text[i]] += 1
        self.total = [{c: sum(seen.values()) for c, seen in table.items()} for table in self.next]

    def probabilities(self, context: str, character: str) -> list[float]:
        """How likely a character is, from none of the characters before it, from the last one, two, ..."""
        likely, found = 1 / self.vocab, []
        for n in range(len(self.next)):
            known = context[len(context) - n :] if n <= len(context) else ""
            if n <= len(context) and (total := self.total[n].get(known)) is not None:
                seen = self.next[n][known]
                likely = (seen[character] + len(seen) * likely) / (total + len(seen))
            found.append(likely)
        return found

    def losses(self, text: str) -> list[float]:
        """Nats a character of another text, from none of the characters before it, from the last one, ..."""
        costs = [0.0] * len(self.next)
        for i, character in enumerate(text):
            context = text[max(0, i - len(costs) + 1) : i]
            for n, likely in enumerate(self.probabilities(context, character)):
                costs[n] -= math.log(likely)
        return [cost / len(text) for cost in costs]

    def unseen(self, text: str, n: int) -> float:
        """Share of a text's characters whose `n` characters before them never came in the counted text."""
        places = range(n, len(text))
        return sum(text[i - n : i] not in self.total[n] for i in places) / len(places)


@measurement(
    seeds=1,
    coords={"context": CONTEXTS, "part": ("validation", "test")},
    tolerance={"bigram": 1e-4},
    data=(TEXT,),
)
def tables(seed: int) -> dict[str, Any]:
    """Tables of counts on text that was not counted: nats a character, and how often a context is new."""
    del seed  # nothing is drawn
    counts = Counts(part_of("train"), max(CONTEXTS), VOCAB)
    parts: tuple[Part, ...] = ("validation", "test")
    table = bigram_table(_tokens("train"), VOCAB).double().log()
    pairs = {part: (_tokens(part)[:-1], _tokens(part)[1:]) for part in parts}
    return {
        "loss": (("part", "context"), [counts.losses(part_of(part)) for part in parts]),
        "bigram": ("part", [float(-table[pairs[part]].mean()) for part in parts]),
        "unseen": ("context", [counts.unseen(part_of("validation"), n) for n in CONTEXTS]),
        "rows": ("context", [len(counts.total[n]) for n in CONTEXTS]),
    }


# The machine --------------------------------------------------------------------------------------

LENGTH = 64
TASK = Characters(LENGTH)
MODEL = Config(vocab=VOCAB, d_model=64, n_layers=2, n_heads=4, positions="rotary")
STEPS, WARMUP, BATCH, EVERY = 1000, 100, 16, 50
RATES = (5e-4, 1.25e-3, 3e-3, 8e-3, 2e-2, 5e-2)
"""The grid of learning rates."""
MIDWAY = 150


def fresh(seed: int) -> BareGPT:
    """A bare GPT of the chapter's size before any training, with the weights that the library draws."""
    model = make_model(MODEL, causal=True, seed=seed)
    assert isinstance(model, Decoder)
    return from_decoder(model).train()


def batches(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of one batch after the other, each (16, 64), the same for the same seed."""
    generator = make_generator(seed, "training")
    while True:
        batch = TASK.batch(generator, BATCH)
        yield batch.inputs, batch.targets


def fit(
    gpt: nn.Module,
    data: Iterator[tuple[Tensor, Tensor]],
    schedule: Callable[[int], float],
    steps: int,
) -> list[float]:
    """Train a model to predict the next token; gives each step's loss."""
    weights = list(gpt.parameters())
    updates = torch.optim.AdamW(weights, betas=(0.9, 0.98), weight_decay=0)
    losses = []
    for step in range(steps):
        inputs, targets = next(data)  # both (B, T), one token apart
        logits = gpt(inputs)  # (B, T, V)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        updates.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        updates.param_groups[0]["lr"] = schedule(step)
        updates.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def write(
    gpt: nn.Module,
    tokens: Int[Tensor, "position"],
    n: int,
    generator: torch.Generator,
    temperature: float = 1.0,
) -> Int[Tensor, "longer"]:
    """The tokens and `n` more, each drawn from what the model expects."""
    for _ in range(n):
        logits = gpt(tokens[None, -LENGTH:])[0, -1]  # (V,), at the last
        likely = (logits / temperature).softmax(-1)
        drawn = torch.multinomial(likely, 1, generator=generator)
        tokens = torch.cat((tokens, drawn))
    return tokens


def options(steps: int = STEPS) -> dict[str, Any]:
    """How the model is trained, beyond its learning rate: of all `STEPS` the first ones."""
    return {"steps": steps, "batch_size": BATCH, "schedule": WarmupCosine(WARMUP, STEPS)}


def chosen_rate() -> float:
    """The learning rate of the chapter's model, chosen on a seed that nothing else uses."""
    given = {name: value for name, value in options().items() if name != "steps"}
    return tuned(Search("one-sitting", MODEL, TASK, RATES, tuning_seeds(1), STEPS, given))


def sitting_trainings(seed: int) -> dict[str, Job]:
    """The chapter's model, from one seed."""
    return {
        "gpt": job(
            MODEL, TASK, seed, learning_rate=chosen_rate(), evaluate_every=EVERY, **options()
        )
    }


@torch.no_grad()
def loss_by_position(model: Model, part: Part) -> Float[Tensor, "position"]:
    """Nats a character at each position of a window, over all windows of a part side by side."""
    tokens = _tokens(part)
    count = (len(tokens) - 1) // LENGTH
    inputs = tokens[: count * LENGTH].view(count, LENGTH)
    targets = tokens[1 : count * LENGTH + 1].view(count, LENGTH)
    logits = model(inputs).double()
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(0)


@measurement(
    seeds=6,
    coords={"step": tuple(range(0, STEPS + 1, EVERY)), "position": tuple(range(1, LENGTH + 1))},
    trainings=sitting_trainings,
    repeat="opening",
    tolerance={"curve": 0.05, "by_position": 0.05, "validation": 0.02, "test": 0.02},
    data=(TEXT,),
)
def sitting(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The chapter's model as it learns: nats a character on text held out, and where in a window they fall."""
    run = runs["gpt"]
    first = evaluate(make_model(MODEL, causal=True, seed=seed), TASK, seed=seed).loss
    by_position = loss_by_position(run.model, "validation")
    return {
        "curve": ("step", [first, *run.evaluation_losses]),
        "training": float(run.losses[-EVERY:].mean()),
        "by_position": ("position", by_position),
        "validation": float(by_position.mean()),
        "test": float(loss_by_position(run.model, "test").mean()),
    }


# What it writes -----------------------------------------------------------------------------------

MOMENTS = ("before", "midway", "after")
PROMPT = "The "
WRITTEN = 1500
WORD = re.compile("[A-Za-z]{2,}")


def writing_trainings(seed: int) -> dict[str, Job]:
    """The first training, and the same one stopped on the way."""
    given = {"learning_rate": chosen_rate(), "evaluate_every": EVERY}
    return {
        "midway": job(MODEL, TASK, seed, **given, **options(MIDWAY)),
        "after": job(MODEL, TASK, seed, **given, **options()),
    }


@measurement(
    seeds=1,
    coords={"moment": MOMENTS, "place": tuple(range(len(PROMPT) + WRITTEN))},
    trainings=writing_trainings,
    repeat="opening",
    tolerance={"tokens": float(VOCAB), "known": 0.2, "words": 200.0},
    data=(TEXT,),
)
def writing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What the first model writes before, midway and after training, and how many of its words are words."""
    models = [
        make_model(MODEL, causal=True, seed=seed),
        *(runs[name].model for name in MOMENTS[1:]),
    ]
    texts = []
    for model in models:
        generator = make_generator(seed, "writing")
        texts.append(write(model.eval(), encode(PROMPT), WRITTEN, generator))
    found = [WORD.findall(decode(text)) for text in texts]
    vocabulary = set(WORD.findall(part_of("train")))
    known = [sum(w in vocabulary for w in words) / max(1, len(words)) for words in found]
    return {
        "tokens": (("moment", "place"), torch.stack(texts).numpy()),
        "known": ("moment", known),
        "words": ("moment", [len(words) for words in found]),
    }


# What runs in the page ----------------------------------------------------------------------------


@measurement(
    seeds=1,
    trainings=sitting_trainings,
    repeat="opening",
    tolerance={"weights": 1e30},
    data=(TEXT,),
)
def kept(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The weights of the first of the chapter's models, in half precision, four to a whole number."""
    del seed
    return {"weights": ("word", packed(runs["gpt"].model))}
