"""What the chapter on language models measures.

What is exact about probabilities of sequences and about a course's model; a model that peeks; a language of
known entropy; one text cut in three ways; the book's own language model, its calibration and what it writes;
and a scaling law, with what it says of models that it was not fitted to.
"""

from __future__ import annotations

import itertools
import lzma
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from measured_transformer.analysis.calibration import answers, reliability
from measured_transformer.analysis.scaling import ScalingLaw, fit_law
from measured_transformer.inference.generate import Generated, Greedy, generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.windows import SlidingWindow
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import (
    BytePairs,
    merges_of,
    pieces,
    text_bytes,
    tokens_of,
)
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.markov import Markov
from measured_transformer.tasks.task import Batch, Part
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.course_model import CourseModel
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F
from xarray import Dataset

from measured_book.evidence.kept_weights import packed, unpacked
from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.language_models.identities import (
    DRAWS,
    PAIRS,
    branching,
    checkpoint,
    linear_head,
    other_sequences,
    sampled,
    unembedding,
)


@measurement(
    seeds=1,
    coords={"check": tuple(PAIRS), "draw": tuple(range(DRAWS))},
    tolerance={"error": 1e-9, "control": 1e-6, "linear": 1e-9, "linear_control": 1e-6, "p": 1e-6}
    | {"p_control": 1e-6, "without": 1e-9, "geometric": 1e-9},
)
def exact(seed: int) -> dict[str, Any]:
    """What holds to the last digits: a hundred draws each, and what must not hold beside it."""
    del seed
    found = {}
    for name, function in PAIRS.items():
        with torch.set_grad_enabled(name in ("kept", "untrained", "moves")):
            found[name] = [function(d) for d in range(DRAWS)]
    with torch.no_grad():
        head = linear_head()
        drawn = [sampled(d) for d in range(DRAWS)]
        saved = [checkpoint(d) for d in range(DRAWS)]
        fits = [unembedding(d)[0] for d in range(DRAWS)]
    return {
        "error": (("check", "draw"), [[a for a, _ in each] for each in found.values()]),
        "control": (("check", "draw"), [[b for _, b in each] for each in found.values()]),
        "linear": ("draw", [a for a, _ in head]),
        "linear_control": ("draw", [b for _, b in head]),
        "p": ("draw", [a for a, _ in drawn]),
        "p_control": ("draw", [b for _, b in drawn]),
        "without": ("draw", [each[1] for each in saved]),
        "refused": ("draw", [each[2] for each in saved]),
        "exists": ("draw", fits),
        "geometric": ("draw", [branching(d)[2] for d in range(DRAWS)]),
    }


def one_batch(steps: int = 200) -> float:
    """Loss of the sheet's model on one batch after it has trained on that batch alone."""
    with seeded(0):
        model = CourseModel(50, 32)
        tokens = torch.randint(50, (4, 13))
    updates = torch.optim.Adam(model.parameters(), 1e-2)
    loss = torch.tensor(math.nan)
    for _ in range(steps):
        updates.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])
        loss.backward()
        updates.step()
    return loss.item()


@measurement(seeds=1, coords={"axis": tuple(range(4))}, tolerance={"one_batch": 0.01})
def shapes(seed: int) -> dict[str, Any]:
    """Shapes, counts, and the loss on one batch that is trained on alone."""
    del seed
    with torch.device("meta"):
        sizes = Config(vocab=30522, d_model=768, n_layers=1, n_heads=12, positions="none")
        table = Decoder(sizes).token_embedding
        embedded = table(torch.zeros(50, dtype=torch.long))
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, batch_first=True), 2)
    uniform = F.cross_entropy(torch.zeros(1, 30000, dtype=torch.float64), torch.tensor([7]))
    return {
        "embedding": ("axis", [*table.weight.shape, *embedded.shape]),
        "encoder": other_sequences(encoder),
        "decoder": other_sequences(decoder),
        "linear": ("pair", list(nn.Linear(200, 30000, device="meta").weight.shape)),
        "logits": ("three", list(CourseModel(1000)(torch.zeros(8, 35, dtype=torch.long)).shape)),
        "one_batch": one_batch(),
        "uniform": round(math.exp(float(uniform)), 6),
    }


# Perplexity and the vocabulary --------------------------------------------------------------------------

VOCABULARIES = (1000, 1500, 2000, 2500, 3000, 3500)
WORD = re.compile(r"\w+|[^\w\s]")


@cache
def words(part: Part) -> list[str]:
    """A part of the text in words and marks."""
    return WORD.findall(text_bytes(part).decode("utf-8", errors="ignore"))


def counted_perplexity(vocab: int) -> float:
    """Perplexity on validation text of counts of pairs of words, of which the most frequent are kept.

    Pairs are mixed with counts of single words, and these with equal shares, as Witten and Bell (1991) do.
    """
    kept = {word for word, _ in Counter(words("train")).most_common(vocab - 1)}
    seen, text = (["" if w not in kept else w for w in words(p)] for p in ("train", "validation"))
    single = Counter(seen)
    pairs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for a, b in itertools.pairwise(seen):
        pairs[a][b] += 1
    cost = 0.0
    for a, b in itertools.pairwise(text):
        chance = (single[b] + len(single) / vocab) / (len(seen) + len(single))
        if a in pairs:
            after = pairs[a]
            chance = (after[b] + len(after) * chance) / (after.total() + len(after))
        cost -= math.log(chance)
    return math.exp(cost / (len(text) - 1))


@measurement(seeds=1, coords={"vocabulary": VOCABULARIES})
def vocabularies(seed: int) -> dict[str, Any]:
    """Perplexity of counts of pairs of words, by how many different words are kept."""
    del seed
    found = [counted_perplexity(v) for v in VOCABULARIES]
    slope = stats.linregress(np.log(VOCABULARIES), np.log(found)).slope
    return {
        "perplexity": ("vocabulary", found),
        "slope": float(slope),
        "different": len(set(words("train"))),
    }


# A model that peeks -------------------------------------------------------------------------------------

WORLD = Lag()
RATES = (5e-4, 1.25e-3, 3e-3, 8e-3, 2e-2, 5e-2)
PEEK_STEPS = 400
ARMS = ("masked", "peeking")


@dataclass(frozen=True)
class Peeking:
    """The lag task for a model without a causal mask.

    Attributes:
        world: the task.
    """

    world: Lag = WORLD
    causal = False

    @property
    def vocab(self) -> int:
        """That of the task."""
        return self.world.vocab

    @property
    def length(self) -> int:
        """That of the task."""
        return self.world.length

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences of the task."""
        return self.world.batch(generator, size, length=length)


def _peek_training(arm: str, seed: int) -> Job:
    task = WORLD if arm == "masked" else Peeking()
    config = Config(vocab=WORLD.vocab, d_model=32, n_layers=2, n_heads=2)
    options: dict[str, Any] = {"batch_size": 32, "schedule": WarmupCosine(20, PEEK_STEPS)}
    search = Search(f"language-{arm}", config, task, RATES, tuning_seeds(2), PEEK_STEPS, options)
    return job(config, task, seed, steps=PEEK_STEPS, learning_rate=tuned(search), **options)


def peek_trainings(seed: int) -> dict[str, Job]:
    """A model with and one without the causal mask."""
    return {arm: _peek_training(arm, seed) for arm in ARMS}


@torch.no_grad()
def honest_losses(model: Model, batch: Batch) -> Tensor:
    """Cost of each target when the model is given nothing but the tokens before it."""
    n = batch.inputs.shape[1]
    last = [model(batch.inputs[:, : t + 1])[:, -1] for t in range(n)]
    logits = torch.stack(last, 1).double()
    costs = F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")
    return costs[batch.scored]


@measurement(
    seeds=10,
    coords={"arm": ARMS},
    trainings=peek_trainings,
    repeat="opening",
    tolerance={"training": 0.2, "honest": 2.0, "best": 0.1},
)
def peeking(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss in training, and on new sequences when a token sees no more than it may: with and without mask."""
    batch = WORLD.batch(make_generator(seed, "evaluation"), 256)
    return {
        "training": ("arm", [float(runs[arm].losses[-50:].mean()) for arm in ARMS]),
        "honest": ("arm", [float(honest_losses(runs[arm].model, batch).mean()) for arm in ARMS]),
        "best": float(np.nanmean(WORLD.ideal_loss(batch).numpy())),
    }


# A language of known entropy ----------------------------------------------------------------------------

SOURCE = Markov(vocab=16, length=32, branching=(2, 8), sharpness=1.0)
SOURCE_STEPS, SOURCE_EVERY = 400, 20
SOURCE_RATES = (5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 2e-1)


def source_trainings(seed: int) -> dict[str, Job]:
    """A decoder of one block."""
    config = Config(vocab=16, d_model=32, n_layers=1, n_heads=2)
    options: dict[str, Any] = {"batch_size": 32, "schedule": WarmupCosine(20, SOURCE_STEPS)}
    search = Search(
        "language-source", config, SOURCE, SOURCE_RATES, tuning_seeds(2), SOURCE_STEPS, options
    )
    more = {"learning_rate": tuned(search), "evaluate_every": SOURCE_EVERY}
    return {"model": job(config, SOURCE, seed, steps=SOURCE_STEPS, **more, **options)}


@measurement(
    seeds=10,
    coords={"step": tuple(range(SOURCE_EVERY, SOURCE_STEPS + 1, SOURCE_EVERY))},
    trainings=source_trainings,
    repeat="opening",
    tolerance={"curve": 0.2, "excess": 0.02, "ideal": 0.05},
)
def source(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """A model of a Markov source as it learns, and what it loses beyond the source's own table in the end."""
    run = runs["model"]
    batch = SOURCE.batch(make_generator(seed, "evaluation"), 256)
    ideal = float(SOURCE.ideal_losses(batch).mean())
    return {
        "curve": ("step", run.evaluation_losses),
        "ideal": ideal,
        "excess": evaluate(run.model, SOURCE, seed=seed).loss - ideal,
        "rate": SOURCE.entropy_rate(),
        "unigram": SOURCE.unigram_loss(),
    }


# One text, cut in three ways -----------------------------------------------------------------------------

MERGES = (0, 256, 1792)
CUT_STEPS = 300
CUT_RATES = (1.25e-3, 3e-3, 8e-3, 2e-2, 5e-2, 1.25e-1)
CUT_OPTIONS: Mapping[str, Any] = {"batch_size": 16, "schedule": WarmupCosine(40, CUT_STEPS)}


def cut_trainings(seed: int) -> dict[str, Job]:
    """A model for each number of merges: the same blocks, the same number of tokens read."""
    found = {}
    for merges in MERGES:
        task = BytePairs(merges)
        config = Config(vocab=task.vocab, d_model=64, n_layers=2, n_heads=4, positions="rotary")
        name = f"language-merges-{merges}"
        search = Search(name, config, task, CUT_RATES, tuning_seeds(2), CUT_STEPS, CUT_OPTIONS)
        found[str(merges)] = job(
            config, task, seed, steps=CUT_STEPS, learning_rate=tuned(search), **CUT_OPTIONS
        )
    return found


@torch.no_grad()
def whole_text(model: Model, merges: int, part: Part, length: int = 64) -> tuple[float, float]:
    """Nats a token over windows of a part that lie side by side, and how many bytes those tokens stand for."""
    tokens = tokens_of(merges, part)
    count = (len(tokens) - 1) // length
    inputs = tokens[: count * length].view(count, length)
    targets = tokens[1 : count * length + 1].view(count, length)
    costs = [
        F.cross_entropy(model(x).double().transpose(1, 2), y, reduction="sum").item()
        for x, y in zip(inputs.split(64), targets.split(64), strict=True)
    ]
    sizes = torch.tensor([len(piece) for piece in pieces(merges_of(merges))])
    return math.fsum(costs) / targets.numel(), float(sizes[targets].double().mean())


@measurement(
    seeds=5,
    coords={"merges": MERGES},
    trainings=cut_trainings,
    repeat="opening",
    tolerance={"nats": 0.1, "bits": 0.1},
)
def cuts(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same text in bytes and in longer tokens: nats a token, bytes a token, bits a byte."""
    del seed
    found = [whole_text(runs[str(merges)].model, merges, "validation") for merges in MERGES]
    return {
        "nats": ("merges", [nats for nats, _ in found]),
        "bytes": ("merges", [size for _, size in found]),
        "bits": ("merges", [nats / size / math.log(2) for nats, size in found]),
    }


# The book's own language model --------------------------------------------------------------------------

READING = BytePairs(0, length=128)
MODEL = Config(vocab=256, d_model=96, n_layers=3, n_heads=4, positions="rotary")
STEPS, LONGER, EVERY = 1200, 6000, 100
BINS = 10
TEMPERATURES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0)
LASTS = ("right", "long")


def _author(steps: int, seed: int) -> Job:
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupCosine(100, steps)}
    # The rate is chosen on the shorter training, for both.
    known = {"batch_size": 16, "schedule": WarmupCosine(100, STEPS)}
    search = Search("language-author", MODEL, READING, RATES, tuning_seeds(2), STEPS, known)
    more = {"learning_rate": tuned(search), "evaluate_every": EVERY * steps // STEPS}
    return job(MODEL, READING, seed, steps=steps, **more, **options)


def author_trainings(seed: int) -> dict[str, Job]:
    """The book's model, and one that reads the text five times as often."""
    return {"right": _author(STEPS, seed), "long": _author(LONGER, seed)}


def kept_trainings(seed: int) -> dict[str, Job]:
    """The book's model."""
    return {"model": _author(STEPS, seed)}


def _windows(part: Part, length: int = 128) -> Batch:
    tokens = tokens_of(0, part)
    count = (len(tokens) - 1) // length
    inputs = tokens[: count * length].view(count, length)
    targets = tokens[1 : count * length + 1].view(count, length)
    return Batch(inputs, targets, torch.ones_like(inputs, dtype=torch.bool))


@torch.no_grad()
def cost_by_temperature(model: Model, batch: Batch) -> list[float]:
    """Nats a token when the logits are divided by each of `TEMPERATURES`."""
    logits = model(batch.inputs).double().transpose(1, 2)
    return [float(F.cross_entropy(logits / t, batch.targets)) for t in TEMPERATURES]


def compressed_bits() -> float:
    """Bits a byte of the test text, for xz at its best that has read the training text before."""
    sizes = [
        len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
        for text in (text_bytes("train") + text_bytes("test"), text_bytes("train"))
    ]
    return 8 * (sizes[0] - sizes[1]) / len(text_bytes("test"))


@measurement(
    seeds=6,
    coords={
        "last": LASTS,
        "part": ("validation", "test"),
        "look": tuple(range(1, STEPS // EVERY + 1)),
        "bin": tuple(range(BINS)),
        "temperature": TEMPERATURES,
    },
    trainings=author_trainings,
    repeat="opening",
    tolerance={"bits": 0.3, "curve": 0.3, "training": 0.3, "confidence": 0.2, "accuracy": 0.3}
    | {"share": 0.2, "error": 0.1, "warm": 0.5, "right": 0.1},
)
def author(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The book's model and one trained five times as long: curve, bits a byte, calibration.

    Curves are nats a byte on text held out at twelve equally spaced steps of each.
    """
    del seed
    bits, found, warm = [], [], []
    for last in LASTS:
        model = runs[last].model
        said = {part: answers(model, _windows(part)) for part in ("validation", "test")}
        bits.append([said[part].loss / math.log(2) for part in said])
        found.append((said["test"], reliability(said["test"].confidences, said["test"].right)))
        warm.append(cost_by_temperature(model, _windows("test")))
    bins = ("last", "bin")
    return {
        "bits": (("last", "part"), bits),
        "curve": (("last", "look"), [runs[last].evaluation_losses for last in LASTS]),
        "training": ("last", [float(runs[last].losses[-EVERY:].mean()) for last in LASTS]),
        "confidence": (bins, [each.confidence for _, each in found]),
        "accuracy": (bins, [each.accuracy for _, each in found]),
        "share": (bins, [each.share for _, each in found]),
        "error": ("last", [each.error for _, each in found]),
        "right": ("last", [said.accuracy for said, _ in found]),
        "warm": (("last", "temperature"), warm),
        "xz": compressed_bits(),
    }


# What it writes -----------------------------------------------------------------------------------------

WAYS: Mapping[str, Mapping[str, Any] | None] = {
    "greedy": None,
    "T = 0.5": {"temperature": 0.5},
    "T = 0.8": {"temperature": 0.8},
    "T = 1": {},
    "T = 1.3": {"temperature": 1.3},
    "top-k 10": {"top_k": 10},
    "top-p 0.9": {"top_p": 0.9},
}
TEXT = "the text"
PROMPT, WRITTEN, TEXTS, GRAM = 64, 256, 24, 12


def continued(model: Model, way: str, prompts: Tensor, seed: int) -> Generated:
    """What the model writes after prompts, in one of `WAYS`; it sees the last 128 bytes."""
    assert isinstance(model, Decoder)
    given = WAYS[way]
    random = make_generator(seed, "writing")
    strategy = Greedy() if given is None else Sampling(random, **given)
    window = SlidingWindow(128)
    return generate(model, list(prompts), max_new_tokens=WRITTEN, strategy=strategy, window=window)


def repeated(text: Sequence[int]) -> float:
    """Share of a text's runs of twelve bytes that stood in it before."""
    grams = [tuple(text[i : i + GRAM]) for i in range(len(text) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams)


def known_words(text: bytes) -> float:
    """Share of a text's words (two letters or more, the first and last one left out) that the training has."""
    found = re.findall(rb"[A-Za-z]{2,}", text)[1:-1]
    return sum(word in _training_words() for word in found) / max(1, len(found))


@cache
def _training_words() -> frozenset[bytes]:
    return frozenset(re.findall(rb"[A-Za-z]{2,}", text_bytes("train")))


def _passages(seed: int) -> tuple[Tensor, Tensor]:
    """Prompts of the test text, and how it goes on."""
    whole = tokens_of(0, "test")
    starts = torch.randint(
        len(whole) - PROMPT - WRITTEN, (TEXTS, 1), generator=make_generator(seed, "evaluation")
    )
    found = whole[starts + torch.arange(PROMPT + WRITTEN)]
    return found[:, :PROMPT], found[:, PROMPT:]


@torch.no_grad()
def surprise(model: Model, prompts: Tensor, texts: Tensor) -> float:
    """Bits a byte that texts after prompts cost the model, which sees the last 128 bytes."""
    assert isinstance(model, Decoder)
    whole = torch.cat((prompts, texts), 1)
    cost = []
    for begin in range(0, WRITTEN, 64):
        stop = PROMPT + begin + 64
        seen = whole[:, max(0, stop - 129) : stop]
        logits = model(seen[:, :-1])[:, -64:].double()
        cost.append(float(F.cross_entropy(logits.transpose(1, 2), seen[:, -64:])))
    return math.fsum(cost) / len(cost) / math.log(2)


@measurement(
    seeds=6,
    coords={"way": (*WAYS, TEXT)},
    trainings=kept_trainings,
    repeat="opening",
    tolerance={"repeated": 0.3, "known": 0.2, "surprise": 1.0},
)
def writing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Texts that the book's model writes in seven ways, and the text's own: repetition, words, surprise."""
    model = runs["model"].model
    prompts, real = _passages(seed)
    said = {way: torch.stack(continued(model, way, prompts, seed).tokens) for way in WAYS}
    said[TEXT] = real
    rows = {way: texts.tolist() for way, texts in said.items()}
    return {
        "repeated": ("way", [float(np.mean([*map(repeated, each)])) for each in rows.values()]),
        "known": (
            "way",
            [float(np.mean([known_words(bytes(t)) for t in each])) for each in rows.values()],
        ),
        "surprise": ("way", [surprise(model, prompts, texts) for texts in said.values()]),
    }


def book_model(kept: Dataset) -> Decoder:
    """The book's language model: the kept weights of its first seed.

    Args:
        kept: the result ``kept``.
    """
    model = make_model(MODEL, causal=True, seed=0)
    assert isinstance(model, Decoder)
    return unpacked(kept.weights.values, model)


def text_of(kept: Dataset, way: str) -> str:
    """What the model wrote in one of `WAYS`, or the text's own continuation, behind its prompt."""
    tokens = kept.texts.squeeze("seed").sel(way=way).values.astype(int).tolist()
    return bytes(tokens).decode("utf-8", errors="replace")


@measurement(
    seeds=1,
    coords={"way": (*WAYS, TEXT), "place": tuple(range(PROMPT + WRITTEN))},
    trainings=kept_trainings,
    repeat="opening",
    tolerance={"weights": 1e30, "texts": 256.0},
)
def kept(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The weights of the first of the book's models, and a text of it for each way of writing."""
    model = runs["model"].model
    prompts, real = _passages(seed)
    said = [continued(model, way, prompts[:1], seed).tokens[0] for way in WAYS]
    texts = [torch.cat((prompts[0], text)) for text in (*said, real[0])]
    return {
        "weights": ("word", packed(model)),
        "texts": (("way", "place"), torch.stack(texts)),
    }


# A scaling law ------------------------------------------------------------------------------------------

SIZES: Mapping[str, tuple[int, int, int]] = {
    "8 x 1": (8, 1, 1),
    "16 x 1": (16, 1, 2),
    "32 x 2": (32, 2, 2),
    "64 x 2": (64, 2, 4),
}
"""Width, blocks and heads."""
DURATIONS = (60, 180, 540, 1620)
TUNED = 180
"""The longest duration that rates are chosen at; longer trainings take that of this one."""
ROWS, LENGTH = 16, 64
SCALING_RATES = (1e-3, 2.5e-3, 6e-3, 1.5e-2, 4e-2, 1e-1, 2.5e-1)
HELD_OUT = 3e11
"""Operations from which on runs are kept out of the fit."""


def parameters_of(size: str) -> int:
    """Numbers in the matrices that each token is multiplied with: blocks and unembedding."""
    width, layers, _ = SIZES[size]
    return 12 * layers * width**2 + 256 * width


def tokens_read(duration: int) -> int:
    """Tokens of a training."""
    return ROWS * LENGTH * duration


def operations(size: str, duration: int) -> float:
    """About six for each parameter and token: two forward, four backward (Kaplan et al., 2020)."""
    return 6.0 * parameters_of(size) * tokens_read(duration)


def _rung(size: str, duration: int, seed: int) -> Job:
    width, layers, heads = SIZES[size]
    config = Config(vocab=256, d_model=width, n_layers=layers, n_heads=heads, positions="rotary")
    task = BytePairs(0, length=LENGTH)
    for_rate = min(duration, TUNED)
    known = {"batch_size": ROWS, "schedule": WarmupCosine(for_rate // 10, for_rate)}
    name = f"language-{size.replace(' ', '')}-{for_rate}"
    search = Search(name, config, task, SCALING_RATES, tuning_seeds(2), for_rate, known)
    schedule = WarmupCosine(duration // 10, duration)
    rate = tuned(search)
    return job(
        config, task, seed, steps=duration, learning_rate=rate, batch_size=ROWS, schedule=schedule
    )


def scaling_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Every size for every duration."""
    return {(s, d): _rung(s, d, seed) for s in SIZES for d in DURATIONS}


@measurement(
    seeds=5,
    coords={"size": tuple(SIZES), "duration": DURATIONS},
    trainings=scaling_trainings,
    repeat="opening",
    tolerance={"nats": 0.3},
)
def scaling(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Nats a byte on validation text, by size of the model and length of its training."""
    del seed
    found = [
        [whole_text(runs[size, duration].model, 0, "validation")[0] for duration in DURATIONS]
        for size in SIZES
    ]
    return {
        "nats": (("size", "duration"), found),
        "parameters": ("size", [parameters_of(size) for size in SIZES]),
        "tokens": ("duration", [tokens_read(duration) for duration in DURATIONS]),
    }


def fitted(scaling: Dataset, seed: int | None = None) -> ScalingLaw:
    """The law that the cheaper runs give: of one seed, or of the means of all."""
    nats = scaling.nats.mean("seed") if seed is None else scaling.nats.sel(seed=seed)
    chosen = [(s, d) for s in SIZES for d in DURATIONS if operations(s, d) < HELD_OUT]
    return fit_law(
        [float(parameters_of(s)) for s, _ in chosen],
        [float(tokens_read(d)) for _, d in chosen],
        [float(nats.sel(size=s, duration=d)) for s, d in chosen],
    )
