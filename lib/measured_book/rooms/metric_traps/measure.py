"""What the chapter on metric traps measures: one model and the many numbers that it can be given.

Translation models trained with and without a padding mask in attention, and with and without padding in the
loss; one of them scored in every way that the chapter names; what a published table implies; and what a test on
test sentences says about two runs that differ in their seed alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from measured_transformer.analysis.bleu import (
    Comparison,
    corpus_bleu,
    corpus_statistics,
    paired_bootstrap,
    score,
    sentence_mean,
    tokenised,
)
from measured_transformer.models.config import Config
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, predict
from measured_transformer.training.losses import smoothing_floor
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator, seeded
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.metric_traps.real import by_itself

__all__ = ["arms", "by_itself", "ladder", "rivals", "simulated", "table"]

# The published table --------------------------------------------------------------------------------

MASKED = {"training": (0.7072, 0.6987, 0.6890), "validation": (0.5511, 0.5468, 0.5399)}
"""Accuracies of the report's masked models, with decoders of 2, 4 and 6 layers."""
UNMASKED = {"training": (0.9366, 0.9348, 0.9301), "validation": (0.9067, 0.9029, 0.8946)}
"""The same of its unmasked models."""
BLEU = {"masked": (0.43, 0.42, 0.41), "unmasked": (0.78, 0.77, 0.75)}
"""Its BLEU scores."""
PUBLISHED = 0.284
"""BLEU of the large Transformer from English to German (Vaswani et al., 2017, table 2)."""
SMALLEST_LOSS = 0.6159
"""The smallest loss that the report prints."""
FLOORS = ((0.05, 1000), (0.05, 8000), (0.1, 1000), (0.1, 8000))
"""Label smoothing and size of the vocabulary, neither of which it states."""


def with_padding(accuracy: float, share: float) -> float:
    """Accuracy over all positions of a model that is right at all padding, from that on real tokens.

    >>> round(with_padding(0.55, 0.8), 2)
    0.91
    """
    return share + (1 - share) * accuracy


def fitted_share(masked: Sequence[float], unmasked: Sequence[float]) -> float:
    """The share of padding that turns the first accuracies into the second, by least squares.

    >>> round(fitted_share([0.5, 0.6], [0.9, 0.92]), 3)
    0.8
    """
    low, high = np.asarray(masked), np.asarray(unmasked)
    return float(((1 - low) @ (high - low)) / ((1 - low) @ (1 - low)))


def independent_bleu(share: float) -> float:
    """About the BLEU of a text of the right length of whose tokens this share is right, here and there.

    A run of n tokens is right with probability share^n, and the geometric mean of the first four powers is
    the power 10/4.

    >>> round(independent_bleu(0.9067), 2)
    0.78
    """
    return float(share**2.5)


@measurement(
    seeds=1, coords={"pair": tuple(range(6)), "depth": (2, 4, 6), "reading": tuple(range(4))}
)
def table(seed: int) -> dict[str, Any]:
    """What follows from the report's numbers by arithmetic."""
    del seed
    low = [*MASKED["training"], *MASKED["validation"]]
    high = [*UNMASKED["training"], *UNMASKED["validation"]]
    share = fitted_share(low, high)
    fits = [with_padding(accuracy, share) for accuracy in low]
    floors = [smoothing_floor(vocab, smoothing) for smoothing, vocab in FLOORS]
    return {
        "share": round(share, 9),
        "residual": ("pair", [round(a - b, 9) for a, b in zip(high, fits, strict=True)]),
        "power": ("depth", [round(independent_bleu(a), 9) for a in UNMASKED["validation"]]),
        "masked_power": ("depth", [round(independent_bleu(a), 9) for a in MASKED["training"]]),
        "needed": round(BLEU["unmasked"][0] ** 0.4, 9),
        "ratio": round(BLEU["unmasked"][0] / PUBLISHED, 9),
        "room": ("reading", [round(SMALLEST_LOSS - floor, 9) for floor in floors]),
    }


# Identities -----------------------------------------------------------------------------------------

DRAWS = 100
MASKS = ("encoder", "cross", "decoder")
SMALL = Config(vocab=12, d_model=16, n_heads=2, n_layers=2, max_length=16)


def _furthest(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def padding_reaches(draw: int) -> dict[str, tuple[float, float]]:
    """By how much padding behind the real tokens moves outputs at real tokens: with the mask, and without.

    A drawn model reads drawn sequences with no padding and with some. For the decoder the first number is
    with nothing but the causal mask, and the second without that one either: the same stack as an encoder.
    """
    generator = torch.Generator().manual_seed(draw)
    real, more = (int(torch.randint(2, 8, (), generator=generator)) for _ in range(2))
    with seeded(draw):
        model = EncoderDecoder(SMALL).double().eval()
    tokens = torch.randint(10, (1, real), generator=generator)
    padded = torch.cat((tokens, torch.full((1, more), 10)), 1)
    is_real = padded != 10
    target = torch.randint(10, (1, 5), generator=generator)
    alone, filled = model.encode(tokens), model.encode(padded)
    masked = model.encode(padded, padding_mask=is_real)
    reached = {"encoder": (_furthest(alone, masked[:, :real]), _furthest(alone, filled[:, :real]))}
    expected = model.decode(target, alone)
    both = torch.cat(
        (alone, filled[:, real:]), 1
    )  # the encoder has done its part, padding stays in view
    with_mask = model.decode(target, both, memory_padding_mask=is_real)
    reached["cross"] = (
        _furthest(expected, with_mask),
        _furthest(expected, model.decode(target, both)),
    )
    short, long = model.decode(tokens, alone), model.decode(padded, alone)
    reached["decoder"] = _furthest(short, long[:, :real]), reached["encoder"][1]
    return reached


def later_reaches(draw: int) -> tuple[float, float]:
    """By how much the last token moves outputs before it: with the causal mask, and without.

    The decoder reads two targets that differ in their last token; without its mask, the same stack as an
    encoder reads them.
    """
    generator = torch.Generator().manual_seed(draw)
    with seeded(draw):
        model = EncoderDecoder(SMALL).double().eval()
    source, target = (torch.randint(10, (1, 6), generator=generator) for _ in range(2))
    other = target.clone()
    other[0, -1] = (target[0, -1] + 1) % 10
    memory = model.encode(source)
    masked = [model.decode(each, memory)[:, :-1] for each in (target, other)]
    unmasked = [model.encode(each)[:, :-1] for each in (target, other)]
    return _furthest(*masked), _furthest(*unmasked)


def drawn_scores(draw: int) -> tuple[float, float]:
    """Accuracy over all positions minus the formula: where padding is predicted, and where it never is."""
    rng = np.random.default_rng(draw)
    n, padding = int(rng.integers(50, 500)), 20
    real = rng.random(n) < rng.uniform(0.1, 0.9)
    real[0] = True
    targets = np.where(real, rng.integers(20, size=n), padding)
    guesses = np.where(rng.random(n) < 0.5, targets, rng.integers(20, size=n))
    share = float(1 - real.mean())
    errors = []
    for at_padding in (padding, 0):
        outputs = np.where(real, guesses, at_padding)
        right = outputs == targets
        errors.append(float(right.mean()) - with_padding(float(right[real].mean()), share))
    return errors[0], errors[1]


@measurement(
    seeds=1,
    coords={"mask": MASKS, "draw": tuple(range(DRAWS))},
    tolerance={
        **dict.fromkeys(("with_mask", "later", "no_padding"), 1e-9),
        **dict.fromkeys(("without", "later_without"), 1e-6),
        "formula": 1e-12,
    },
)
@torch.no_grad()
def exact(seed: int) -> dict[str, Any]:
    """What padding moves with and without masks, and how counting padding changes an accuracy; 100 draws.

    `later` and `later_without` are what the last token moves before it, with the causal mask and without.
    """
    del seed
    found = [padding_reaches(draw) for draw in range(DRAWS)]
    later, later_without = zip(*(later_reaches(draw) for draw in range(DRAWS)), strict=True)
    formula, no_padding = zip(*(drawn_scores(draw) for draw in range(DRAWS)), strict=True)
    return {
        "with_mask": (("mask", "draw"), [[each[mask][0] for each in found] for mask in MASKS]),
        "without": (("mask", "draw"), [[each[mask][1] for each in found] for mask in MASKS]),
        "later": ("draw", list(later)),
        "later_without": ("draw", list(later_without)),
        "formula": ("draw", list(formula)),
        "no_padding": ("draw", list(no_padding)),
    }


# Models on padded translations ------------------------------------------------------------------------

Mask = Literal["masked", "open", "inverted"]
Counted = Literal["real", "all"]


@dataclass(frozen=True)
class Padded:
    """The noisy translation as a model meets it: which tokens it may attend to, and what its loss counts.

    Attributes:
        world: the translation.
        mask: whether attention leaves out padding ("masked"), sees it like any token ("open"), or, by a
            mistake of sign in the source's mask, sees nothing else there ("inverted").
        counted: whether the loss is an average over real tokens or over all positions.
    """

    world: NoisyTranslation
    mask: Mask = "masked"
    counted: Counted = "real"
    causal = True

    @property
    def vocab(self) -> int:
        """That of the translation."""
        return self.world.vocab

    @property
    def length(self) -> int:
        """Positions of the target."""
        return self.world.length

    @property
    def source_length(self) -> int:
        """Positions of the source."""
        return self.world.source_length

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` pairs of the translation, with the masks of this arm."""
        drawn = self.world.batch(generator, size, length=length)
        changes: dict[str, Any] = {}
        if self.mask != "masked":
            changes["padding_mask"] = None
            real = drawn.source_padding_mask
            assert real is not None
            changes["source_padding_mask"] = ~real if self.mask == "inverted" else None
        if self.counted == "all":
            changes["scored"] = torch.ones_like(drawn.scored)
        return replace(drawn, **changes)


WORLD = NoisyTranslation(symbols=10, noise=0.3)
NOISIER = NoisyTranslation(symbols=10, noise=0.55)
"""In which a good model is right at little more than half of the tokens, as the report's masked ones are."""
ARMS: Mapping[str, tuple[Mask, Counted]] = {
    "masked": ("masked", "real"),
    "open": ("open", "real"),
    "masked, padding in the loss": ("masked", "all"),
    "open, padding in the loss": ("open", "all"),
    "inverted": ("inverted", "real"),
}
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
STEPS, LONGER = 300, 400
RIVAL = 700
"""What is added to a seed for the run that differs from another in its seed alone."""
SENTENCES = 1000


def _training(name: str, task: Padded, steps: int, seed: int, *, like: Padded | None = None) -> Job:
    config = Config(
        vocab=task.vocab, d_model=32, n_layers=1, n_heads=2, max_length=24, positions="learned"
    )
    options: dict[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(20, steps)}
    search = Search(f"traps-{name}", config, like or task, RATES, tuning_seeds(2), steps, options)
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)


def arm(name: str) -> Padded:
    """What the models of one of `ARMS` are trained on."""
    mask, counted = ARMS[name]
    return Padded(WORLD, mask, counted)


def _arm_training(name: str, seed: int) -> Job:
    if name == "inverted":  # a mistake in a recipe that was tuned without it
        return _training("masked", arm(name), STEPS, seed, like=arm("masked"))
    return _training(name.replace(", ", "-").replace(" ", "-"), arm(name), STEPS, seed)


def arm_trainings(seed: int) -> dict[str, Job]:
    """Each of `ARMS`, at the learning rate that suits it; the mistake at that of the model without it."""
    return {name: _arm_training(name, seed) for name in ARMS}


def rival_trainings(seed: int) -> dict[str, Job]:
    """Two runs with a mask that differ in their seed alone, and one without a mask."""
    return {
        "first": _arm_training("masked", seed),
        "second": _arm_training("masked", seed + RIVAL),
        "open": _arm_training("open", seed),
    }


def noisy_trainings(seed: int) -> dict[str, Job]:
    """A model with the mask and with padding in its loss, where more than half of the tokens stray."""
    return {"model": _training("noisier", Padded(NOISIER, "masked", "all"), LONGER, seed)}


@dataclass(frozen=True)
class Outputs:
    """What a model says about test sentences, and what they are.

    Attributes:
        batch: the sentences, as the model met them.
        forced: its likeliest token at each position, the reference's tokens before it given.
        decoded: what it writes by itself, each time the likeliest token; padding behind its end token.
        real: which positions of the references are no padding.
        ideal: what the rule says, without the tokens that stray.
    """

    batch: Batch
    forced: Int[Tensor, "batch position"]
    decoded: Int[Tensor, "batch position"]
    real: Bool[Tensor, "batch position"]
    ideal: Int[Tensor, "batch position"]


@torch.no_grad()
def decoded(
    model: EncoderDecoder, batch: Batch, world: NoisyTranslation
) -> Int[Tensor, "batch position"]:
    """Write each sentence with the likeliest token at a time; what follows the end token becomes padding."""
    assert batch.source is not None
    memory = model.encode(batch.source, padding_mask=batch.source_padding_mask)
    cache = model.make_cache(world.length)
    token, ended = batch.inputs[:, :1], torch.zeros_like(batch.inputs[:, :1], dtype=torch.bool)
    tokens: list[Tensor] = []
    for _ in range(world.length):
        logits = model.decode(
            token, memory, memory_padding_mask=batch.source_padding_mask, cache=cache
        )
        token = logits[:, -1:].argmax(-1)
        tokens.append(token.masked_fill(ended, world.padding))
        ended = ended | (token == world.end)
    return torch.cat(tokens, 1)


@torch.no_grad()
def outputs(model: Any, task: Padded, *, seed: int, size: int = SENTENCES) -> Outputs:
    """What a model makes of sentences of the evaluation stream."""
    batch = task.batch(make_generator(seed, "evaluation"), size)
    world = task.world
    alignment = batch.gold["alignment"]
    assert batch.source is not None
    words = batch.source.gather(1, alignment.clamp_min(0)).clamp_max(world.symbols - 1)
    ideal = torch.where(alignment >= 0, world.image()[words], batch.targets)
    forced = predict(model, batch).argmax(-1)
    real = batch.targets != world.padding
    return Outputs(batch, forced, decoded(model, batch, world), real, ideal)


def sentences(
    tokens: Int[Tensor, "batch position"], world: NoisyTranslation, *, end: bool = False
) -> list[list[int]]:
    """The words of each sentence: up to its end token, which counts where asked, and without padding."""
    found = []
    for row in tokens.tolist():
        length = row.index(world.end) + end if world.end in row else len(row)
        found.append([token for token in row[:length] if token != world.padding])
    return found


def words_bleu(said: Tensor, truth: Tensor, world: NoisyTranslation) -> float:
    """BLEU of the words, without end token and padding."""
    return corpus_bleu(sentences(said, world), sentences(truth, world))


def accuracy(said: Tensor, truth: Tensor, where: Tensor) -> float:
    """Share of right tokens among the positions that count."""
    return float((said == truth)[where].float().mean())


@measurement(
    seeds=10,
    coords={"arm": tuple(ARMS)},
    trainings=arm_trainings,
    repeat="opening",
    tolerance=dict.fromkeys(("real", "everywhere", "bleu", "best", "best_bleu"), 0.2),
)
def arms(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Models trained with and without mask and padding: accuracy on real tokens and on all, and BLEU.

    The best scores are those of the rule on the same sentences.
    """
    real, everywhere, bleu, best, best_bleu = [], [], [], 0.0, 0.0
    for name in ARMS:
        said = outputs(runs[name].model, arm(name), seed=seed)
        truth = said.batch.targets
        real.append(accuracy(said.forced, truth, said.real))
        everywhere.append(accuracy(said.forced, truth, torch.ones_like(said.real)))
        bleu.append(words_bleu(said.decoded, truth, WORLD))
        best = accuracy(said.ideal, truth, said.real)
        best_bleu = words_bleu(said.ideal, truth, WORLD)
    return {
        "real": ("arm", real),
        "everywhere": ("arm", everywhere),
        "bleu": ("arm", bleu),
        "best": best,
        "best_bleu": best_bleu,
    }


# One model, all its numbers -----------------------------------------------------------------------------

TREES = ("ash", "birch", "cedar", "elm", "fir", "hazel", "lime", "oak", "pine", "yew")
WORDS = (*TREES, "(padding)", "(start)", "(end)")
"""How a token is written; a model that has learned nothing may write any of them."""


def written(words: Sequence[int], *, tidy: bool) -> str:
    """A sentence of trees: tidy as a reference is, or as a system left it, in lower case and in pieces.

    >>> written([3, 7], tidy=True), written([3, 7], tidy=False)
    ('Elm oak.', 'elm oak .')
    """
    text = " ".join(WORDS[word] for word in words)
    return f"{text[:1].upper()}{text[1:]}." if tidy else f"{text} ."


def text_scores(said: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> dict[str, float]:
    """BLEU of the same sentences as text, by how they are split and whether case counts."""
    hypotheses = [written(words, tidy=False) for words in said]
    references = [written(words, tidy=True) for words in truth]
    found = {}
    for name, how, lower in (
        ("text, split at blanks", "blanks", False),
        ("text, 13a", "13a", False),
        ("text, 13a, lower case", "13a", True),
        ("text, characters", "characters", True),
    ):
        sides = (
            [tokenised(t, how, lower=lower) for t in side]  # type: ignore[arg-type]
            for side in (hypotheses, references)
        )
        found[name] = corpus_bleu(*sides)
    return found


def all_scores(said: Outputs, world: NoisyTranslation) -> dict[str, float]:
    """Every number that the chapter gives to one model, by name."""
    truth, real, decoded_ = said.batch.targets, said.real, said.decoded
    everywhere = torch.ones_like(real)
    written_, references = sentences(decoded_, world), sentences(truth, world)
    forced = [
        [t for t, counts in zip(row, keep, strict=True) if counts]
        for row, keep in zip(
            said.forced.tolist(), (real & (truth != world.end)).tolist(), strict=True
        )
    ]
    counts = corpus_statistics(written_, references)
    padded = {"output": decoded_.tolist(), "reference": truth.tolist()}
    return {
        "accuracy, real tokens": accuracy(said.forced, truth, real),
        "accuracy, words alone": accuracy(said.forced, truth, real & (truth != world.end)),
        "accuracy, mask one off": accuracy(said.forced, truth, said.batch.inputs != world.padding),
        "accuracy, all positions": accuracy(said.forced, truth, everywhere),
        "accuracy, mask inverted": accuracy(said.forced, truth, ~real),
        "accuracy, decoded": accuracy(decoded_, truth, real),
        "accuracy, decoded, all positions": accuracy(decoded_, truth, everywhere),
        "whole sentences": float((decoded_ == truth).all(1).float().mean()),
        "BLEU": score(counts.sum(0)).value,
        "BLEU, sides swapped": corpus_bleu(references, written_),
        "BLEU, teacher-forced": corpus_bleu(forced, references),
        "BLEU, mean of sentences": sentence_mean(counts),
        "BLEU, mean, smoothed": sentence_mean(counts, smoothing="add one", shorter_orders=True),
        "BLEU, end token counted": corpus_bleu(
            sentences(decoded_, world, end=True), sentences(truth, world, end=True)
        ),
        "BLEU, padding kept": corpus_bleu(padded["output"], padded["reference"]),
        "BLEU, padding in the output": corpus_bleu(padded["output"], references),
        "BLEU, padding in the reference": corpus_bleu(written_, padded["reference"]),
        **{f"BLEU, {name}": value for name, value in text_scores(written_, references).items()},
    }


WAYS = (
    "accuracy, real tokens",
    "accuracy, words alone",
    "accuracy, mask one off",
    "accuracy, all positions",
    "accuracy, mask inverted",
    "accuracy, decoded",
    "accuracy, decoded, all positions",
    "whole sentences",
    "BLEU",
    "BLEU, sides swapped",
    "BLEU, teacher-forced",
    "BLEU, mean of sentences",
    "BLEU, mean, smoothed",
    "BLEU, end token counted",
    "BLEU, padding kept",
    "BLEU, padding in the output",
    "BLEU, padding in the reference",
    "BLEU, text, split at blanks",
    "BLEU, text, 13a",
    "BLEU, text, 13a, lower case",
    "BLEU, text, characters",
)


@measurement(
    seeds=10,
    coords={"way": WAYS},
    trainings=noisy_trainings,
    repeat="opening",
    tolerance={"score": 0.2, "best": 0.1, "share": 0.05},
)
def ladder(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """One trained model and one set of test sentences, scored in all ways; and what the rule scores there."""
    task = Padded(NOISIER, "masked", "all")
    said = outputs(runs["model"].model, task, seed=seed)
    found = all_scores(said, NOISIER)
    ideal = all_scores(replace(said, forced=said.ideal, decoded=said.ideal), NOISIER)
    return {
        "score": ("way", [found[way] for way in WAYS]),
        "best": ("way", [ideal[way] for way in WAYS]),
        "share": float((~said.real).float().mean()),
    }


# Which reading gives the report's numbers? ----------------------------------------------------------------

READINGS = (
    "both trimmed",
    "padding kept",
    "reference trimmed",
    "output trimmed",
    "mean of sentences, trimmed",
    "mean of sentences, kept",
    "mean, smoothed, trimmed",
    "mean, smoothed, kept",
)
PLAIN = NoisyTranslation(symbols=1000, noise=0.0)


def simulated_bleu(right: float, seed: int) -> list[float]:
    """BLEU of made-up outputs of which a share is right at real tokens and all at padding, by `READINGS`."""
    generator = make_generator(seed, "simulated outputs")
    truth = PLAIN.batch(generator, 2 * SENTENCES).targets
    wrong = torch.rand(truth.shape, generator=generator) >= right
    other = (truth + torch.randint(1, 1000, truth.shape, generator=generator)) % 1000
    said = torch.where(wrong & (truth != PLAIN.padding), other, truth)

    def trimmed(tokens: Tensor) -> list[list[int]]:
        return [[token for token in row if token != PLAIN.padding] for row in tokens.tolist()]

    short, full = (trimmed(said), trimmed(truth)), (said.tolist(), truth.tolist())
    pairs = (short, full, (full[0], short[1]), (short[0], full[1]))
    found = [corpus_bleu(hypotheses, references) for hypotheses, references in pairs]
    counts = [corpus_statistics(*each) for each in (short, full)]
    found += [sentence_mean(each) for each in counts]
    found += [sentence_mean(each, smoothing="add one", shorter_orders=True) for each in counts]
    return found


@measurement(
    seeds=10,
    coords={"accuracy": ("validation", "training"), "reading": READINGS},
    tolerance={"bleu": 0.01},
)
def simulated(seed: int) -> dict[str, Any]:
    """BLEU of outputs with the report's masked accuracies, by where padding is trimmed; 2000 sentences."""
    found = [simulated_bleu(MASKED[part][0], seed) for part in ("validation", "training")]
    return {"bleu": (("accuracy", "reading"), found)}


# One seed, or many ----------------------------------------------------------------------------------------


def compared(first: Outputs, second: Outputs, world: NoisyTranslation, seed: int) -> Comparison:
    """The bootstrap's word on two models that translated the same sentences."""
    truth = sentences(first.batch.targets, world)
    counts = [corpus_statistics(sentences(each.decoded, world), truth) for each in (first, second)]
    return paired_bootstrap(*counts, seed=seed)


@measurement(
    seeds=10,
    coords={"pair": ("seed", "mask")},
    trainings=rival_trainings,
    repeat="opening",
    tolerance={"difference": 0.2, "low": 0.2, "high": 0.2, "p": 1.0},
)
def rivals(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Pairs of runs on the same 1000 sentences: the difference of their BLEU, its bootstrap interval and p.

    Two runs that differ in their seed alone, and a run with a mask against one without.
    """
    first, second, other = (
        outputs(runs[name].model, arm("open" if name == "open" else "masked"), seed=seed)
        for name in ("first", "second", "open")
    )
    found = [compared(first, rival, WORLD, seed) for rival in (second, other)]
    return {
        name: ("pair", [getattr(each, name) for each in found])
        for name in ("difference", "low", "high", "p")
    }
