"""What the chapter on encoder and decoder measures: what a decoder reads of its source, and what that is worth.

What each half sees, by formula; heads of cross-attention as alignment, on number words whose right alignment is
known; translation with the source reduced to one vector, or taken away; and filling in and classifying with
models that see both sides, or one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.alignment import alignment_scores, cross_patterns
from measured_transformer.inference.beams import BeamSearch
from measured_transformer.inference.generate import generate
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.corpora import MULTI30K
from measured_transformer.tasks.markov import Markov
from measured_transformer.tasks.masked_chain import MaskedChain, Side
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.number_alignment import aligned_words
from measured_transformer.tasks.numbers import NumberTranslation, number_words
from measured_transformer.tasks.sooner_again import SoonerAgain
from measured_transformer.tasks.subwords import SubwordTranslation
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.schedules import Noam, WarmupLinear
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.memory import Memory, MemoryKind
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.encoder_decoder.real import told

__all__ = [
    "alignment",
    "caption_examples",
    "captions",
    "classify",
    "exact",
    "examples",
    "fill",
    "told",
    "worth",
]

# What each half sees --------------------------------------------------------------------------------

DRAWS = 100
SMALL = Config(vocab=12, d_model=16, n_heads=2, n_layers=2, max_length=16)
"""A model small enough to be drawn a hundred times."""


def cross_by_hand(
    layer: MultiHeadAttention, queries_from: Tensor, keys_from: Tensor, *, exchanged: bool = False
) -> Float[Tensor, "batch query d_model"]:
    """Cross-attention head by head, by its formula.

    Args:
        layer: whose weights are used.
        queries_from, keys_from: states of the decoder and of the encoder.
        exchanged: make the mistake that keys are made as queries, and queries as keys.

    Returns:
        what the layer should write to the decoder's stream.
    """
    asking, asked = (layer.key, layer.query) if exchanged else (layer.query, layer.key)
    query, key, value = asking(queries_from), asked(keys_from), layer.value(keys_from)
    width = query.shape[-1] // layer.n_heads
    mixed = []
    for head in range(layer.n_heads):
        own = slice(head * width, (head + 1) * width)
        scores = query[..., own] @ key[..., own].transpose(-1, -2) / math.sqrt(width)
        mixed.append(scores.softmax(-1) @ value[..., own])
    return layer.output(torch.cat(mixed, -1))


def _furthest(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _sizes(generator: torch.Generator, *ranges: tuple[int, int]) -> list[int]:
    return [int(torch.randint(low, high + 1, (), generator=generator)) for low, high in ranges]


def drawn_cross_attention(draw: int) -> dict[str, float]:
    """What cross-attention of a drawn model does with drawn states."""
    generator = torch.Generator().manual_seed(draw)
    m, n = _sizes(generator, (2, 9), (2, 9))
    with seeded(draw):
        model = EncoderDecoder(SMALL).double().eval()
    block = model.decoder.blocks[0]
    layer: Any = block.cross_attention
    states, memory = (
        torch.randn(1, size, SMALL.d_model, generator=generator, dtype=torch.float64)
        for size in (m, n)
    )
    memory.requires_grad_()
    out = layer(states, memory)
    others = torch.randn(states.shape, generator=generator, dtype=torch.float64)
    others[:, 0] = states[:, 0]
    itself: Any = block.attention
    (gradient,) = torch.autograd.grad(out[:, 0].sum(), memory)
    with torch.no_grad():
        return {
            "formula": _furthest(out, cross_by_hand(layer, states, memory)),
            "exchanged": _furthest(out, cross_by_hand(layer, states, memory, exchanged=True)),
            "apart": _furthest(out[:, 0], layer(others, memory)[:, 0]),
            "together": _furthest(itself(states)[:, 0], itself(others)[:, 0]),
            "gradient": float(gradient.norm(dim=-1).min()),
        }


def _future(model: Any, source: Tensor | None, generator: torch.Generator) -> float:
    """By how much earlier outputs change when later tokens are replaced."""
    tokens = torch.randint(SMALL.vocab, (1, 7), generator=generator)
    other = tokens.clone()
    keep = int(torch.randint(1, 6, (), generator=generator))
    other[:, keep:] = (tokens[:, keep:] + 1) % SMALL.vocab

    def said(target: Tensor) -> Tensor:
        out = model(target) if source is None else model(source, target)
        return out[:, :keep]

    return _furthest(said(tokens), said(other))


@torch.no_grad()
def drawn_futures(draw: int) -> dict[str, float]:
    """How far the future reaches in a drawn decoder, with its causal mask and without."""
    found = {}
    with seeded(draw):
        both, alone = EncoderDecoder(SMALL).double().eval(), Decoder(SMALL).double().eval()
    source = torch.randint(
        SMALL.vocab, (1, 6), generator=torch.Generator().manual_seed(1000 + draw)
    )
    for name, model, stack, read in (
        ("reading", both, both.decoder, source),
        ("alone", alone, alone, None),
    ):
        for causal in (True, False):
            stack.causal = causal
            generator = torch.Generator().manual_seed(draw)
            found[f"{name}_{'masked' if causal else 'open'}"] = _future(model, read, generator)
    return found


def smallest_reach(model: Encoder | Decoder, draw: int) -> float:
    """The smallest gradient of a random combination of the output at a position by the input at a position."""
    generator = torch.Generator().manual_seed(2000 + draw)
    tokens = torch.randint(SMALL.vocab, (1, 5), generator=generator)
    weights = torch.randn(SMALL.d_model, generator=generator, dtype=torch.float64)
    positions = model.resolve_positions(tokens)
    start = model.embed(tokens, positions)[0].detach().requires_grad_()
    out = model.apply_final_norm(model.run_blocks(start, positions))[0] @ weights
    gradients = [torch.autograd.grad(each, start, retain_graph=True)[0][0] for each in out]
    return float(torch.stack(gradients).norm(dim=-1).min())


@torch.no_grad()
def drawn_heads(draw: int) -> dict[str, float]:
    """What a drawn output head makes of drawn tokens."""
    found = {}
    generator = torch.Generator().manual_seed(draw)
    source, target = (torch.randint(SMALL.vocab, (1, 6), generator=generator) for _ in range(2))
    for tied in (True, False):
        with seeded(draw):
            model = EncoderDecoder(SMALL.replace(tie_embeddings=tied)).double().eval()
        with capture(model, "decoder.final_state") as seen:
            logits = model(source, target)
        state = seen["decoder.final_state"] * SMALL.logit_scale
        by_embedding = state @ model.encoder.token_embedding.weight.T
        found["tied" if tied else "untied"] = _furthest(logits, by_embedding)
    chances = logits.softmax(-1)
    return {
        **found,
        "sum": float((chances.sum(-1) - 1).abs().max()),
        "logits_sum": float((logits.sum(-1) - 1).abs().min()),
        "log": _furthest(chances, logits.log_softmax(-1).exp()),
        "sigmoid": _furthest(chances, logits.sigmoid()),
    }


_ERRORS = (
    *("formula", "apart", "reading_masked", "alone_masked", "tied", "sum", "log"),
    *("exchanged", "together", "gradient", "reading_open", "alone_open", "untied"),
    *("logits_sum", "sigmoid", "reach", "causal_reach"),
)


@measurement(
    seeds=1,
    coords={"draw": tuple(range(DRAWS)), "side": ("query", "key")},
    tolerance=dict.fromkeys(_ERRORS, 1e-9),
)
def exact(seed: int) -> dict[str, Any]:
    """A hundred drawn models: cross-attention by formula, what each half sees, and the output head."""
    del seed
    rows = []
    for draw in range(DRAWS):
        with seeded(draw):
            sees, causal = Encoder(SMALL).double().eval(), Decoder(SMALL).double().eval()
        rows.append(
            {
                **drawn_cross_attention(draw),
                **drawn_futures(draw),
                **drawn_heads(draw),
                "reach": smallest_reach(sees, draw),
                "causal_reach": smallest_reach(causal, draw),
            }
        )
    found: dict[str, Any] = {name: ("draw", [row[name] for row in rows]) for name in _ERRORS}
    with seeded(0), torch.no_grad():
        model = EncoderDecoder(SMALL).eval()
        with capture(model, "decoder.blocks.0.cross_attention.pattern") as seen:
            model(torch.zeros(1, 12, dtype=torch.int64), torch.zeros(1, 7, dtype=torch.int64))
    (pattern,) = seen.values()
    return {**found, "shape": ("side", [float(size) for size in pattern.shape[-2:]])}


# Number words, and which word comes from which ---------------------------------------------------------

NUMBERS = NumberTranslation("en", "de", below=10_000, train_share=0.5)
WIDTH, STEPS = 32, 300
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
FACTORS = (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""What the rate of the original recipe's schedule is multiplied by."""


@cache
def _alignments() -> Int[Tensor, "number word"]:
    rows = [aligned_words(number) for number in range(NUMBERS.below)]
    return torch.tensor([[*row, *[-1] * (NUMBERS.length - len(row))] for row in rows])


@cache
def _part(part: str) -> Tensor:
    return torch.tensor(replace(NUMBERS, part=part).numbers())  # type: ignore[arg-type]


def gold_alignment(batch: Batch, part: str) -> Int[Tensor, "batch position"]:
    """The right alignment of a batch of `NUMBERS`, -1 where a target position has none."""
    return _alignments()[_part(part)[batch.gold["item"]]]


def _trained(name: str, config: Config, task: Task, seed: int, **options: Any) -> Job:
    """A run at the rate that suits its arm."""
    rates = FACTORS if isinstance(options["schedule"], Noam) else RATES
    options = {"batch_size": 32, **options}
    search = Search(f"encdec-{name}", config, task, rates, tuning_seeds(2), STEPS, options)
    return job(config, task, seed, steps=STEPS, learning_rate=tuned(search), **options)


def _translator(name: str, task: Task, seed: int, kind: MemoryKind) -> Job:
    config = Config(vocab=task.vocab, d_model=WIDTH, n_layers=1, n_heads=4, max_length=16)
    schedule = WarmupLinear(20, STEPS)
    return _trained(f"{name}-{kind}", config, task, seed, schedule=schedule, prepare=Memory(kind))


ORIGINAL = Config(
    vocab=1,
    d_model=128,
    n_layers=2,
    n_heads=4,
    max_length=32,
    placement="post",
    activation="relu",
    tie_embeddings=True,
    dropout=0.1,
)
RECIPE: Mapping[str, Any] = {
    "optimiser": "Adam",
    "betas": (0.9, 0.98),
    "eps": 1e-9,
    "clip": None,
    "label_smoothing": 0.1,
}
"""What models of Vaswani et al. (2017) are like and how they are trained, but for their sizes."""


def recipe_trainings(seed: int) -> dict[str, Job]:
    """A translator of number words, trained by the recipe of Vaswani et al. (2017) in small."""
    config = ORIGINAL.replace(vocab=NUMBERS.vocab, d_model=WIDTH, n_layers=1, max_length=16)
    schedule = Noam(WIDTH, 30)
    return {"model": _trained("numbers-recipe", config, NUMBERS, seed, schedule=schedule, **RECIPE)}


LAYERS, HEADS = (0,), tuple(range(4))
SENTENCES = 500


def _scored_alignment(model: Model, seed: int, part: str) -> dict[str, Any]:
    """Scores of every head on words of one part of the numbers; see `alignment`."""
    task = replace(NUMBERS, part=part)  # type: ignore[arg-type]
    batch = task.batch(make_generator(seed, f"alignment, {part}"), SENTENCES)
    gold = gold_alignment(batch, part)
    words = batch.scored & (batch.targets != task.end)
    links = cross_patterns(model, batch).argmax(-1)
    accuracy, error = alignment_scores(links, gold, words)
    # The row in which a word is the decoder's input is the one behind the row that predicts it.
    read, _ = alignment_scores(links[..., 1:], gold[:, :-1], words[:, :-1])
    moved = torch.where(gold == torch.arange(gold.shape[1]), -1, gold)
    turned, _ = alignment_scores(links, moved, words)
    has = gold >= 0
    place = torch.arange(gold.shape[1]).expand_as(gold)[:, None, None]
    diagonal, _ = alignment_scores(place, gold, words)
    return {
        "accuracy": accuracy,
        "error": error,
        "read": read,
        "turned": turned,
        "diagonal": float(diagonal),
        "moved": float((moved >= 0).sum() / has.sum()),
    }


_SHARES = dict.fromkeys(("accuracy", "error", "read", "turned", "validation"), 0.3)


@measurement(
    seeds=6,
    coords={"model": ("trained", "untrained"), "layer": LAYERS, "head": HEADS},
    trainings=recipe_trainings,
    repeat="opening",
    tolerance=_SHARES,
)
def alignment(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How well the largest weights of cross-attention agree with the right alignment, head by head.

    On test numbers: `accuracy` in the row that predicts a word, `read` in the row that reads it, `turned` for
    words that do not stand where their source word stands, `error` the alignment error rate. `validation` is
    the accuracy on other numbers, to choose a head by. `diagonal` is the accuracy of linking equal places.
    """
    trained = runs["model"].model
    untrained = make_model(trained.config, causal=True, source=True, seed=seed).eval()
    test = [_scored_alignment(model, seed, "test") for model in (trained, untrained)]
    chosen = [_scored_alignment(model, seed, "validation") for model in (trained, untrained)]
    axes = ("model", "layer", "head")
    score = evaluate(trained, NUMBERS, seed=seed, size=SENTENCES, part="test")
    return {
        **{
            name: (axes, torch.stack([each[name] for each in test]))
            for name in ("accuracy", "error", "read", "turned")
        },
        "validation": (axes, torch.stack([each["accuracy"] for each in chosen])),
        "diagonal": test[0]["diagonal"],
        "moved": test[0]["moved"],
        "tokens": score.accuracy,
        "whole": score.exact,
    }


SHOWN = 3
"""Numbers whose patterns are kept for the figure and the viewer."""


@cache
def shown_numbers() -> tuple[int, ...]:
    """Test numbers with seven English and seven German words: one in the middle of each third of them."""
    names = ((n, number_words(n, "en"), number_words(n, "de")) for n in _part("test").tolist())
    long = [n for n, en, de in names if len(en) == len(de) == 7]
    return tuple(long[len(long) * (2 * i + 1) // (2 * SHOWN)] for i in range(SHOWN))


@measurement(
    seeds=1,
    coords={
        "example": tuple(range(SHOWN)),
        "layer": LAYERS,
        "head": HEADS,
        "query": tuple(range(8)),
        "key": tuple(range(8)),
    },
    trainings=recipe_trainings,
    repeat="opening",
    tolerance={"pattern": 1.0},
)
def examples(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The weights of cross-attention of one model, for three numbers that it has not seen in training."""
    del seed
    task = replace(NUMBERS, part="test")
    numbers = shown_numbers()
    order = _part("test").tolist()
    whole = task.batch(torch.Generator().manual_seed(0), 1)
    sources, targets = (
        torch.tensor(
            [
                [*(task.words().index(word) for word in number_words(n, language)), task.end]
                for n in numbers
            ]
        )
        for language in ("en", "de")
    )
    inputs = torch.cat([torch.full((len(numbers), 1), task.start), targets[:, :-1]], 1)
    true = torch.ones_like(targets, dtype=torch.bool)
    batch = replace(
        whole,
        inputs=inputs,
        targets=targets,
        scored=true,
        padding_mask=true,
        source=sources,
        source_padding_mask=true,
        gold={"item": torch.tensor([order.index(n) for n in numbers])},
    )
    pattern = cross_patterns(runs["model"].model, batch)
    return {
        "pattern": (("example", "layer", "head", "query", "key"), pattern.round(decimals=4)),
        "number": ("example", [float(n) for n in numbers]),
        "right": float((predict(runs["model"].model, batch).argmax(-1) == targets).float().mean()),
    }


# The source as one vector, and none at all ------------------------------------------------------------

REVERSAL = NoisyTranslation(symbols=10, length=14, pad_share=0.4, noise=0.0)
KINDS: tuple[MemoryKind, ...] = ("all", "mean", "last", "none")
READS = (*KINDS, "taken away")
"""What the decoder reads: `KINDS`; and all, with cross-attention's output set to zero after training."""
FEWER = ("all", "mean", "taken away")
"""Those that are tried on number words."""
LENGTHS = (4, 6, 8, 10)
_POOL, _MOST = 12_000, 250


def memory_trainings(seed: int) -> dict[tuple[str, MemoryKind], Job]:
    """Each kind of memory on reversals, two of them on number words, at the rates that suit them."""
    kinds: tuple[MemoryKind, ...] = ("all", "mean")
    return {
        **{("reversal", kind): _translator("reversal", REVERSAL, seed, kind) for kind in KINDS},
        **{("numbers", kind): _translator("numbers", NUMBERS, seed, kind) for kind in kinds},
    }


def _rows(batch: Batch, rows: Tensor) -> Batch:
    assert batch.padding_mask is not None
    assert batch.source is not None
    assert batch.source_padding_mask is not None
    return Batch(
        batch.inputs[rows],
        batch.targets[rows],
        batch.scored[rows],
        batch.padding_mask[rows],
        batch.source[rows],
        batch.source_padding_mask[rows],
    )


@torch.no_grad()
def shares_right(model: Model, batch: Batch, *, without: bool = False) -> tuple[float, float]:
    """Share of right tokens, and of sequences that are wholly right.

    A model that is right at every token of a sequence, given the right tokens before it, writes that sequence
    by itself: the second share is that of greedy decoding as well.

    Args:
        model: any encoder-decoder.
        batch: what it is asked.
        without: set the output of each cross-attention to zero.
    """
    changes = {"decoder.blocks.*.cross_attention.out": 0.0} if without else {}
    with intervene(model, changes):
        right = predict(model, batch).argmax(-1) == batch.targets
    tokens = float(right[batch.scored].float().mean())
    return tokens, float((right | ~batch.scored).all(1).float().mean())


@measurement(
    seeds=6,
    coords={"reads": READS, "fewer": FEWER, "length": LENGTHS},
    trainings=memory_trainings,
    repeat="opening",
    tolerance=dict.fromkeys(("reversal", "numbers", "reversal_tokens", "by_length"), 0.5),
)
def worth(seed: int, runs: Mapping[tuple[str, MemoryKind], Run]) -> dict[str, Any]:
    """What translators reach whose decoder reads all of the source, one vector of it, or nothing.

    `reversal` and `numbers` are shares of test sequences that are wholly right, `reversal_tokens` the share of
    right tokens; `by_length` is `reversal` for sequences of each length.
    """

    def shares(task: str, reads: str, batch: Batch) -> tuple[float, float]:
        without = reads == "taken away"
        model = runs[task, "all" if without else reads].model  # type: ignore[index]
        return shares_right(model, batch, without=without)

    reversals = REVERSAL.batch(make_generator(seed, "evaluation"), SENTENCES)
    held = replace(NUMBERS, part="test").batch(make_generator(seed, "evaluation"), SENTENCES)
    pool = REVERSAL.batch(make_generator(seed, "lengths"), _POOL)
    count = (pool.gold["alignment"] >= 0).sum(1)
    groups = [_rows(pool, (count == n).nonzero().flatten()[:_MOST]) for n in LENGTHS]
    found = [shares("reversal", reads, reversals) for reads in READS]
    by_length = [[shares("reversal", reads, group)[1] for group in groups] for reads in READS]
    return {
        "reversal": ("reads", [whole for _, whole in found]),
        "reversal_tokens": ("reads", [tokens for tokens, _ in found]),
        "numbers": ("fewer", [shares("numbers", reads, held)[1] for reads in FEWER]),
        "by_length": (("reads", "length"), by_length),
    }


# One side or both -----------------------------------------------------------------------------------


CHAIN = Markov(vocab=8, length=12, branching=(2,))
FILLS: tuple[Side, ...] = ("both", "left")
WAYS = ("both", "back")
"""Where a classifier looks: both ways, or back alone."""


def _reader(name: str, task: Task, seed: int) -> Job:
    config = Config(vocab=task.vocab, d_model=WIDTH, n_layers=2, n_heads=4, max_length=16)
    return _trained(name, config, task, seed, schedule=WarmupLinear(20, STEPS))


def gaps(side: Side) -> MaskedChain:
    """The sequences with gaps, for a model that sees this side of a gap."""
    return MaskedChain(CHAIN, share=0.15, side=side)


def fill_trainings(seed: int) -> dict[Side, Job]:
    """Models that see both sides of a gap, or one."""
    return {side: _reader(f"fill-{side}", gaps(side), seed) for side in FILLS}


@measurement(
    seeds=8,
    coords={"side": FILLS},
    trainings=fill_trainings,
    repeat="opening",
    tolerance=dict.fromkeys(("accuracy", "loss", "ideal"), 0.5),
)
def fill(seed: int, runs: Mapping[Side, Run]) -> dict[str, Any]:
    """Filling in hidden tokens, by what may be seen.

    `ideal` is the expected accuracy of the reader who knows the source, on the same sequences.
    """
    scores = [evaluate(runs[side].model, gaps(side), seed=seed, size=1000) for side in FILLS]
    ideal = []
    for side in FILLS:
        batch = gaps(side).batch(make_generator(seed, "evaluation"), 1000)
        ideal.append(float(gaps(side).ideal_chances(batch).amax(-1)[batch.scored].mean()))
    return {
        "accuracy": ("side", [score.accuracy for score in scores]),
        "loss": ("side", [score.loss for score in scores]),
        "ideal": ("side", ideal),
    }


def sooner(way: str) -> SoonerAgain:
    """The question which of two tokens comes again sooner, for a model that looks this way."""
    return SoonerAgain(vocab=8, length=8, causal=way == "back")


def class_trainings(seed: int) -> dict[str, Job]:
    """Classifiers that look both ways, or back alone."""
    return {way: _reader(f"sooner-{way}", sooner(way), seed) for way in WAYS}


@measurement(
    seeds=8,
    coords={"way": WAYS},
    trainings=class_trainings,
    repeat="opening",
    tolerance={"accuracy": 1.0},
)
def classify(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Which of two tokens comes again sooner: right answers of models that look both ways, or back alone."""
    scores = [evaluate(runs[way].model, sooner(way), seed=seed, size=1000) for way in WAYS]
    return {"accuracy": ("way", [score.accuracy for score in scores])}


# Real sentences --------------------------------------------------------------------------------------

PIECES, LONGEST = 4000, 24
CAPTIONS = SubwordTranslation("en", "de", pieces=PIECES, most_tokens=LONGEST)
CAPTION_STEPS, CAPTION_SEARCH, CAPTION_EVERY = 2400, 600, 300
"""Batches of a training and of the shorter trainings by which its rate is chosen; between two looks at it."""
CAPTION_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
CAPTION_AT = tuple(range(CAPTION_EVERY, CAPTION_STEPS + 1, CAPTION_EVERY))
TRANSLATED, TOGETHER = 300, 50
"""Test captions that are translated, and how many at once."""
BEAMS, PENALTIES = (1, 4, 16, 64), (0.0, 1.0)
CHARACTERS = 160
CAPTIONS_SHOWN = 6


def caption_trainings(seed: int) -> dict[str, Job]:
    """A translator of captions, trained by the recipe of Vaswani et al. (2017) in small."""
    config = ORIGINAL.replace(vocab=PIECES + 4)
    options = {**RECIPE, "schedule": Noam(config.d_model, 400), "batch_size": 64}
    search = Search(
        "encdec-captions",
        config,
        CAPTIONS,
        CAPTION_FACTORS,
        tuning_seeds(1),
        CAPTION_SEARCH,
        options,
    )
    return {
        "model": job(
            config,
            CAPTIONS,
            seed,
            steps=CAPTION_STEPS,
            learning_rate=tuned(search),
            evaluate_every=CAPTION_EVERY,
            **options,
        )
    }


@cache
def test_captions() -> Batch:
    """Test captions, the same for every model; none comes twice."""
    task = replace(CAPTIONS, part="test")
    batch = task.batch(make_generator(0, "captions to translate"), 2 * TRANSLATED)
    first: dict[int, int] = {}
    for row, item in enumerate(batch.gold["item"].tolist()):
        first.setdefault(item, row)
    return _rows(batch, torch.tensor([*first.values()][:TRANSLATED]))


def written(model: Model, batch: Batch, strategy: BeamSearch | None = None) -> list[str]:
    """The German that a model writes for English captions, as text."""
    assert isinstance(model, EncoderDecoder)
    assert batch.source is not None
    assert batch.source_padding_mask is not None
    prompts = [row[real] for row, real in zip(batch.source, batch.source_padding_mask, strict=True)]
    found: list[str] = []
    for start in range(0, len(prompts), TOGETHER):
        made = generate(
            model,
            prompts[start : start + TOGETHER],
            max_new_tokens=CAPTIONS.length,
            strategy=strategy,
            start=CAPTIONS.start,
            stop=CAPTIONS.end,
        )
        found += [CAPTIONS.text(tokens) for tokens in made.tokens]
    return found


def bleu(outputs: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """BLEU by sacrebleu with its usual tokenizer, from 0 to 1; and the outputs' length over the references'."""
    from sacrebleu.metrics.bleu import BLEU

    score = BLEU().corpus_score(list(outputs), [list(references)])
    return float(score.score) / 100, score.sys_len / score.ref_len


@torch.no_grad()
def source_loss(model: Model, batch: Batch, source: int) -> float:
    """Loss on test captions, in nats a piece, when each is read with the source of the one `source` further."""
    assert batch.source is not None
    assert batch.source_padding_mask is not None
    read = replace(
        batch,
        source=batch.source.roll(source, 0),
        source_padding_mask=batch.source_padding_mask.roll(source, 0),
    )
    logits = predict(model, read)[batch.scored]
    return float(F.cross_entropy(logits, batch.targets[batch.scored]))


@measurement(
    seeds=6,
    coords={
        "beams": BEAMS,
        "penalty": PENALTIES,
        "source": ("own", "another's"),
        "at": CAPTION_AT,
    },
    trainings=caption_trainings,
    repeat="opening",
    tolerance={"bleu": 0.1, "length": 0.3, "mismatched": 0.1, "loss": 1.0, "curve": 0.3},
    corpora=MULTI30K,
)
def captions(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Captions translated from English to German: BLEU by width of the beam and length penalty, and losses.

    `bleu` is sacrebleu's of 300 test captions, `length` the ratio of lengths. `mismatched` is the BLEU of the
    same translations against the references of the next captions. `loss` is that of test captions read with
    their own source or with another caption's.
    """
    del seed
    run, batch = runs["model"], test_captions()
    references = [CAPTIONS.text(row) for row in batch.targets]
    scores, lengths = [], []
    for beams in BEAMS:
        made = [
            written(run.model, batch, BeamSearch(beams, penalty) if beams > 1 else None)
            for penalty in (PENALTIES if beams > 1 else PENALTIES[:1])
        ]
        if beams == 1:
            greedy = made[0]
            made *= len(PENALTIES)
        scored = [bleu(texts, references) for texts in made]
        scores.append([score for score, _ in scored])
        lengths.append([length for _, length in scored])
    return {
        "bleu": (("beams", "penalty"), scores),
        "length": (("beams", "penalty"), lengths),
        "mismatched": bleu(greedy, references[1:] + references[:1])[0],
        "loss": ("source", [source_loss(run.model, batch, further) for further in (0, 1)]),
        "curve": ("at", run.evaluation_accuracies),
    }


def letters(texts: Sequence[str]) -> tuple[tuple[str, str], list[list[float]]]:
    """Texts as the numbers of their characters, filled up with zeros."""
    rows = [[float(ord(letter)) for letter in text[:CHARACTERS]] for text in texts]
    return ("caption", "character"), [[*row, *[0.0] * (CHARACTERS - len(row))] for row in rows]


@measurement(
    seeds=1,
    coords={"caption": tuple(range(CAPTIONS_SHOWN)), "character": tuple(range(CHARACTERS))},
    trainings=caption_trainings,
    repeat="opening",
    tolerance=dict.fromkeys(("source", "reference", "greedy", "beam"), 2000.0),
    corpora=MULTI30K,
)
def caption_examples(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The first of these captions, and what one model makes of them, as numbers of their characters."""
    del seed
    batch, model = test_captions(), runs["model"].model
    assert batch.source is not None
    few = _rows(batch, torch.arange(CAPTIONS_SHOWN))
    assert few.source is not None
    texts = {
        "source": [CAPTIONS.text(row) for row in few.source],
        "reference": [CAPTIONS.text(row) for row in few.targets],
        "greedy": written(model, few),
        "beam": written(model, few, BeamSearch(4, 1.0)),
    }
    return {name: letters(lines) for name, lines in texts.items()}
