r"""What the chapter on attention at inference measures: bytes, intensities, pages, drafts, second runs.

Operations count a multiplication and the addition that follows it as two. Times are none of these measurements:
they come from a run of the benchmark that is committed with the library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.roofline import A100, Machine
from measured_transformer.inference.generate import generate
from measured_transformer.inference.paged import PagedCache, PageTable
from measured_transformer.inference.sampling import Sampling
from measured_transformer.inference.serving import serve
from measured_transformer.inference.speculative import Speculative, acceptance, agreement, residual
from measured_transformer.models.config import Config, Positions
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.attention import attend, attention_scores
from measured_transformer.parts.tiled import tiled_attention
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.checkpointing import Checkpointed, saved_bytes
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# What one more token costs, by formula ------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """What each token of a text leaves in a model's cache.

    Attributes:
        layers: with a cache.
        numbers: that a token leaves in each of them.
        window: the most tokens that are kept; 0: all.
    """

    layers: int
    numbers: int
    window: int = 0

    def bytes(self, tokens: int, *, size: int = 2) -> int:
        """Of a text, with so many bytes a number.

        >>> Kept(layers=32, numbers=2 * 32 * 128).bytes(1)
        524288
        """
        held = min(tokens, self.window) if self.window else tokens
        return self.layers * self.numbers * held * size


CACHES: Mapping[str, Kept] = {
    "Llama 2 7B: 32 heads": Kept(32, 2 * 32 * 128),
    "Llama 3 8B: 8 of 32": Kept(32, 2 * 8 * 128),
    "DeepSeek-V2: latent": Kept(60, 512 + 64),
    "1 of 32": Kept(32, 2 * 1 * 128),
    "Mistral 7B: 8 of 32, window": Kept(32, 2 * 8 * 128, window=4096),
}
"""Published models, and one as wide as Llama with a single key-value head, by what they keep."""

LLAMA_2 = Config(
    vocab=32000, d_model=4096, n_layers=32, n_heads=32, d_ff=11008, activation="swiglu", bias=False
)
LLAMA_3 = LLAMA_2.replace(vocab=128256, n_kv_heads=8, d_ff=14336)


@dataclass(frozen=True)
class Work:
    """What a computation takes.

    Attributes:
        operations: multiplications and additions.
        bytes: that travel between slow and fast memory.
    """

    operations: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        """Both one after the other."""
        return Work(self.operations + other.operations, self.bytes + other.bytes)

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.operations / self.bytes

    def seconds(self, machine: Machine) -> float:
        """The least time that it can take."""
        return self.operations / machine.attainable(self.intensity)


def matrices(config: Config) -> list[tuple[int, int]]:
    """Inputs and outputs of each matrix that a token is multiplied by, the unembedding last."""
    width, heads, kv = config.d_model, config.n_heads, config.kv_heads
    gates = 2 if config.activation == "swiglu" else 1
    block = [(width, heads * config.head_width), (heads * config.head_width, width)]
    block += [(width, kv * config.head_width)] * 2
    block += [(width, config.neurons)] * gates + [(config.neurons, width)]
    return block * config.n_layers + [(width, config.vocab)]


def by_weights(config: Config, tokens: int, *, size: int = 2) -> Work:
    """What the matrices take for so many tokens at once: each weight is loaded once for all of them."""
    weights = sum(a * b for a, b in matrices(config))
    streams = sum(a + b for a, b in matrices(config))
    return Work(2.0 * tokens * weights, float(size * (weights + tokens * streams)))


def step_attention(config: Config, length: int, batch: int = 1, *, size: int = 2) -> Work:
    """What scores and mixing take for one more token of each text, all of which have a length."""
    heads, width = config.n_heads, config.head_width
    moved = 2 * length * config.kv_heads * width + 2 * heads * width
    return Work(
        4.0 * batch * length * heads * width * config.n_layers,
        float(size * batch * moved * config.n_layers),
    )


def prompt_attention(config: Config, length: int, *, tile: int = 128, size: int = 2) -> Work:
    """The same for the first pass over a prompt, hidden pairs included, in tiles of so many queries.

    Each tile of queries loads the keys and values of all tokens, for each head anew.
    """
    heads, width = config.n_heads, config.head_width
    moved = 2 * length * width + length + 2 * length * width * math.ceil(length / tile)
    return Work(
        4.0 * length**2 * heads * width * config.n_layers,
        float(size * heads * moved * config.n_layers),
    )


def one_step(config: Config, length: int, batch: int = 1) -> Work:
    """Everything for one more token of each text of a batch."""
    return by_weights(config, batch) + step_attention(config, length, batch)


def first_pass(config: Config, length: int) -> Work:
    """Everything for a prompt."""
    return by_weights(config, length) + prompt_attention(config, length)


MEMORY = 80e9
"""Bytes of an A100's memory."""


def largest_batch(config: Config, length: int, memory: float = MEMORY, *, size: int = 2) -> int:
    """How many texts of a length fit into memory beside the weights; nothing else is counted."""
    weights = size * (sum(a * b for a, b in matrices(config)) + config.vocab * config.d_model)
    each = size * 2 * config.n_layers * config.kv_heads * config.head_width * length
    return int((memory - weights) // each)


def tokens_a_second(config: Config, length: int, batch: int, machine: Machine = A100) -> float:
    """The most tokens that a batch can be given in a second."""
    weights, cache = by_weights(config, batch), step_attention(config, length, batch)
    return batch / (weights.seconds(machine) + cache.seconds(machine))


PIECES = ("weights", "attention", "whole")
PHASES = ("step", "prompt")
LONG = 4096
VARIANTS = ("window", "rank", "features")


def variant_operations(variant: str, n: int = LONG, d: int = 64, kept: int = 256) -> int:
    """Operations of a head that scores fewer pairs, or none.

    'window': each query meets the last `kept` keys. 'rank': keys and values are first projected along the
    sequence to `kept` rows (Wang et al. 2020). 'features': queries and keys become `kept` random features,
    whose sums are read (Choromanski et al. 2021).

    Raises:
        ValueError: there is no such variant.
    """
    operations = {
        "window": 4 * d * (n * kept - kept * (kept - 1) // 2),
        "rank": 2 * (2 * kept * n * d) + 4 * n * kept * d,
        "features": 2 * (2 * n * d * kept) + 2 * (2 * n * kept * d) + 2 * n * kept,
    }
    if variant not in operations:
        raise ValueError(f"expected one of {', '.join(operations)}, got {variant!r}")
    return operations[variant]


def attended(n_query: int, n: int, width: int = 8) -> int:
    """Operations that PyTorch counts in scores and mixing, of so many queries over n keys."""
    queries, keys = torch.zeros(n_query, width), torch.zeros(n, width)
    with FlopCounterMode(display=False) as counter:
        attend(attention_scores(queries, keys), keys)
    return int(counter.get_total_flops())


@measurement(
    seeds=1,
    coords={"phase": PHASES, "piece": PIECES, "variant": VARIANTS, "size": (2, 4)},
)
def counted(seed: int) -> dict[str, Any]:
    """Bytes of a cache, operations for each byte, and operations that a cache saves."""
    del seed  # all of it is arithmetic
    step = (
        by_weights(LLAMA_2, 1),
        step_attention(LLAMA_2, LONG),
        one_step(LLAMA_2, LONG),
    )
    prompt = (
        by_weights(LLAMA_2, LONG),
        prompt_attention(LLAMA_2, LONG),
        first_pass(LLAMA_2, LONG),
    )
    growth = [
        math.log(attended(*after) / attended(*before), 4096 / 256)
        for before, after in (((1, 256), (1, 4096)), ((256, 256), (4096, 4096)))
    ]
    full = 4 * LONG**2 * 64
    kept = CACHES["Llama 2 7B: 32 heads"]
    return {
        "intensity": (("phase", "piece"), [[w.intensity for w in row] for row in (step, prompt)]),
        "gigabytes": ("size", [kept.bytes(2048, size=size) / 1e9 for size in (2, 4)]),
        "cached_growth": growth[0],
        "recomputed_growth": growth[1],
        "variants": ("variant", [variant_operations(name) / full for name in VARIANTS]),
    }


# The same thing in other ways, at drawn sizes -----------------------------------------------------


def drawn_config(seed: int, positions: Positions = "rotary", *, group: int = 1) -> Config:
    """A small decoder of drawn sizes, with so many query heads to a key-value head."""
    rng = np.random.default_rng(seed)
    heads = int(rng.integers(1, 4)) * group
    return Config(
        vocab=17,
        d_model=int(rng.integers(2, 7)) * 4,
        n_layers=int(rng.integers(1, 4)),
        n_heads=heads,
        n_kv_heads=heads // group,
        d_head=2 * int(rng.integers(1, 5)),
        positions=positions,
        max_length=64,
    )


def drawn_model(config: Config, seed: int) -> Decoder:
    """A decoder in float64 whose outputs depend on everything that it reads."""
    with seeded(seed):
        model = Decoder(config).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.mul_(1.5)
    return model


def drawn_number(seed: int, purpose: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included, of its own for each purpose."""
    return int(torch.randint(low, high + 1, (), generator=make_generator(seed, purpose)))


def drawn_tokens(seed: int, *shape: int, vocab: int = 17) -> Int[Tensor, "..."]:
    """Tokens without a meaning."""
    return torch.randint(vocab, shape, generator=make_generator(seed, "tokens"))


def cached_numbers(seed: int, *, group: int) -> tuple[float, float]:
    """Numbers in the library's cache over 2 L n d, less one; and the same of its keys alone."""
    config = drawn_config(seed, group=group)
    tokens = drawn_tokens(seed, 2, drawn_number(seed, "length", 5, 24))
    model = drawn_model(config, seed)
    cache = model.make_cache()
    with torch.no_grad():
        model(tokens, cache=cache)
    width = config.kv_heads * config.head_width
    formula = 2 * config.n_layers * tokens.numel() * width
    keys = sum(layer.keys.numel() for layer in cache.layers)
    return cache.bytes / 8 / formula - 1, keys / formula - 1


@torch.no_grad()
def cached_logits(seed: int, positions: Positions) -> tuple[float, float]:
    """Largest difference of logits with a cache from those of all at once; and with positions one too far."""
    model = drawn_model(drawn_config(seed, positions), seed)
    tokens = drawn_tokens(seed, 1, 12)
    whole = model(tokens)

    def written(shift: int) -> Tensor:
        cache = model.make_cache()
        rows = [model(tokens[:, :4], cache=cache)]
        for t in range(4, 12):
            at = torch.tensor([[t + shift]])
            rows.append(model(tokens[:, t : t + 1], positions=at, cache=cache))
        return torch.cat(rows, 1)

    return tuple(float((written(shift) - whole).abs().max()) for shift in (0, 1))  # type: ignore[return-value]


def by_blocks(
    scores: Float[Tensor, "key"],
    values: Float[Tensor, "key d_head"],
    block: int,
    *,
    rescaled: bool = True,
) -> Float[Tensor, "d_head"]:
    """One query's mixture by the online softmax; without rescaling, earlier blocks keep their old maximum."""
    maximum, total = torch.tensor(-math.inf).double(), torch.zeros(()).double()
    mixed = torch.zeros_like(values[0])
    for at in range(0, len(scores), block):
        part = scores[at : at + block]
        largest = torch.maximum(maximum, part.max())
        shrink = (maximum - largest).exp() if rescaled else torch.ones(())
        weights = (part - largest).exp()
        total = shrink * total + weights.sum()
        mixed = shrink * mixed + weights @ values[at : at + block]
        maximum = largest
    return mixed / total


def blockwise(seed: int) -> tuple[float, float]:
    """Largest difference of the library's tiled attention and of the online softmax from the whole softmax.

    And that of the online softmax without rescaling.
    """
    generator, n = make_generator(seed, "tiles"), drawn_number(seed, "length", 8, 48)
    q, k, v = torch.randn(3, n, 8, generator=generator, dtype=torch.float64)
    scores = 3 * q @ k.T
    whole = scores.softmax(-1) @ v
    block = drawn_number(seed, "block", 1, n // 2)
    tiled = tiled_attention(q, k, v, query_tile=block, key_tile=block, scale=3.0)[0]
    once = torch.stack([by_blocks(row, v, block) for row in scores])
    wrong = torch.stack([by_blocks(row, v, block, rescaled=False) for row in scores])
    right = max(float((each - whole).abs().max()) for each in (tiled, once))
    return right, float((wrong - whole).abs().max())


@torch.no_grad()
def paged_logits(seed: int) -> tuple[float, float]:
    """Largest difference of logits of requests of different lengths, in pages against each alone.

    And the same where two requests have exchanged their first pages.
    """
    model = drawn_model(drawn_config(seed), seed)
    lengths = [drawn_number(seed, f"length {i}", 3 + i, 7 + i) for i in range(3)]
    page = drawn_number(seed, "page", 1, 4)
    texts = [drawn_tokens(seed + i, 1, n + 4) for i, n in enumerate(lengths)]
    for i, text in enumerate(texts):
        text[:, 0] = i  # what begins alike could be exchanged without harm
    alone = [model(text)[:, -4:] for text in texts]

    def paged(exchanged: bool) -> float:
        cache = PagedCache(model.config.n_layers, n_pages=48, page_size=page)
        for i, n in enumerate(lengths):
            model(texts[i][:, :n], cache=cache.rows([i], n))
        if exchanged:
            first, second = cache.table.pages[0], cache.table.pages[1]
            first[0], second[0] = second[0], first[0]
        worst = 0.0
        for step in range(4):
            new = torch.cat(
                [text[:, n + step : n + step + 1] for text, n in zip(texts, lengths, strict=True)]
            )
            logits = model(new, cache=cache.rows([0, 1, 2], 1))
            apart = [
                (row - one[0, step]).abs().max() for row, one in zip(logits, alone, strict=True)
            ]
            worst = max(worst, float(max(apart)))
        return worst

    return paged(False), paged(True)


def spoken(
    target: Float[Tensor, "before vocab"],
    draft: Float[Tensor, "before vocab"],
    ahead: int,
    *,
    wrong: bool = False,
) -> dict[tuple[int, ...], float]:
    """Probability of each text of `ahead` + 1 tokens, by adding up all that speculative decoding can do.

    Both models know the last token only: row b of their tables is the distribution after b, and texts begin
    after token 0. Where a pass gives fewer tokens, the target writes the rest by itself, since what comes after
    a rejection begins anew.

    Args:
        target, draft: tables of the two models.
        ahead: how many tokens are proposed.
        wrong: draw from the target, and not from the residual, after a rejection.
    """
    vocab = target.shape[-1]
    table: dict[tuple[int, ...], float] = dict.fromkeys(
        product(range(vocab), repeat=ahead + 1), 0.0
    )

    def go_on(text: tuple[int, ...], last: int, chance: float, proposing: bool) -> None:
        if not chance:
            return
        if len(text) == ahead + 1:
            table[text] += chance
            return
        p, q = target[last], draft[last]
        if not proposing or len(text) == ahead:
            for token in range(vocab):
                go_on((*text, token), token, chance * float(p[token]), False)
            return
        likely = acceptance(p, q)
        for token in range(vocab):
            go_on((*text, token), token, chance * float(q[token] * likely[token]), True)
        refused = chance * float((q * (1 - likely)).sum())
        instead = p if wrong else residual(p, q)
        for token in range(vocab):
            go_on((*text, token), token, refused * float(instead[token]), False)

    go_on((), 0, 1.0, True)
    return table


def speculation(seed: int) -> tuple[float, float]:
    """Largest difference of a text's probability, written with a draft against the target alone.

    And the same where the target's own distribution follows a rejection.
    """
    vocab, ahead = drawn_number(seed, "vocab", 3, 4), drawn_number(seed, "ahead", 1, 3)
    generator = make_generator(seed, "tables")
    logits = 1.5 * torch.randn(2, vocab, vocab, generator=generator, dtype=torch.float64)
    target, draft = logits.softmax(-1)
    alone = {}
    for text in product(range(vocab), repeat=ahead + 1):
        steps = zip((0, *text), text, strict=False)
        alone[text] = math.prod(float(target[a, b]) for a, b in steps)
    found = []
    for wrong in (False, True):
        together = spoken(target, draft, ahead, wrong=wrong)
        found.append(max(abs(together[text] - alone[text]) for text in alone))
    return found[0], found[1]


def second_run(seed: int) -> tuple[float, float]:
    """Largest difference that checkpointing makes to a gradient; and with other dropout in the second run."""
    config = drawn_config(seed).replace(dropout=0.2)
    tokens = drawn_tokens(seed, 2, 9)

    def gradients(prepare: Checkpointed | None) -> list[Tensor]:
        model = drawn_model(config, seed).train()
        if prepare is not None:
            prepare(model)
        with seeded(seed):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            return list(torch.autograd.grad(loss, list(model.parameters())))

    plain = gradients(None)
    found = []
    for same in (True, False):
        other = gradients(Checkpointed(same_dropout=same))
        found.append(max(float((a - b).abs().max()) for a, b in zip(plain, other, strict=True)))
    return found[0], found[1]


CHECKS = (
    "all",
    "grouped",
    "learned",
    "rotary",
    "blocks",
    "pages",
    "draft",
    "gradients",
)


@measurement(
    seeds=100,
    coords={"check": CHECKS},
    repeat=2,
    tolerance={"error": 1e-10, "control": 10.0},
)
def drawn(seed: int) -> dict[str, Any]:
    """Eight identities at drawn sizes, each beside a control that must fail."""
    found = (
        cached_numbers(seed, group=1),
        cached_numbers(seed, group=4),
        cached_logits(seed, "learned"),
        cached_logits(seed, "rotary"),
        blockwise(seed),
        paged_logits(seed),
        speculation(seed),
        second_run(seed),
    )
    return {
        "error": ("check", [error for error, _ in found]),
        "control": ("check", [control for _, control in found]),
    }


# What a draft is worth ----------------------------------------------------------------------------

TEXT = TextLM(corpus="python", length=32)
TARGET = Config(vocab=256, d_model=32, n_layers=2, n_heads=2, activation="gelu")
DRAFT = TARGET.replace(d_model=8, n_layers=1)
STEPS = 300
RATES = (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2)
DRAFT_RATES = (1e-2, 2e-2, 4e-2, 8e-2, 1.6e-1, 3.2e-1)
"""A grid of its own: a model this narrow takes larger steps, and it is compared with nothing."""
OPTIONS: Mapping[str, Any] = {
    "batch_size": 16,
    "schedule": WarmupCosine(warmup=15, steps=STEPS),
}
AHEAD = (1, 2, 4, 8)
PROMPT, WRITTEN, TEXTS = 8, 24, 48
"""Tokens of a prompt, tokens that are written, and texts for each number of proposals."""


def draft_trainings(seed: int) -> dict[str, Job]:
    """A language model of two blocks and a smaller one, each at the learning rate that suits it.

    The larger one is a model of the chapter on activations.
    """
    jobs = {}
    for name, search, config, rates in (
        ("target", "widths-text-gelu", TARGET, RATES),
        ("draft", "at-inference-draft", DRAFT, DRAFT_RATES),
    ):
        chosen = Search(search, config, TEXT, rates, tuning_seeds(1), STEPS, OPTIONS)
        jobs[name] = job(config, TEXT, seed, steps=STEPS, learning_rate=tuned(chosen), **OPTIONS)
    return jobs


@measurement(
    seeds=10,
    coords={"ahead": AHEAD},
    trainings=draft_trainings,
    repeat="opening",
    tolerance={"loss_target": 0.1, "loss_draft": 0.1},
)
def drafted(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Text written with a draft: tokens for each pass of the target, by the number of proposals.

    `agreement` is the mean over positions of the text that the target writes alone; `accepted` is what share of
    the looked-at proposals stood.
    """
    target, draft = runs["target"].model, runs["draft"].model
    assert isinstance(target, Decoder)
    assert isinstance(draft, Decoder)
    batch = TEXT.batch(make_generator(seed, "evaluation"), TEXTS)
    prompts = [row[:PROMPT].tolist() for row in batch.inputs]
    sampling = Sampling(make_generator(seed, "writing"))
    alone = generate(target, prompts, max_new_tokens=WRITTEN, strategy=sampling)
    texts = torch.cat((torch.tensor(prompts), torch.stack(alone.tokens)), 1)
    with torch.no_grad():
        both = [one(texts)[:, PROMPT - 1 : -1].softmax(-1) for one in (target, draft)]
    alpha = float(agreement(both[0], both[1]).mean())
    passes, stood = [], []
    for ahead in AHEAD:
        with_draft = Speculative(draft, Sampling(make_generator(seed, f"ahead {ahead}")), ahead)
        found = generate(target, prompts, max_new_tokens=WRITTEN, strategy=with_draft)
        passes.append(TEXTS * WRITTEN / sum(found.passes))
        stood.append(sum(found.accepted) / sum(found.proposed))
    return {
        "agreement": alpha,
        "per_pass": ("ahead", passes),
        "predicted": ("ahead", [expected_per_pass(alpha, ahead) for ahead in AHEAD]),
        "stood": ("ahead", stood),
        "loss_target": evaluate(target, TEXT, seed=seed, size=512).loss,
        "loss_draft": evaluate(draft, TEXT, seed=seed, size=512).loss,
    }


def expected_per_pass(alpha: float, ahead: int, written: int = WRITTEN) -> float:
    """Tokens for each pass if every proposal is accepted alike, in a text of so many tokens.

    The last passes propose fewer tokens, since no more are wanted; without that it would be `per_pass`.
    """
    passes = [0.0] * (written + 1)  # expected passes for so many tokens still to come
    for left in range(1, written + 1):
        most = min(ahead, left - 1)
        chances = [alpha**i * (1 - alpha) for i in range(most)] + [alpha**most]
        passes[left] = 1 + sum(c * passes[left - 1 - i] for i, c in enumerate(chances))
    return written / passes[written]


# Requests of different lengths --------------------------------------------------------------------

REQUESTS, SLOTS = 24, 6
CONTEXT = 2048
PAGES = (1, 8, 16, 32, 128, 512)
WAYS = ("reserved", "padded", "paged")


def drawn_lengths(seed: int, count: int, *, typical: float, most: int) -> list[int]:
    """Lengths with a long tail: the logarithm is normal with a standard deviation of one."""
    rng = np.random.default_rng(seed)
    return [int(n) for n in np.clip(typical * np.exp(rng.standard_normal(count)), 1, most)]


def wasted(lengths: Sequence[int], page: int) -> float:
    """Share of the pages' places that hold no token, when each request has just its tokens."""
    table = PageTable(sum(-(-n // page) for n in lengths), page)
    for i, n in enumerate(lengths):
        table.grow(i, n)
    return table.wasted / (table.n_pages * page)


@measurement(seeds=10, coords={"page": PAGES, "way": WAYS})
def requests(seed: int) -> dict[str, Any]:
    """Room and steps that requests of drawn lengths take, in batches that wait and that do not."""
    lengths = drawn_lengths(seed, 256, typical=300.0, most=CONTEXT)
    batches = [lengths[i : i + 8] for i in range(0, 256, 8)]
    padded = sum(len(batch) * max(batch) for batch in batches)
    limits = drawn_lengths(1000 + seed, REQUESTS, typical=12.0, most=60)
    model = make_model(Config(vocab=17, d_model=16, n_layers=1, n_heads=2), causal=True, seed=seed)
    assert isinstance(model, Decoder)
    prompts = [drawn_tokens(100 * seed + i, 4).tolist() for i in range(REQUESTS)]
    served = serve(
        model,
        prompts,
        max_new_tokens=limits,
        n_pages=128,
        page_size=4,
        at_once=SLOTS,
    )
    waiting = sum(max(limits[i : i + SLOTS]) for i in range(0, REQUESTS, SLOTS))
    return {
        "wasted": ("page", [wasted(lengths, page) for page in PAGES]),
        "empty": (
            "way",
            [
                1 - sum(lengths) / (256 * CONTEXT),
                1 - sum(lengths) / padded,
                wasted(lengths, 16),
            ],
        ),
        "steps": served.steps,
        "waiting_steps": waiting,
        "busy": sum(limits) / (SLOTS * served.steps),
        "waiting_busy": sum(limits) / (SLOTS * waiting),
    }


# Memory in training -------------------------------------------------------------------------------

DEPTHS = (4, 8, 16, 32)
KEPT_BY = ("plain", "checkpointed")


def deep(layers: int) -> Config:
    """A decoder whose blocks are run again."""
    return Config(vocab=64, d_model=64, n_layers=layers, n_heads=4)


@measurement(seeds=1, coords={"layers": DEPTHS, "how": KEPT_BY})
def stored(seed: int) -> dict[str, Any]:
    """Bytes that a forward pass keeps for the gradients, by depth, with and without checkpointing."""
    tokens = drawn_tokens(seed, 4, 64, vocab=64)
    found = []
    for layers in DEPTHS:
        model = make_model(deep(layers), causal=True, seed=seed)
        row = [float(saved_bytes(model, tokens))]
        Checkpointed()(model)
        found.append([*row, float(saved_bytes(model, tokens))])
    return {"bytes": (("layers", "how"), found)}


# By clock -----------------------------------------------------------------------------------------

BENCHMARK = Path(__file__).parent / "results" / "benchmark-generation.json"
ROUNDS = 15
LENGTHS = (64, 256, 1024)
KERNEL_LENGTHS = (256, 1024, 4096)


def benchmark_rows(part: str) -> list[dict[str, Any]]:
    """The rows of a part of the benchmark run that is committed with the library."""
    rows = json.loads(BENCHMARK.read_text("utf-8"))["rows"]
    return [row for row in rows if row["part"] == part]


def _column(part: str, axis: str, name: str, key: str, labels: Sequence[int]) -> list[Any]:
    rows = {(row[axis], row["name"]): row[key] for row in benchmark_rows(part)}
    return [rows[label, name] for label in labels]


@measurement(
    seeds=ROUNDS,
    coords={"length": LENGTHS, "tokens": KERNEL_LENGTHS, "layers": DEPTHS},
    data=(BENCHMARK,),
)
def clocked(seed: int) -> dict[str, Any]:
    """Logarithms of times in one round of the committed benchmark run; the seed says which round.

    A further set of seeds looks at the same rounds again.
    """
    at = seed // 10 % ROUNDS  # seeds of evaluation are tens

    def times(part: str, axis: str, name: str, labels: Sequence[int]) -> list[float]:
        return [math.log(each[at]) for each in _column(part, axis, name, "each", labels)]

    return {
        "step_cached": ("length", times("step", "length", "with a cache", LENGTHS)),
        "step_plain": ("length", times("step", "length", "without", LENGTHS)),
        "fused": ("tokens", times("kernel", "length", "fused", KERNEL_LENGTHS)),
        "formula": ("tokens", times("kernel", "length", "formula", KERNEL_LENGTHS)),
        "fused_peak": ("tokens", _column("kernel", "length", "fused", "peak", KERNEL_LENGTHS)),
        "formula_peak": ("tokens", _column("kernel", "length", "formula", "peak", KERNEL_LENGTHS)),
        "plain": ("layers", times("checkpointing", "layers", "plain", DEPTHS)),
        "checkpointed": ("layers", times("checkpointing", "layers", "checkpointed", DEPTHS)),
    }


def schedule(seed: int) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """Tokens that each of the requests of a seed writes, and who is in the batch at each step."""
    limits = drawn_lengths(1000 + seed, REQUESTS, typical=12.0, most=60)
    model = drawn_model(drawn_config(seed), seed)
    prompts = [[1, 2, 3]] * REQUESTS
    served = serve(model, prompts, max_new_tokens=limits, n_pages=128, at_once=SLOTS)
    return limits, served.running


def roofline_points() -> dict[str, tuple[str, float, str]]:
    """What the roofline shows after 4096 tokens: words, concept, operations a byte, where the words stand."""
    grouped = step_attention(LLAMA_3, LONG).intensity
    found = {
        f"step: weights, batch {b}": ("ffn", by_weights(LLAMA_2, b).intensity, "below")
        for b in (8, 64)
    }
    found["step: weights of one text"] = ("ffn", by_weights(LLAMA_2, 1).intensity, "below")
    attention = step_attention(LLAMA_2, LONG, 32).intensity
    found["step: attention,\nany batch"] = ("attention", attention, "above")
    found["step: attention,\n4 queries to a key"] = ("attention", grouped, "above")
    prompt = prompt_attention(LLAMA_2, LONG).intensity
    found["prompt: attention"] = ("attention", prompt, "above")
    found["prompt:\nweights"] = ("ffn", by_weights(LLAMA_2, LONG).intensity, "top")
    return found
