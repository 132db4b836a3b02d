"""The exercise sheet's two language models on the sheet's own text, with a vocabulary of all its words.

The sheet gives neither sizes nor rates. Bodies are alike in their number of weights, and each model has the
best of six rates, chosen on two seeds of its own after as many steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from measured_transformer.models.config import Config
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.variants.recurrent import Recurrent

from measured_book.measuring import (
    Search,
    Trained,
    grid,
    job,
    measurement,
    tuned,
    tuning_seeds,
)
from measured_book.measuring.readings import peak_rate

FILE = "tinyshakespeare.txt"
WORDS = 11_794
"""Different words and marks of the training part, capitals apart, and the unknown word."""
TEXT = TextLM("shakespeare", "word", WORDS, length=32)
WIDTH = 64
BATCH = 16
EPOCH = 409
"""Steps in which 16 windows of 32 words are about as many words as the training part has, 209,179."""
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
DEFAULT = 1e-3
"""Adam's rate where nobody chooses one."""
SEEDS = 6
LSTM = "LSTM"
LAYERS = {"one layer": 1, "two layers": 2, "three layers": 3, "six layers": 6}
"""Of the sheet's Transformer: post-norm, sinusoidal positions, no warm-up."""
MODELS = (*LAYERS, LSTM)
RACERS = ("two layers", LSTM)


@measurement(seeds=1, corpora=(FILE,))
def text(seed: int) -> dict[str, Any]:
    """Words of the training part, the share of others that are unknown, what guessing by frequency costs."""
    del seed
    held = replace(TEXT, part="validation")
    return {
        "words": len(TEXT.tokens()),
        "unknown": float((held.tokens() == 0).double().mean()),
        "unigram": held.unigram_loss(),
    }


def model_of(name: str) -> tuple[Config, dict[str, Any]]:
    """The config of a model, and the options of its training; the LSTM's body is as large as two layers."""
    base = Config(vocab=WORDS, d_model=WIDTH, n_layers=LAYERS.get(name, 2), n_heads=2)
    if name == LSTM:
        return base.replace(positions="none"), {"prepare": Recurrent()}
    return base.replace(placement="post", activation="relu"), {}


@torch.no_grad()
def on_validation(one: Trained) -> dict[str, float]:
    """``validation``: nats a word over the whole part, cut into windows of 32 side by side."""
    task = replace(TEXT, part="validation")
    whole, n = task.tokens(), task.length
    windows = torch.stack([whole[start : start + n + 1] for start in range(0, len(whole) - n, n)])
    total = 0.0
    for some in windows.split(64):
        logits = one.model(some[:, :-1]).flatten(0, 1)
        targets = some[:, 1:].flatten()
        total += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
    return {"validation": total / (len(windows) * n)}


def on_training(one: Trained) -> dict[str, float]:
    """``training``: the mean loss of the last tenth of the steps, in nats a word."""
    last = len(one.run.losses) // 10
    return {"training": float(one.run.losses[-last:].mean())}


READ = (on_validation, on_training, peak_rate)


def trained(name: str, seed: int, rate: float | None = None) -> Job:
    """One epoch of a model, at a rate or at the one that suits it best."""
    config, options = model_of(name)
    given = {"batch_size": BATCH, **options}
    if rate is None:
        label = f"shakespeare-{name.lower().replace(' ', '-')}"
        rate = tuned(Search(label, config, TEXT, RATES, tuning_seeds(2), EPOCH, given))
    return job(config, TEXT, seed, steps=EPOCH, learning_rate=rate, **given)


@grid(axes={"model": MODELS}, seeds=SEEDS, read=READ, corpora=(FILE,))
def epoch(seed: int, model: str) -> Job:
    """One epoch of Shakespeare's words: Transformers of one to six layers and an LSTM, each at its own rate."""
    return trained(model, seed)


@grid(axes={"model": RACERS}, seeds=SEEDS, read=READ, corpora=(FILE,))
def at_the_default(seed: int, model: str) -> Job:
    """One epoch of Shakespeare's words at Adam's default rate: the Transformer of two layers and the LSTM."""
    return trained(model, seed, DEFAULT)


# Ten runs of each -----------------------------------------------------------------------

FRESH, RUNS = 3000, 10
"""What is added to the seeds of `ten_runs`, which nothing else is measured on; how many it has."""
TUNINGS = ("default", "tuned")


@grid(axes={"model": RACERS, "tuning": TUNINGS}, seeds=RUNS, read=READ, corpora=(FILE,))
def ten_runs(seed: int, model: str, tuning: str) -> Job:
    """One epoch of Shakespeare's words, ten fresh seeds: the two of the sheet at Adam's default and tuned."""
    return trained(model, FRESH + seed, DEFAULT if tuning == "default" else None)


MORE, MORE_RUNS = 6000, 16
"""What is added to the seeds of `runs_afresh`, which nothing else is measured on; how many it has."""


@grid(axes={"model": RACERS}, seeds=MORE_RUNS, read=READ, corpora=(FILE,))
def runs_afresh(seed: int, model: str) -> Job:
    """One epoch of Shakespeare's words, sixteen fresh seeds: the two of the sheet at Adam's default rate."""
    return trained(model, MORE + seed, DEFAULT)
