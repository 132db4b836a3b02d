"""What the chapter on Transformers and recurrent networks measures: language, recall over gaps, pairs, parity.

Four kinds of models of equal size: Transformers with attention in each block, LSTMs, linear recurrences that
take over the four matrices of attention, and mixtures. All are decoders of the library whose blocks, or whose
attention, something else takes the place of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.gap_recall import GapRecall
from measured_transformer.tasks.running_parity import RunningParity
from measured_transformer.tasks.task import Part, Task
from measured_transformer.tasks.word_text import WordText
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.linear import linear
from measured_transformer.variants.recurrent import (
    Chrono,
    Recurrent,
    linear_recurrence,
    recurrence,
    scan,
)
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
"""The grid of learning rates, the same for all kinds of models."""
WARMUP = 20
WIDTH = 32


# The kinds of models ----------------------------------------------------------------------------------

Prepare = Callable[[Model], None]


def first_recurrent(model: Model) -> None:
    """Preparation for training: a linear recurrence in the place of the first block's attention alone."""
    assert isinstance(model, Decoder)
    kept = list(model.blocks)[1:]
    model.blocks = torch.nn.ModuleList(list(model.blocks)[:1])
    linear_recurrence(model)
    model.blocks.extend(kept)


def kind(name: str, vocab: int, **changes: Any) -> tuple[Config, dict[str, Any]]:
    """The config of a kind of model, and the options of its training; all have as many weights in their body.

    Args:
        name: 'sheet', a post-norm Transformer without warm-up; 'Transformer', a pre-norm one with rotary
            positions and warm-up; 'LSTM', 'open LSTM', whose forget gates start open; 'linear', a linear
            recurrence in the place of attention; 'linear attention'; or 'hybrid', a block of each.
        vocab: of the task.
        changes: of the config, for all kinds alike.
    """
    base = Config(vocab=vocab, d_model=WIDTH, n_layers=2, n_heads=2, **changes)
    warm = {"schedule": Constant(warmup=WARMUP)}
    if name == "sheet":
        return base.replace(placement="post", activation="relu"), {}
    if name == "Transformer":
        return base.replace(positions="rotary"), warm
    if name == "linear attention":
        return base, {**warm, "prepare": linear}
    arms: dict[str, Prepare] = {
        "LSTM": Recurrent(dropout=base.dropout),
        "open LSTM": Recurrent(forget=OPEN, dropout=base.dropout),
        "linear": linear_recurrence,
        "hybrid": first_recurrent,
    }
    return base.replace(positions="none"), {**warm, "prepare": arms[name]}


OPEN = 4.3
"""An initial bias of forget gates with which a third of the state is left after 73 tokens: about ln 73."""


def arm_job(
    label: str,
    name: str,
    task: Task,
    seed: int,
    *,
    steps: int,
    tune_on: Task | None = None,
    rates: Sequence[float] = RATES,
    **more: Any,
) -> Job:
    """A training of a kind of model at the learning rate that suits it.

    Args:
        label: names the search of the learning rate.
        name: of the kind.
        task, seed, steps: of the training.
        tune_on: the task on which the rate is chosen, where that is another one.
        rates: to choose from.
        more: options of the training and of its search.
    """
    config, options = kind(name, task.vocab)
    given = {"batch_size": 32, **options}
    named = f"recurrent-{label}-{name.replace(' ', '-').lower()}"
    search = Search(named, config, tune_on or task, rates, tuning_seeds(2), steps, given)
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **given, **more)


# How many steps wait for one another ------------------------------------------------------------------

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
CHAINS = ("Transformer", "LSTM", "linear")


def rounds(name: str, n: int) -> int:
    """How many steps of a layer must wait for one another before its last position is known.

    >>> rounds("Transformer", 1024), rounds("LSTM", 1024), rounds("linear", 1024)
    (1, 1024, 10)
    """
    return {"Transformer": 1, "LSTM": n, "linear": max(1, math.ceil(math.log2(n)))}[name]


def longest_chain(output: Tensor) -> int:
    """The longest chain of operations that lead to a tensor, each of which needs the result of the last.

    >>> x = torch.ones(2, requires_grad=True)
    >>> longest_chain((x * x + x).sum())
    3
    """
    lengths: dict[Any, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [each for each, _ in node.next_functions if each is not None]  # type: ignore[union-attr]
        missing = [each for each in before if each not in lengths]
        if missing:
            stack.extend(missing)
            continue
        own = 0 if type(node).__name__ == "AccumulateGrad" else 1
        lengths[stack.pop()] = own + max((lengths[each] for each in before), default=0)
    return lengths[output.grad_fn]


@measurement(seeds=1, coords={"kind": CHAINS, "length": LENGTHS})
def chains(seed: int) -> dict[str, Any]:
    """The longest chain of operations in the forward pass of one block, and the rounds of its mixing part."""
    found = []
    for name in CHAINS:
        config, options = kind(name, 10)
        model = make_model(config.replace(n_layers=1), causal=True, seed=seed)
        if "prepare" in options:
            options["prepare"](model)
        inputs = torch.zeros(1, max(LENGTHS), dtype=torch.long)
        found.append([longest_chain(model(inputs[:, :n]).sum()) for n in LENGTHS])
    return {
        "operations": (("kind", "length"), found),
        "rounds": (("kind", "length"), [[rounds(name, n) for n in LENGTHS] for name in CHAINS]),
    }


@measurement(
    seeds=1,
    coords={"draw": tuple(range(20))},
    tolerance={"scan": 1e-12, "reversed": 1e-3},
)
@torch.no_grad()
def equal(seed: int) -> dict[str, Any]:
    """The scan against the loop, in double precision; a scan whose gates are turned round must differ."""
    generator = make_generator(seed, "scans")
    differences, controls = [], []
    for _ in range(20):
        n = int(torch.randint(2, 70, (), generator=generator))
        keep = torch.rand(2, n, 5, generator=generator, dtype=torch.float64)
        new = torch.randn(2, n, 5, generator=generator, dtype=torch.float64)
        expected = recurrence(keep, new)
        differences.append(float((scan(keep, new) - expected).abs().max()))
        controls.append(float((scan(keep.flip(1), new) - expected).abs().max()))
    return {"scan": ("draw", differences), "reversed": ("draw", controls)}


# Language: windows of words -----------------------------------------------------------------------------

TEXT = WordText(vocab=500, length=32, share=0.4)
BATCH = 16
EPOCH = 45
"""Steps in which 16 windows of 32 words are about as many words as the training text has."""
TEXT_RATES = (1e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
"""The grid for text, where larger rates suit some kinds, and Adam's default."""
SEEDS = 6
"""Of most of what is trained."""
PARTS: tuple[Part, ...] = ("train", "validation", "test")
KINDS = ("sheet", "Transformer", "LSTM", "linear")


@torch.no_grad()
def cost(model: Model, part: Part, *, fresh: int = TEXT.length) -> float:
    """Cross-entropy in nats a word over a whole part, cut into windows of 32.

    Args:
        model: of the text.
        part: which part.
        fresh: how many words each window is ahead of the last one: 32 for windows side by side. Only these,
            the last ones of a window, are scored, so that every word counts once.
    """
    assert isinstance(model, Decoder)
    n, whole = TEXT.length, replace(TEXT, part=part).tokens()
    count = (len(whole) - 1 - n) // fresh + 1
    starts = torch.arange(count)[:, None] * fresh
    windows = whole[starts + torch.arange(n + 1)]
    total = 0.0
    for each in windows.split(256):
        logits = model(each[:, :-1])[:, n - fresh :]
        targets = each[:, 1 + n - fresh :]
        costs = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none"
        )
        total += float(costs.double().sum())
    return total / (count * fresh)


@torch.no_grad()
def carried(model: Model, part: Part) -> float:
    """The same where the state is carried on from window to window: a recurrent network reads all at once."""
    assert isinstance(model, Decoder)
    whole = replace(TEXT, part=part).tokens()
    logits = model(whole[None, :-1])[0]
    return float(torch.nn.functional.cross_entropy(logits.double(), whole[1:]))


# One epoch, many settings --------------------------------------------------------------------------------

HEADS, LAYERS = (2, 8), (1, 2, 6)
SHARES = (1.0, 0.5, 0.25, 0.125)
PLACED = ("sheet", "Transformer")
Half = Literal["even", "odd"]
SPLITS: tuple[Half, ...] = ("even", "odd")
Setting = tuple[str, float | int, int, float]


@torch.no_grad()
def half_cost(model: Model, half: Half) -> float:
    """Nats a word over every second window of the validation part, from the first or from the second one."""
    assert isinstance(model, Decoder)
    n, whole = TEXT.length, replace(TEXT, part="validation").tokens()
    starts = torch.arange(SPLITS.index(half), (len(whole) - 1) // n, 2)[:, None] * n
    windows = whole[starts + torch.arange(n + 1)]
    logits = model(windows[:, :-1])
    costs = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).double(), windows[:, 1:].flatten()
    )
    return float(costs)


def field_trainings(seed: int) -> dict[Setting, Job]:
    """One epoch each, at every rate: post-norm Transformers and LSTMs of several sizes, and two more kinds.

    As on the exercise sheet, neither the post-norm Transformers nor the LSTMs are warmed up.
    """
    jobs: dict[Setting, Job] = {}
    for rate in TEXT_RATES:
        given = {"steps": EPOCH, "learning_rate": rate, "batch_size": BATCH}
        config, options = kind("sheet", TEXT.vocab)
        for heads in HEADS:
            for layers in LAYERS:
                changed = config.replace(n_heads=heads, n_layers=layers)
                jobs["sheet", heads, layers, rate] = job(changed, TEXT, seed, **given, **options)
        config, _ = kind("LSTM", TEXT.vocab)
        for share in SHARES:
            own = {"prepare": Recurrent(share=share)}
            jobs["LSTM", share, 1, rate] = job(config, TEXT, seed, **given, **own)
        for name in ("Transformer", "linear"):
            config, options = kind(name, TEXT.vocab)
            jobs[name, 2, 2, rate] = job(config, TEXT, seed, **given, **options)
    return jobs


@measurement(
    seeds=SEEDS,
    coords={
        "kind": KINDS,
        "half": SPLITS,
        "heads": HEADS,
        "layers": LAYERS,
        "share": SHARES,
        "rate": TEXT_RATES,
    },
    trainings=field_trainings,
    repeat="opening",
)
def field(seed: int, runs: Mapping[Setting, Run]) -> dict[str, Any]:
    """One epoch: validation loss of each kind, and of Transformers and LSTMs of several sizes, at every rate.

    Of the Transformers it is taken on either half of the windows, too.
    """
    del seed

    def each(name: str, size: float | int, layers: int, half: Half | None = None) -> list[float]:
        models = [runs[name, size, layers, rate].model for rate in TEXT_RATES]
        return [cost(m, "validation") if half is None else half_cost(m, half) for m in models]

    def sheets(half: Half | None = None) -> list[list[list[float]]]:
        return [[each("sheet", heads, layers, half) for layers in LAYERS] for heads in HEADS]

    own = {"sheet": (2, 2), "Transformer": (2, 2), "LSTM": (1.0, 1), "linear": (2, 2)}
    sizes = ("heads", "layers", "rate")
    return {
        "one": (("kind", "rate"), [each(name, *own[name]) for name in KINDS]),
        "sheet": (sizes, sheets()),
        "halves": (("half", *sizes), [sheets(half) for half in SPLITS]),
        "lstm": (("share", "rate"), [each("LSTM", share, 1) for share in SHARES]),
    }


# Twenty epochs ---------------------------------------------------------------------------------------------

EPOCHS = 20
TUNED_FOR = 3 * EPOCH
RACERS = ("sheet", "LSTM")
WAYS = ("side by side", "overlapping", "carried")
LITTLE = replace(TEXT, share=TEXT.share / 10)
FEW = 180
"""Steps on a tenth of the text: forty times as many words as that has."""


def text_job(name: str, seed: int, steps: int, task: WordText = TEXT, **more: Any) -> Job:
    """A language model of a kind, at the rate that suits it best over three epochs."""
    config, options = kind(name, TEXT.vocab)
    given = {"batch_size": BATCH, **options}
    named = f"recurrent-text-{name.lower()}"
    search = Search(named, config, TEXT, TEXT_RATES, tuning_seeds(2), TUNED_FOR, given)
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **given, **more)


def epochs_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Every kind for twenty epochs, and the two of the sheet on a tenth of the text."""
    jobs = {}
    for name in KINDS:
        jobs[name, "all"] = text_job(name, seed, EPOCHS * EPOCH, evaluate_every=EPOCH)
        if name in RACERS:
            jobs[name, "tenth"] = text_job(name, seed, FEW, LITTLE, evaluate_every=15)
    return jobs


@measurement(
    seeds=SEEDS,
    coords={
        "kind": KINDS,
        "epoch": tuple(range(1, EPOCHS + 1)),
        "way": WAYS,
        "part": PARTS,
        "racer": RACERS,
    },
    trainings=epochs_trainings,
    repeat="opening",
)
def epochs(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Twenty epochs: nats a word after each, at the end on all parts, and the best on a tenth of the text."""
    del seed
    whole = [runs[name, "all"] for name in KINDS]
    tenth = [float(runs[name, "tenth"].evaluation_losses.min()) for name in RACERS]
    ways = [
        [
            cost(run.model, "validation"),
            cost(run.model, "validation", fresh=8),
            carried(run.model, "validation") if name in ("LSTM", "linear") else math.nan,
        ]
        for name, run in zip(KINDS, whole, strict=True)
    ]
    return {
        "validation": (("kind", "epoch"), [run.evaluation_losses for run in whole]),
        "training": (
            ("kind", "epoch"),
            [run.losses.reshape(EPOCHS, EPOCH).mean(1) for run in whole],
        ),
        "end": (("kind", "part"), [[cost(run.model, part) for part in PARTS] for run in whole]),
        "tenth": ("racer", tenth),
        "ways": (("kind", "way"), ways),
        "weights": (
            "kind",
            [body_weights(run.model) for run in whole],
        ),
    }


def body_weights(model: Model) -> int:
    """How many weights a model has between its embedding and its final norm."""
    assert isinstance(model, Decoder)
    return sum(weight.numel() for weight in model.blocks.parameters())


# Twenty epochs, on fresh seeds and at rates of their own -----------------------------------------------------

BEYOND, MANY = 1000, 20
"""What is added to the seeds of `epochs_afresh`, and how many it has."""
FARTHER, MOST = 4000, 60
"""What is added to the seeds of `epochs_settled`, besides, and how many it has."""
ENOUGH = 12
"""Seeds at rates that are chosen for twenty epochs."""
LOWER_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
"""The grid for twenty epochs: of the grid for text, the lowest rate is the best for both."""


def afresh_trainings(seed: int) -> dict[str, Job]:
    """The two of the sheet for twenty epochs, with seeds of which no other measurement has any."""
    steps = EPOCHS * EPOCH
    return {name: text_job(name, BEYOND + seed, steps, evaluate_every=EPOCH) for name in RACERS}


def settling_trainings(seed: int) -> dict[str, Job]:
    """The same with further seeds."""
    return afresh_trainings(FARTHER + seed)


def own_rate_trainings(seed: int) -> dict[str, Job]:
    """The two of the sheet for twenty epochs, each at the rate that ends lowest after so many."""
    jobs, steps = {}, EPOCHS * EPOCH
    for name in RACERS:
        config, options = kind(name, TEXT.vocab)
        given = {"batch_size": BATCH, **options}
        named = f"recurrent-twenty-{name.lower()}"
        rate = tuned(Search(named, config, TEXT, LOWER_RATES, tuning_seeds(2), steps, given))
        given = {**given, "learning_rate": rate, "evaluate_every": EPOCH}
        jobs[name] = job(config, TEXT, seed, steps=steps, **given)
    return jobs


def by_epoch(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Nats a word of the validation part after each epoch, and the rate of each."""
    return {
        "validation": (("kind", "epoch"), [runs[name].evaluation_losses for name in RACERS]),
        "rate": ("kind", [runs[name].rates.max() for name in RACERS]),
    }


@measurement(
    seeds=MANY,
    coords={"kind": RACERS, "epoch": tuple(range(1, EPOCHS + 1))},
    trainings=afresh_trainings,
    repeat="opening",
)
def epochs_afresh(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twenty epochs of the two of the sheet on twenty fresh seeds: nats a word after each."""
    del seed
    return by_epoch(runs)


@measurement(
    seeds=MOST,
    coords={"kind": RACERS, "epoch": tuple(range(1, EPOCHS + 1))},
    trainings=settling_trainings,
    repeat="opening",
)
def epochs_settled(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twenty epochs of the two of the sheet on sixty further seeds: nats a word after each."""
    del seed
    return by_epoch(runs)


@measurement(
    seeds=ENOUGH,
    coords={"kind": RACERS, "epoch": tuple(range(1, EPOCHS + 1))},
    trainings=own_rate_trainings,
    repeat="opening",
)
def own_rates(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twenty epochs of the two of the sheet, each at the rate that suits twenty: nats a word after each."""
    del seed
    return by_epoch(runs)


# Three epochs, by depth -------------------------------------------------------------------------------------

BLOCKS = (1, 2, 3, 6)


def depth_job(placed: str, blocks: int, seed: int) -> Job:
    """A Transformer for three epochs, at the rate that suits its depth."""
    config, options = kind(placed, TEXT.vocab)
    config = config.replace(n_layers=blocks)
    given = {"batch_size": BATCH, **options}
    named = f"recurrent-depth-{placed.lower()}-{blocks}"
    search = Search(named, config, TEXT, TEXT_RATES, tuning_seeds(2), TUNED_FOR, given)
    return job(config, TEXT, seed, steps=TUNED_FOR, learning_rate=tuned(search), **given)


def depth_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Three epochs with either placement of the norm, at every depth and at the rate that suits it."""
    return {(name, blocks): depth_job(name, blocks, seed) for name in PLACED for blocks in BLOCKS}


@measurement(
    seeds=10,
    coords={"placed": PLACED, "blocks": BLOCKS},
    trainings=depth_trainings,
    repeat="opening",
)
def depth(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Three epochs: nats a word in validation and in training, by placement of the norm and depth."""
    del seed
    parts: tuple[Part, ...] = ("validation", "train")
    return {
        name: (
            ("placed", "blocks"),
            [[cost(runs[placed, blocks].model, part) for blocks in BLOCKS] for placed in PLACED],
        )
        for name, part in zip(("validation", "training"), parts, strict=True)
    }


# Dropout ---------------------------------------------------------------------------------------------------

DROPS = ("sheet, 0.1", "LSTM, 0", "LSTM, 0.1")


def dropout_trainings(seed: int) -> dict[str, Job]:
    """Three epochs with the dropout that PyTorch's layers have by themselves, and with one for both."""
    jobs = {}
    for label in DROPS:
        name, rate = label.split(", ")
        config, options = kind(name, TEXT.vocab, dropout=float(rate))
        plain = text_job(name, seed, TUNED_FOR)
        given = {"batch_size": BATCH, **options, "learning_rate": plain.settings["learning_rate"]}
        jobs[label] = job(config, TEXT, seed, steps=TUNED_FOR, **given)
    return jobs


@measurement(seeds=SEEDS, coords={"drop": DROPS}, trainings=dropout_trainings, repeat="opening")
def dropout(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Three epochs with default and with equal dropout: nats a word of the validation part."""
    del seed
    return {"loss": ("drop", [cost(runs[label].model, "validation") for label in DROPS])}


# Far apart -------------------------------------------------------------------------------------------------

GAPS = (4, 16, 64)
READERS = ("Transformer", "LSTM", "open LSTM", "linear")
FAR_STEPS, LOOK = 600, 60


GAP_TASK = GapRecall(pairs=3, queries=3, keys=6, values=6, gaps=GAPS, fillers="words")
"""Three pairs of six keys and six values, all asked for behind a gap; sequences of 72 tokens."""


def far_trainings(seed: int) -> dict[str, Job]:
    """Every reader, at the rate that suits it."""
    return {
        name: arm_job("far", name, GAP_TASK, seed, steps=FAR_STEPS, evaluate_every=LOOK)
        for name in READERS
    }


QUIET_TASK = replace(GAP_TASK, fillers="one")
"""The same with fillers that are all one token, which no memory can mistake for a message."""
GATES = ("LSTM", "open LSTM")


def quiet_trainings(seed: int) -> dict[str, Job]:
    """Both LSTMs over fillers that do not interfere, each at the rate that suits it there."""
    return {
        name: arm_job("quiet", name, QUIET_TASK, seed, steps=FAR_STEPS, evaluate_every=LOOK)
        for name in GATES
    }


@torch.no_grad()
def right_over(
    model: Model, gap: int, seed: int, task: GapRecall = GAP_TASK, rows: int = 256
) -> float:
    """Share of right answers over one gap, in sequences as long as those of training."""
    assert isinstance(model, Decoder)
    batch = task.batch(make_generator(seed, "evaluation"), rows * len(GAPS))
    right = (model(batch.inputs).argmax(-1) == batch.targets)[batch.gold["gap"] == gap]
    return float(right.double().mean())


@measurement(
    seeds=SEEDS,
    coords={
        "reader": READERS,
        "gap": GAPS,
        "step": tuple(range(LOOK, FAR_STEPS + 1, LOOK)),
    },
    trainings=far_trainings,
    repeat="opening",
)
def far(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Recall over gaps of 4 to 64 tokens: right answers by gap, during training, and steps to 95 percent."""
    each = [runs[name] for name in READERS]
    by_gap = [[right_over(run.model, gap, seed) for gap in GAPS] for run in each]
    return {
        "accuracy": (("reader", "gap"), by_gap),
        "course": (("reader", "step"), [run.evaluation_accuracies for run in each]),
        "steps": ("reader", [steps_to(run, 0.95) for run in each]),
    }


@measurement(
    seeds=SEEDS,
    coords={
        "reader": GATES,
        "gap": GAPS,
        "step": tuple(range(LOOK, FAR_STEPS + 1, LOOK)),
    },
    trainings=quiet_trainings,
    repeat="opening",
)
def quiet(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Recall over gaps of one repeated filler: right answers by gap, and during training."""
    each = [runs[name] for name in GATES]
    by_gap = [[right_over(run.model, gap, seed, QUIET_TASK) for gap in GAPS] for run in each]
    return {
        "accuracy": (("reader", "gap"), by_gap),
        "course": (("reader", "step"), [run.evaluation_accuracies for run in each]),
    }


FILLERS: Mapping[str, GapRecall] = {"quiet": QUIET_TASK, "far": GAP_TASK}
"""One repeated filler, and keys and values."""
CHRONO = Chrono(longest=72)
"""Gates as Tallec and Ollivier start them, for sequences of 72 tokens."""


def chrono_trainings(seed: int) -> dict[str, Job]:
    """An LSTM with that start over both kinds of fillers, each at the rate that suits it there."""
    found = {}
    for name, task in FILLERS.items():
        config, options = kind("LSTM", task.vocab)
        given = {"batch_size": 32, **options, "prepare": CHRONO}
        search = Search(
            f"recurrent-{name}-chrono", config, task, RATES, tuning_seeds(2), FAR_STEPS, given
        )
        rate = tuned(search)
        found[name] = job(config, task, seed, steps=FAR_STEPS, learning_rate=rate, **given)
    return found


@measurement(
    seeds=SEEDS,
    coords={"fillers": tuple(FILLERS), "gap": GAPS},
    trainings=chrono_trainings,
    repeat="opening",
)
def chrono(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Recall over gaps with gates that start as in the paper on chrono initialisation: right answers by gap."""
    by_gap = [
        [right_over(runs[name].model, gap, seed, task) for gap in GAPS]
        for name, task in FILLERS.items()
    ]
    return {"accuracy": (("fillers", "gap"), by_gap)}


FRESH = 1000
"""Seeds of `chrono_again` count from here: none of them was seen before."""
STARTS = ("LSTM", "chrono")


def chrono_again_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """That start and the usual one over both kinds of fillers, from fresh seeds."""
    own = chrono_trainings(FRESH + seed)
    usual = {
        name: arm_job(name, "LSTM", task, FRESH + seed, steps=FAR_STEPS)
        for name, task in FILLERS.items()
    }
    return {
        (start, name): one
        for start, jobs in zip(STARTS, (usual, own), strict=True)
        for name, one in jobs.items()
    }


@measurement(
    seeds=SEEDS,
    coords={"start": STARTS, "fillers": tuple(FILLERS), "gap": GAPS},
    trainings=chrono_again_trainings,
    repeat="opening",
)
def chrono_again(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Recall over gaps with the usual start and with that of the paper, from fresh seeds: right answers."""
    by_gap = [
        [
            [right_over(runs[start, name].model, gap, FRESH + seed, task) for gap in GAPS]
            for name, task in FILLERS.items()
        ]
        for start in STARTS
    ]
    return {"accuracy": (("start", "fillers", "gap"), by_gap)}


def steps_to(run: Run, level: float) -> float:
    """The last look at which less than a level was right, one look at least."""
    below = run.evaluated[run.evaluation_accuracies < level]
    return float(below[-1]) if len(below) else float(run.evaluated[0])


DISTANCES = (1, 2, 4, 8, 16, 32, 64)


@measurement(
    seeds=10, coords={"reader": READERS, "distance": DISTANCES}, tolerance={"influence": 1e-4}
)
def influence(seed: int) -> dict[str, Any]:
    """Before training: length of a last logit's gradient with respect to a token so many positions back."""
    task = GAP_TASK
    found = []
    for name in READERS:
        config, options = kind(name, task.vocab)
        model = make_model(config, causal=True, seed=seed).eval()
        if "prepare" in options:
            options["prepare"](model)
        found.append(influence_of(model, seed))
    return {"influence": (("reader", "distance"), found)}


def influence_of(model: Model, seed: int, rows: int = 8) -> list[float]:
    """Mean length, over rows, of the gradient of a drawn logit at the last position, by distance."""
    assert isinstance(model, Decoder)
    generator, n = make_generator(seed, "influence"), max(DISTANCES) + 1
    tokens = torch.randint(model.config.vocab, (rows, n), generator=generator)
    positions = model.resolve_positions(tokens)
    x, rotation, bias = model.embed(tokens, positions)
    x = x.detach().requires_grad_()
    logits = model.unembed(model.run_blocks(x, positions, rotation, bias))
    chosen = torch.randint(model.config.vocab, (rows,), generator=generator)
    (gradient,) = torch.autograd.grad(logits[torch.arange(rows), -1, chosen].sum(), x)
    lengths: Float[Tensor, "position"] = gradient.norm(dim=-1).mean(0)
    return [float(lengths[n - 1 - k]) for k in DISTANCES]


# Many pairs ------------------------------------------------------------------------------------------------

PAIRS = (4, 16)
MEMORIES = ("Transformer", "LSTM", "linear", "linear attention", "hybrid")
PAIR_STEPS = 300


def pairs_task(pairs: int) -> GapRecall:
    """Pairs of sixteen keys and eight values, four fillers, and four of the keys."""
    return GapRecall(pairs=pairs, queries=4, keys=16, values=8, gaps=(4,))


def pairs_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Every memory with 4 and 16 pairs, at the rate that suits it with 8."""
    return {
        (name, pairs): arm_job(
            "pairs", name, pairs_task(pairs), seed, steps=PAIR_STEPS, tune_on=pairs_task(8)
        )
        for name in MEMORIES
        for pairs in PAIRS
    }


@measurement(
    seeds=10,
    coords={"memory": MEMORIES, "pairs": PAIRS},
    trainings=pairs_trainings,
    repeat="opening",
)
def recall(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Recall among 4 and 16 pairs: share of right answers on sequences held out."""
    found = [
        [evaluate(runs[name, n].model, pairs_task(n), seed=seed).accuracy for n in PAIRS]
        for name in MEMORIES
    ]
    return {"accuracy": (("memory", "pairs"), found)}


# Parity ----------------------------------------------------------------------------------------------------

COUNTERS = ("Transformer", "LSTM", "linear")
PARITY = RunningParity(length=32)
PARITY_STEPS = 300
WIDER = (2.5e-4, 5e-4, *RATES, 6.4e-2, 1.28e-1)
"""The grid for parity, where kinds differ most in the rate that suits them."""


def parity_trainings(seed: int) -> dict[str, Job]:
    """A Transformer, an LSTM and a linear recurrence on running parity."""
    return {
        name: arm_job("parity", name, PARITY, seed, steps=PARITY_STEPS, rates=WIDER)
        for name in COUNTERS
    }


@measurement(
    seeds=10,
    coords={"counter": COUNTERS, "position": tuple(range(1, 65))},
    trainings=parity_trainings,
    repeat="opening",
)
def parity(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Running parity, learned on 32 bits: share of right answers at each of 64 positions."""
    with torch.no_grad():
        batch = PARITY.batch(make_generator(seed, "evaluation"), 512, length=64)
        found = [
            (runs[name].model(batch.inputs).argmax(-1) == batch.targets).double().mean(0)
            for name in COUNTERS
        ]
    return {"accuracy": (("counter", "position"), found)}


# Weights of bodies of such a size --------------------------------------------------------------------------

SHEET_WIDTH, SHEET_WORDS = 200, 30000


def sheet_weights() -> dict[str, tuple[int, int]]:
    """Weights of the two bodies in PyTorch's modules, two layers of width 200, and of embedding and output."""
    layer = torch.nn.TransformerEncoderLayer(SHEET_WIDTH, 2, SHEET_WIDTH, batch_first=True)
    lstm = torch.nn.LSTM(SHEET_WIDTH, SHEET_WIDTH, 2)
    bodies = [
        2 * sum(weight.numel() for weight in layer.parameters()),
        sum(weight.numel() for weight in lstm.parameters()),
    ]
    words = 2 * SHEET_WIDTH * SHEET_WORDS + SHEET_WORDS
    return {"body": (bodies[0], bodies[1]), "all": (bodies[0] + words, bodies[1] + words)}


@measurement(seeds=1, coords={"count": ("body", "all"), "family": ("Transformer", "LSTM")})
def sizes(seed: int) -> dict[str, Any]:
    """Weights of a Transformer and an LSTM of two layers of width 200, without and with their 30000 words."""
    del seed
    found = sheet_weights()
    return {"weights": (("count", "family"), [list(found["body"]), list(found["all"])])}
