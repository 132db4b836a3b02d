"""What the chapter on depth and heads measures: the three tables of a report, with twenty-seven seeds for one.

Small translation models with encoders of 2, 4 and 6 blocks and 2, 4 and 8 heads; with decoders of 2, 4 and 6
blocks; and with three schedules of the learning rate. Every arm has its own tuned rate, all are scored on the
same sentences, and BLEU comes from what a model writes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import generate
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Batch, held_out
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, predict
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Schedule,
)
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# The published tables -------------------------------------------------------------------------------

DEPTHS, HEADS = (2, 4, 6), (2, 4, 8)
REPORTED = {
    "loss": (0.7201, 0.6194, 0.6159, 0.6186, 0.6218, 0.6216, 0.6194, 0.6231, 0.6223),
    "training": (0.9220, 0.9364, 0.9381, 0.9391, 0.9397, 0.9404, 0.9409, 0.9411, 0.9414),
    "validation": (0.8845, 0.8989, 0.9055, 0.9079, 0.9087, 0.9090, 0.9100, 0.9065, 0.9119),
}
"""The report's first table: a run for each number of encoder layers, and for each number of heads in it."""
TWICE = {2: (0.9087, 0.9067), 4: (0.9029, 0.8798)}
"""Validation accuracies that it prints twice: four encoder layers, four heads, decoders of 2 and 4 layers."""


def violations(values: Float[ndarray, "depth head"]) -> tuple[int, int]:
    """How often a larger model is worse, and of how many pairs that can be compared.

    A model is larger than another when it has at least as many layers and at least as many heads.

    >>> violations(np.array([[1.0, 2.0], [3.0, 2.5]]))
    (1, 5)
    """
    cells = [(i, j) for i in range(values.shape[0]) for j in range(values.shape[1])]
    pairs = [(a, b) for a in cells for b in cells if a != b and a[0] <= b[0] and a[1] <= b[1]]
    return sum(bool(values[b] < values[a]) for a, b in pairs), len(pairs)


@measurement(seeds=1, coords={"depth": DEPTHS, "heads": HEADS, "decoder": tuple(TWICE)})
def table(seed: int) -> dict[str, Any]:
    """What follows from the report's numbers by arithmetic."""
    del seed
    loss, training, validation = (np.array(REPORTED[name]) for name in REPORTED)
    worse, pairs = violations(validation.reshape(3, 3))
    return {
        "correlation": round(float(spearmanr(loss, validation).statistic), 9),
        "gap": (("depth", "heads"), (training - validation).reshape(3, 3).round(9)),
        "violations": worse,
        "pairs": pairs,
        "between_tables": ("decoder", [round(abs(a - b), 9) for a, b in TWICE.values()]),
    }


# The task and the models ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unmasked:
    """A translation whose batches say nothing about padding to attention; the loss still leaves it out.

    Attributes:
        world: the translation.
    """

    world: NoisyTranslation
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
        """Draw `size` pairs of the translation, without their masks."""
        return without_masks(self.world.batch(generator, size, length=length))


def without_masks(batch: Batch) -> Batch:
    """The same sentences, with nothing that would hide padding from attention."""
    return replace(batch, padding_mask=None, source_padding_mask=None)


WORLD = NoisyTranslation(symbols=8, length=6, pad_share=0.2, noise=0.1)
"""Replace each of eight words by another, reverse the order, end; a tenth of the words stray."""
SENTENCES = 1024
TASK, OPEN = FixedSet(WORLD, SENTENCES), FixedSet(Unmasked(WORLD), SENTENCES)
"""The sentences to train on, with padding masks and without."""
STEPS, LONGER = 100, 200
EVERY = 20
"""Steps between two looks at a model in training."""
WARM_UP = 15
SCHEDULES: Mapping[str, Schedule] = {
    "warm-up": InverseSquareRoot(WARM_UP),
    "constant": Constant(),
    "exponential": ExponentialDecay.lasting(33.0),
}
"""The report's three; it states neither peaks nor time constants, so peaks are tuned."""
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)


@dataclass(frozen=True)
class Arm:
    """A model and how it is trained; the defaults are the middle of the report's first table.

    Attributes:
        encoder, decoder: blocks of each.
        heads: attention heads of every block.
        schedule: one of `SCHEDULES`.
        mask: whether attention leaves out padding.
        steps: number of batches.
    """

    encoder: int = 4
    heads: int = 4
    decoder: int = 2
    schedule: str = "warm-up"
    mask: bool = True
    steps: int = STEPS

    def training(self, seed: int) -> Job:
        """Its training from one seed, at the rate that suits it in `STEPS` steps."""
        task = TASK if self.mask else OPEN
        config = Config(
            vocab=WORLD.vocab,
            d_model=32,
            max_length=16,
            positions="learned",
            n_layers=self.encoder,
            n_decoder_layers=self.decoder,
            n_heads=self.heads,
            activation="relu",
        )
        options: dict[str, Any] = {"batch_size": 32, "schedule": SCHEDULES[self.schedule]}
        name = f"depth-{self.encoder}-{self.decoder}-{self.heads}-{self.schedule}"
        name = name if self.mask else f"{name}-open"
        search = Search(name, config, task, RATES, tuning_seeds(2), STEPS, options)
        rate = tuned(search)
        every = EVERY * (self.steps // STEPS)
        return job(
            config,
            task,
            seed,
            steps=self.steps,
            learning_rate=rate,
            evaluate_every=every,
            **options,
        )


GRID = {(depth, heads): Arm(encoder=depth, heads=heads) for depth in DEPTHS for heads in HEADS}
DECODERS = {depth: Arm(decoder=depth) for depth in DEPTHS}
RACE = {name: Arm(decoder=4, schedule=name) for name in SCHEDULES}
LONG = {depth: Arm(decoder=depth, steps=LONGER) for depth in DEPTHS}
UNMASKED = {depth: Arm(decoder=depth, steps=LONGER, mask=False) for depth in DEPTHS}


# Scores ---------------------------------------------------------------------------------------------------

TESTED, DECODED = 1000, 300
"""Test sentences for accuracies and losses, and those of them that are translated."""
SCORES = ("accuracy", "sentence", "loss", "training", "greedy", "beam")
"""Accuracy of tokens with the reference before them, share of sentences written without a mistake, loss,
accuracy on training sentences, BLEU of what the likeliest token at a time gives, and of a beam of four."""


@lru_cache(maxsize=1)
def sentences() -> tuple[Batch, Batch]:
    """What every model is scored on: test sentences, and the first of those that it was trained on."""
    test = held_out(TASK, "test").batch(make_generator(0, "evaluation"), TESTED)
    return test, _first(TASK.sequences(), 500)


def _first(batch: Batch, count: int) -> Batch:
    def cut(value: Any) -> Any:
        return value[:count] if isinstance(value, Tensor) else value

    named = ("inputs", "targets", "scored", "padding_mask", "source", "source_padding_mask")
    gold = {name: cut(value) for name, value in batch.gold.items()}
    return replace(batch, **{name: cut(getattr(batch, name)) for name in named}, gold=gold)


def text(tokens: Sequence[int]) -> str:
    """A sentence as text, one word for each token, up to its end.

    >>> text([3, 1, 5, WORLD.end, WORLD.padding])
    'w3 w1 w5'
    """
    row = list(tokens)
    kept = row[: row.index(WORLD.end)] if WORLD.end in row else row
    return " ".join(f"w{token}" for token in kept)


def sacre(outputs: Sequence[str], references: Sequence[str]) -> float:
    """BLEU by sacrebleu, from 0 to 1, of texts that are split at blanks.

    >>> round(sacre(["the cat sat on a mat"], ["the cat sat on the mat"]), 3)
    0.537
    """
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(tokenize="none").corpus_score(list(outputs), [list(references)]).score) / 100


def translations(model: Any, batch: Batch, strategy: BeamSearch | None = None) -> list[list[int]]:
    """What a model writes for the sources, by the likeliest token at a time or by beams."""
    assert batch.source is not None
    real = batch.source_padding_mask
    prompts = [row if real is None else row[real[i]] for i, row in enumerate(batch.source)]
    found = generate(
        model,
        prompts,
        max_new_tokens=WORLD.length,
        strategy=strategy,
        start=WORLD.start,
        stop=WORLD.end,
    )
    return [tokens.tolist() for tokens in found.tokens]


def right_share(model: Any, batch: Batch) -> tuple[float, float]:
    """Share of real tokens that are the likeliest, the reference's given before them; and the loss there."""
    logits = predict(model, batch)
    right = logits.argmax(-1) == batch.targets
    losses = F.cross_entropy(logits[batch.scored], batch.targets[batch.scored])
    return float(right[batch.scored].float().mean()), float(losses)


@torch.no_grad()
def scores(run: Run, *, mask: bool = True) -> dict[str, float]:
    """All `SCORES` of a trained model."""
    test, training = sentences() if mask else map(without_masks, sentences())
    accuracy, loss = right_share(run.model, test)
    few = _first(test, DECODED)
    references = few.targets.tolist()
    greedy = translations(run.model, few)
    beam = translations(run.model, few, BeamSearch(4))
    truth = [text(row) for row in references]
    written = [text(row) for row in greedy]
    return {
        "accuracy": accuracy,
        "sentence": float(np.mean([a == b for a, b in zip(written, truth, strict=True)])),
        "loss": loss,
        "training": right_share(run.model, training)[0],
        "greedy": sacre(written, truth),
        "beam": sacre([text(row) for row in beam], truth),
    }


def looked_at(
    arms: Mapping[Any, Arm], runs: Mapping[Any, Run], axes: tuple[str, ...], shape: tuple[int, ...]
) -> dict[str, Any]:
    """The scores of all arms along the axes, and their accuracy on other sentences during training."""
    found = [scores(runs[name], mask=arm.mask) for name, arm in arms.items()]
    curves = np.array([runs[name].evaluation_accuracies for name in arms])
    return {
        **{name: (axes, np.array([one[name] for one in found]).reshape(shape)) for name in SCORES},
        "curve": ((*axes, "at"), curves.reshape(*shape, -1)),
    }


def trainings(arms: Mapping[Any, Arm], seed: int) -> dict[Any, Job]:
    """Every arm from one seed."""
    return {name: arm.training(seed) for name, arm in arms.items()}


AT = tuple(range(EVERY, STEPS + 1, EVERY))
_TOLERANCE = dict.fromkeys((*SCORES, "curve"), 0.3)
SEEDS, FEWER = 27, 9
"""Three times nine, so that nine seeds of a model can stand beside nine models of a seed."""


@measurement(seeds=1)
def ideal(seed: int) -> dict[str, Any]:
    """The scores of the rule that made the sentences, on the test sentences: nothing can do better."""
    del seed
    batch, _ = sentences()
    assert batch.source is not None
    alignment = batch.gold["alignment"]
    words = batch.source.gather(1, alignment.clamp_min(0)).clamp_max(WORLD.symbols - 1)
    said: Int[Tensor, "batch position"] = torch.where(
        alignment >= 0, WORLD.image()[words], batch.targets
    )
    few = _first(batch, DECODED)
    pairs = [(text(a), text(b)) for a, b in zip(said.tolist(), few.targets.tolist(), strict=False)]
    return {
        "accuracy": float((said == batch.targets)[batch.scored].double().mean()),
        "sentence": float(np.mean([a == b for a, b in pairs])),
        "greedy": sacre([a for a, _ in pairs], [b for _, b in pairs]),
        "padding": float(1 - batch.scored.double().mean()),
    }


def grid_trainings(seed: int) -> dict[Any, Job]:
    """The nine models of the first table."""
    return trainings(GRID, seed)


@measurement(
    seeds=SEEDS,
    coords={"depth": DEPTHS, "heads": HEADS, "at": AT},
    trainings=grid_trainings,
    repeat="opening",
    tolerance=_TOLERANCE,
)
def grid(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Encoders of 2, 4 and 6 blocks with 2, 4 and 8 heads, decoders of 2 blocks: all scores."""
    del seed
    return looked_at(GRID, runs, ("depth", "heads"), (3, 3))


FRESH, MANY = 2000, 54
"""What is added to a seed of `afresh`, so that no other measurement has looked at it; how many there are."""


def fresh_trainings(seed: int) -> dict[Any, Job]:
    """The nine models of the first table, from a seed that nothing else was measured on."""
    return trainings(GRID, FRESH + seed)


@measurement(
    seeds=MANY,
    coords={"depth": DEPTHS, "heads": HEADS},
    trainings=fresh_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3},
)
@torch.no_grad()
def afresh(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """The nine models of the first table on fifty-four other seeds: accuracy."""
    del seed
    found = [right_share(runs[name].model, sentences()[0])[0] for name in GRID]
    return {"accuracy": (("depth", "heads"), np.array(found).reshape(3, 3))}


def decoder_trainings(seed: int) -> dict[Any, Job]:
    """Decoders of three depths, with the padding mask."""
    return trainings(DECODERS, seed)


@measurement(
    seeds=FEWER,
    coords={"decoder": DEPTHS, "at": AT},
    trainings=decoder_trainings,
    repeat="opening",
    tolerance=_TOLERANCE,
)
def decoders(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Decoders of 2, 4 and 6 blocks behind an encoder of 4 with 4 heads, padding masked: all scores."""
    del seed
    return looked_at(DECODERS, runs, ("decoder",), (3,))


def race_trainings(seed: int) -> dict[Any, Job]:
    """One model with three schedules."""
    return trainings(RACE, seed)


@measurement(
    seeds=FEWER,
    coords={"schedule": tuple(SCHEDULES), "at": AT},
    trainings=race_trainings,
    repeat="opening",
    tolerance=_TOLERANCE,
)
def race(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Encoder and decoder of 4 blocks with 4 heads, three schedules at tuned peaks: all scores."""
    del seed
    return looked_at(RACE, runs, ("schedule",), (3,))


def longer_trainings(seed: int) -> dict[Any, Job]:
    """Decoders of three depths, for twice as many steps at the same rates."""
    return trainings(LONG, seed)


@measurement(
    seeds=SEEDS,
    coords={"decoder": DEPTHS, "at": tuple(2 * step for step in AT)},
    trainings=longer_trainings,
    repeat="opening",
    tolerance=_TOLERANCE,
)
def longer(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Decoders of 2, 4 and 6 blocks, padding masked, trained for twice as many steps: all scores."""
    del seed
    return looked_at(LONG, runs, ("decoder",), (3,))


def unmasked_trainings(seed: int) -> dict[Any, Job]:
    """Decoders of three depths whose attention sees padding, for twice as many steps."""
    return trainings(UNMASKED, seed)


@measurement(
    seeds=SEEDS,
    coords={"decoder": DEPTHS, "at": tuple(2 * step for step in AT)},
    trainings=unmasked_trainings,
    repeat="opening",
    tolerance=_TOLERANCE,
)
def unmasked(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Decoders of 2, 4 and 6 blocks in models that see padding, for twice as many steps: all scores."""
    del seed
    return looked_at(UNMASKED, runs, ("decoder",), (3,))


LATER, MOST = 6000, 96
"""What is added to a seed of `unmasked_afresh`, which nothing else is measured on; how many there are."""


def later_trainings(seed: int) -> dict[Any, Job]:
    """Decoders of three depths whose attention sees padding, from further seeds."""
    return unmasked_trainings(LATER + seed)


@measurement(
    seeds=MOST,
    coords={"decoder": DEPTHS},
    trainings=later_trainings,
    repeat="opening",
    tolerance={"greedy": 0.3},
)
@torch.no_grad()
def unmasked_afresh(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Decoders of 2, 4 and 6 blocks in models that see padding, on ninety-six other seeds: BLEU."""
    del seed
    few = _first(without_masks(sentences()[0]), DECODED)
    wanted = [text(line) for line in few.targets.tolist()]
    return {
        "greedy": (
            "decoder",
            [
                sacre([text(a) for a in translations(runs[name].model, few)], wanted)
                for name in UNMASKED
            ],
        )
    }
