r"""What the chapter on the cost of attention measures: operations, numbers moved, and what cheaper forms lose.

Formulas for operations are those of `analysis.cost`: a multiplication with the addition that follows it counts
as two. Traffic is counted in numbers that pass between slow and fast memory, whatever the size of a number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.roofline import intensity
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_flops
from measured_transformer.parts.attention import MultiHeadAttention, causal_mask
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.tiled import tiled_attention, tiled_gradients, tiles
from measured_transformer.tasks.delay import Delay
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, predict
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.linear import linear
from measured_transformer.variants.sparse import Strided, Windowed
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

Array = Float[np.ndarray, "..."]


# Operations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crossovers:
    """The lengths, in units of the width d, at which one side's operations equal the other's.

    Attributes:
        whole: all of attention against the network.
        quadratic: the term in n n alone against the network.
        linear: the term in n n against all others, the projections included.

    >>> crossovers()
    Crossovers(whole=2.0, quadratic=4.0, linear=6.0)
    """

    whole: float
    quadratic: float
    linear: float


def crossovers(wider: float = 4.0) -> Crossovers:
    """Where the two sides are equal, with a hidden width of so many d: $4n^2d = (4w - 8)nd^2$ and so on.

    `whole` is zero where the projections alone cost as much as the network.
    """
    return Crossovers(max(0.0, wider - 2.0), wider, wider + 2.0)


def counted_attention(n: int, d: int, *, heads: int = 1) -> int:
    """Operations that PyTorch's counter sees in a forward pass of self-attention over n tokens.

    The softmax is written out, because on a CPU the counter does not know the fused kernel and leaves its
    products out.
    """
    layer = MultiHeadAttention(d, heads)
    with torch.no_grad(), capture(layer, "pattern"), FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops())


def counted_fused(n: int, d: int, *, heads: int = 1) -> int:
    """The same with the fused kernel, of which the counter knows nothing on a CPU."""
    layer = MultiHeadAttention(d, heads)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops())


def counted_network(n: int, d: int, *, wider: int = 4) -> int:
    """Operations that PyTorch's counter sees in a forward pass of a feed-forward network over n tokens."""
    layer = FeedForward(d, wider * d, activation="gelu")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops())


def counted_crossovers(d: int) -> Crossovers:
    """The crossovers of a network of four widths from PyTorch's counts alone, at the lengths d and 2 d.

    A count that is $an + bn^2$ is known from two lengths.
    """
    once, twice = counted_attention(d, d), counted_attention(2 * d, d)
    network = counted_network(d, d) / d
    square = (twice - 2 * once) / (2 * d * d)
    straight = once / d - square * d
    equal = (network - straight, network, network + straight)
    return Crossovers(*(float(each / square / d) for each in equal))


def drawn_sizes(count: int, *, seed: int, largest: int = 256) -> list[tuple[int, int]]:
    """Pairs of a length and a width, each drawn evenly on a logarithmic scale from 2 to the largest.

    Raises:
        ValueError: unless the largest is at least 2.
    """
    if largest < 2:
        raise ValueError(f"expected a largest size of at least 2, got {largest}")
    drawn = torch.rand(count, 2, generator=make_generator(seed, "sizes"))
    sizes = (2 * (largest / 2) ** drawn).round().int().tolist()
    return [(n, d) for n, d in sizes]


_LLAMA: dict[str, Any] = {"d_model": 4096, "n_layers": 32, "n_heads": 32, "activation": "swiglu"}
MODELS: dict[str, tuple[int, Config]] = {
    "BERT base, 512": (512, Config(vocab=30522, d_model=768, n_layers=12, n_heads=12)),
    "GPT-2 small, 1024": (1024, Config(vocab=50257, d_model=768, n_layers=12, n_heads=12)),
    "Llama 2 7B, 4096": (4096, Config(vocab=32000, d_ff=11008, **_LLAMA)),
    "Llama 3 8B, 8192": (8192, Config(vocab=128256, n_kv_heads=8, d_ff=14336, **_LLAMA)),
    "the same, 131072": (131072, Config(vocab=128256, n_kv_heads=8, d_ff=14336, **_LLAMA)),
}
"""Published models by name, each with a length."""


def pieces(length: int, config: Config) -> dict[str, float]:
    """The operations of a model's blocks: 'projections' and 'pairs' of attention, and 'network'."""
    counted = count_flops(config, "decoder", length=length)
    pairs = 4 * length**2 * config.n_heads * config.head_width * config.n_layers
    return {
        "projections": float(counted.attention - pairs),
        "pairs": float(pairs),
        "network": float(counted.feedforward),
    }


def equal_length(config: Config) -> float:
    """The length at which attention takes as many operations as the networks."""
    once = pieces(1, config)
    return (once["network"] - once["projections"]) / once["pairs"]


# Numbers moved ------------------------------------------------------------------------------------


@dataclass
class Ledger:
    """How many numbers came from slow memory, and how many went there."""

    loaded: int = 0
    stored: int = 0

    @property
    def moved(self) -> int:
        """Both together."""
        return self.loaded + self.stored


class Slow(Tensor):
    """A tensor that lies in slow memory, and keeps a ledger of what is done with it.

    - Taking a part of it loads that part, and what is computed from the part stays in fast memory.
    - Writing to a part of it stores that part.
    - Any other function is a kernel of its own: it loads its operands, and its result goes to slow memory.

    Asking for a shape, and looking at the same numbers in another order, moves nothing.
    """

    ledger: Ledger

    @classmethod
    def of(cls, tensor: Tensor, ledger: Ledger) -> Slow:
        """The tensor as one in slow memory."""
        slow: Slow = tensor.as_subclass(cls)
        slow.ledger = ledger
        return slow

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        slow = [each for each in args if isinstance(each, cls)]
        with torch._C.DisableTorchFunctionSubclass():
            found = function(*args, **(kwargs or {}))
        ledger = next((each.ledger for each in slow if hasattr(each, "ledger")), None)
        if ledger is None:
            return found
        if function is Tensor.__setitem__:
            ledger.stored += args[2].numel()
        if not isinstance(found, Tensor):
            return found
        if function is Tensor.__getitem__:
            ledger.loaded += found.numel()
            return found.as_subclass(Tensor)
        if function not in (Tensor.transpose, Tensor.new_empty):
            ledger.loaded += sum(each.numel() for each in slow)
            ledger.stored += found.numel()
        return cls.of(found, ledger)


def plain_attention(
    queries: Float[Tensor, "*batch query d_head"],
    keys: Float[Tensor, "*batch key d_head"],
    values: Float[Tensor, "*batch key d_head"],
) -> Float[Tensor, "*batch query d_head"]:
    """Attention in three steps, each of which stores its result; queries come scaled already."""
    scores = queries @ keys.transpose(-2, -1)
    pattern = scores.softmax(-1)
    return pattern @ values


def moved(attention: Callable[..., Any], n: int, d: int, **how: Any) -> int:
    """The numbers that one head moves when its queries, keys and values lie in slow memory."""
    ledger = Ledger()
    given = [Slow.of(torch.zeros(n, d), ledger) for _ in range(3)]
    attention(*given, **how)
    return ledger.moved


def plain_traffic(n: int, d: int) -> int:
    """The same for `plain_attention` by formula: the scores and the weights twice each, all else once.

    >>> plain_traffic(4, 2)
    96
    """
    return 4 * n * n + 4 * n * d


def tiled_traffic(
    n: int, d: int, query_tile: int, *, key_tile: int = 64, causal: bool = False
) -> int:
    """The same for `parts.tiled.tiled_attention`: all keys and values once for each tile of queries.

    >>> tiled_traffic(4, 2, 2)
    52
    """
    loaded = 0
    for rows in tiles(n, query_tile):
        seen = min(n, math.ceil(rows.stop / key_tile) * key_tile) if causal else n
        loaded += 2 * seen * d
    return loaded + 2 * n * d + n


def intensities() -> dict[str, float]:
    """Operations for each byte of what the roofline shows, with two bytes a number."""
    n, wide = 4096, 4096
    pairs = {d: 4 * n * n * d for d in (64, 128)}
    network = {m: (16 * m * wide**2, 8 * wide**2 + 10 * m * wide) for m in (1, n)}
    return {
        "one token, network": intensity(*network[1]),
        "one token, attention": intensity(4 * n * 64, 2 * n * 64 + 2 * 64),
        "plain, head of 64": intensity(pairs[64], plain_traffic(n, 64)),
        "plain, head of 128": intensity(pairs[128], plain_traffic(n, 128)),
        "tiled, 128 queries": intensity(pairs[64], tiled_traffic(n, 64, 128)),
        "network": intensity(*network[n]),
    }


# Identities, at drawn sizes -----------------------------------------------------------------------


@measurement(seeds=100, repeat=2, tolerance={"tiled": 1e-12, "gradients": 1e-12})
def drawn(seed: int) -> dict[str, Any]:
    """Formulas against counts, and tiled attention against the fused kernel, at drawn sizes."""
    ((n, d),) = drawn_sizes(1, seed=seed)
    by, crossed = Operations(n, d), counted_crossovers(d)
    attention, network = counted_attention(n, d), counted_network(n, d)
    rng = np.random.default_rng(seed)
    query_tile, key_tile = (int(size) for size in rng.integers(1, n + 1, 2))
    plain = moved(plain_attention, n, d)
    causal = bool(seed % 2)
    how = {"query_tile": query_tile, "key_tile": key_tile, "causal": causal}
    tiled = moved(tiled_attention, n, d, **how)
    formula = tiled_traffic(n, d, query_tile, key_tile=key_tile, causal=causal)
    return {
        "attention": attention / by.attention - 1,
        "attention_control": attention / by.projections - 1,
        "network": network / by.network - 1,
        "network_control": network / by.projections - 1,
        "whole": crossed.whole,
        "quadratic": crossed.quadratic,
        "linear": crossed.linear,
        "plain": plain / plain_traffic(n, d) - 1,
        "tiled_traffic": tiled / formula - 1,
        **tiled_errors(seed, min(n, 64), min(d, 32), **how),
    }


def tiled_errors(seed: int, n: int, d: int, **how: Any) -> dict[str, float]:
    """Largest deviations of tiled attention and of its gradients from PyTorch's kernel, in float64."""
    generator = make_generator(seed, "tiled")
    given = torch.randn(4, 2, n, d, generator=generator, dtype=torch.float64)
    q, k, v = leaves = [each.clone().requires_grad_() for each in given[:3]]
    mask = causal_mask(n) if how["causal"] else None
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    wanted_gradients = torch.autograd.grad(wanted, leaves, given[3])
    with torch.no_grad():
        mixed, log_total = tiled_attention(q, k, v, **how)
        gradients = tiled_gradients(given[3], q, k, v, mixed, log_total, **how)
    apart = [float((a - b).abs().max()) for a, b in zip(gradients, wanted_gradients, strict=True)]
    return {"tiled": float((mixed - wanted).detach().abs().max()), "gradients": max(apart)}


# What can be reached ------------------------------------------------------------------------------

WINDOW = 6
LENGTH = 24
DELAYS = (4, 9, 12, 14)
"""Within one window; within two; a multiple of the stride; neither."""
ARMS = {
    "all pairs, 1": 14,
    "window, 1": 4,
    "window, 2": 9,
    "strided, 1": 12,
    "strided, 2": 14,
    "linear, 1": 14,
}
"""What is attended to and the number of layers -> the delay at which the learning rate is chosen: one that the
pattern leads to in as many steps as there are layers."""
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
"""The grid of learning rates, the same for all arms of the chapter."""
STEPS = 200


def reach_arm(arm: str) -> tuple[Config, dict[str, Any]]:
    """The config of an arm, and what it changes in the training."""
    kind, depth = arm.split(", ")
    config = Config(
        vocab=8,
        d_model=32,
        n_heads=2,
        n_layers=int(depth),
        d_ff=32,
        positions="learned",
        max_length=LENGTH,
    )
    prepare: Any = {
        "all pairs": None,
        "window": Windowed(WINDOW),
        "strided": Strided(WINDOW),
        "linear": linear,
    }[kind]
    return config, {"batch_size": 16, **({} if prepare is None else {"prepare": prepare})}


def reach_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Every arm at every delay, at the learning rate that suits the arm."""
    jobs = {}
    for arm, hardest in ARMS.items():
        config, options = reach_arm(arm)
        name = f"cost-reach-{arm.replace(', ', '-').replace(' ', '-')}"
        task = Delay(vocab=config.vocab, length=LENGTH, delay=hardest)
        search = Search(name, config, task, RATES, tuning_seeds(1), STEPS, options)
        for delay in DELAYS:
            task = Delay(vocab=config.vocab, length=LENGTH, delay=delay)
            jobs[arm, delay] = job(
                config, task, seed, steps=STEPS, learning_rate=tuned(search), **options
            )
    return jobs


@measurement(
    seeds=6,
    coords={"arm": tuple(ARMS), "delay": DELAYS},
    trainings=reach_trainings,
    repeat="opening",
)
def reach(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Accuracy at repeating the token of so many positions ago, by pattern and number of layers."""

    def score(arm: str, delay: int) -> float:
        task = Delay(vocab=8, length=LENGTH, delay=delay)
        return evaluate(runs[arm, delay].model, task, seed=seed, size=256).accuracy

    return {"accuracy": (("arm", "delay"), [[score(a, k) for k in DELAYS] for a in ARMS])}


def reachable(arm: str, delay: int) -> bool:
    """Return whether an arm's pattern leads from a position to the one `delay` before it, a step a layer."""
    kind, depth = arm.split(", ")
    if kind in ("all pairs", "linear"):
        return True
    mask = (Windowed(WINDOW) if kind == "window" else Strided(WINDOW)).mask(LENGTH)
    step = mask.any(0) if mask.ndim == 3 else mask
    seen = torch.matrix_power(step.double(), int(depth)) > 0
    return bool(seen.diagonal(-delay).all())


# What can be looked up ----------------------------------------------------------------------------

LOOKUP = JoinedRecall(pairs=12, queries=1, keys=12, values=8)
LOOKUP_ARMS: dict[str, tuple[int, Any]] = {
    "all pairs, 1": (1, None),
    "window, 2": (2, Windowed(7)),
    "strided, 2": (2, Strided(4)),
}
"""Patterns that lead from the question to every pair -> the number of layers, and the preparation."""
LOOKUP_STEPS = 400
BACK = tuple(range(1, LOOKUP.pairs + 1))


def lookup_arm(arm: str) -> tuple[Config, dict[str, Any]]:
    """The config of an arm, and what it changes in the training."""
    depth, prepare = LOOKUP_ARMS[arm]
    config = Config(
        vocab=LOOKUP.vocab,
        d_model=32,
        n_heads=2,
        n_layers=depth,
        d_ff=32,
        positions="learned",
        max_length=LOOKUP.length,
    )
    return config, {"batch_size": 64, **({} if prepare is None else {"prepare": prepare})}


def lookup_trainings(seed: int) -> dict[str, Job]:
    """Every arm, at the learning rate that suits it."""
    jobs = {}
    for arm in LOOKUP_ARMS:
        config, options = lookup_arm(arm)
        name = f"cost-lookup-{arm.replace(', ', '-').replace(' ', '-')}"
        search = Search(name, config, LOOKUP, RATES, tuning_seeds(1), LOOKUP_STEPS, options)
        jobs[arm] = job(
            config, LOOKUP, seed, steps=LOOKUP_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=6,
    coords={"arm": tuple(LOOKUP_ARMS), "back": BACK},
    trainings=lookup_trainings,
    repeat="opening",
)
def lookup(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Accuracy at recalling a value by its key, by how far back the pair stands among twelve."""
    batch = LOOKUP.batch(make_generator(seed, "evaluation"), 4096)
    asked = batch.inputs.shape[1] - 1
    distance = asked - batch.gold["pair"][:, asked]
    accuracy = []
    for arm in LOOKUP_ARMS:
        with torch.no_grad():
            answer = predict(runs[arm].model, batch)[:, asked].argmax(-1)
        right = (answer == batch.targets[:, asked]).double()
        accuracy.append([float(right[distance == back].mean()) for back in BACK])
    return {"accuracy": (("arm", "back"), accuracy)}


# What fits into a state of fixed size -------------------------------------------------------------

PAIRS = (1, 2, 4, 6, 8, 12, 16)
HEADS = 4
MEMORIES = ("softmax, 4", "linear, 4", "linear, 2", "linear, 1")
"""The kind of attention and the width of each of the four heads."""
KEYS = 16
RECALL = JoinedRecall(pairs=KEYS, queries=8, keys=KEYS, values=8)
RECALL_STEPS = 400


def memory_arm(arm: str) -> tuple[Config, dict[str, Any]]:
    """The config of an arm, and what it changes in the training: one layer of four heads of a width."""
    kind, width = arm.split(", ")
    config = Config(
        vocab=RECALL.vocab,
        d_model=32,
        n_heads=HEADS,
        d_head=int(width),
        n_layers=1,
        d_ff=32,
        positions="none",
    )
    return config, {"batch_size": 32, **({"prepare": linear} if kind == "linear" else {})}


def capacity_trainings(seed: int) -> dict[str, Job]:
    """Every arm on sixteen pairs, at the learning rate that suits it."""
    jobs = {}
    for arm in MEMORIES:
        config, options = memory_arm(arm)
        name = f"cost-recall-{arm.replace(', ', '-')}"
        search = Search(name, config, RECALL, RATES, tuning_seeds(1), RECALL_STEPS, options)
        jobs[arm] = job(
            config, RECALL, seed, steps=RECALL_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=6,
    coords={"arm": MEMORIES, "pairs": PAIRS},
    trainings=capacity_trainings,
    repeat="opening",
)
def capacity(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Accuracy at recalling a value by its key, by the number of pairs and the width of the four heads."""

    def score(arm: str, pairs: int) -> float:
        task = JoinedRecall(pairs=pairs, queries=1, keys=KEYS, values=8)
        return evaluate(runs[arm].model, task, seed=seed, size=1024).accuracy

    return {"accuracy": (("arm", "pairs"), [[score(a, p) for p in PAIRS] for a in MEMORIES])}


# By clock -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Times of attention beside those of the network at several lengths.

    Attributes:
        lengths: tokens of a sequence.
        width: of the stream.
        tokens: of all sequences together, the same at each length.
        ratios: attention's median time divided by the network's.
        low, high: ends of the ratios' 95 % bootstrap intervals over the rounds of the run.
        fastest: ratios of the shortest times of a round.
        seconds: attention's median time.
    """

    lengths: tuple[int, ...]
    width: int
    tokens: int
    ratios: Array
    low: Array
    high: Array
    fastest: Array
    seconds: Array

    @property
    def crossover(self) -> float:
        """The length from which on attention takes longer, in units of the width."""
        return equal_from(self.lengths, self.ratios) / self.width

    @property
    def crossover_interval(self) -> tuple[float, float]:
        """The same for the upper and for the lower ends of the intervals, which crosses earlier and later."""
        ends = (equal_from(self.lengths, each) / self.width for each in (self.high, self.low))
        return next(ends), next(ends)

    @property
    def fastest_crossover(self) -> float:
        """The same for the shortest times."""
        return equal_from(self.lengths, self.fastest) / self.width


@dataclass(frozen=True)
class Measured:
    """A committed run of the benchmark.

    Attributes:
        machine: device, threads, precision, versions and date.
        rounds: how often each had its turn.
        rows: what was measured.
    """

    machine: dict[str, object]
    rounds: int
    rows: list[dict[str, object]]

    def times(self, name: str = "attention", passes: str = "forward") -> Times:
        """The times of one contender beside the network.

        Args:
            name: 'attention', 'attention, causal' or 'attention, written out'.
            passes: 'forward' or 'forward, backward'.

        Raises:
            ValueError: nothing of that name was measured.
        """
        rows = [row for row in self.rows if (row["name"], row["passes"]) == (name, passes)]
        beside = {
            row["length"]: row
            for row in self.rows
            if (row["name"], row["passes"]) == ("feed-forward network", passes)
        }
        if not rows:
            known = sorted({(str(row["name"]), str(row["passes"])) for row in self.rows})
            raise ValueError(f"expected one of {known}, got {(name, passes)}")

        def column(key: str, of: Sequence[dict[str, object]] = rows) -> Array:
            return np.array([row[key] for row in of], dtype=float)

        ratios = column("ratio")
        network = [beside[row["length"]] for row in rows]
        return Times(
            lengths=tuple(int(length) for length in column("length")),
            width=int(column("width")[0]),
            tokens=int(column("tokens")[0]),
            ratios=ratios[:, 0],
            low=ratios[:, 1],
            high=ratios[:, 2],
            fastest=column("fastest") / column("fastest", network),
            seconds=column("seconds"),
        )


def measured_sublayers() -> Measured:
    """The run of `python -m benchmarks sublayers` that was committed with the library."""
    file = resources.files(__package__) / "results" / "benchmark-sublayers.json"
    found = json.loads(file.read_text("utf-8"))
    return Measured(found["machine"], found["rounds"], found["rows"])


def equal_from(lengths: Sequence[int], ratios: Array) -> float:
    """The length from which on a ratio stays above 1, between measured lengths by straight lines in logarithms.

    >>> equal_from([64, 256], np.array([0.5, 2.0]))
    128.0

    Raises:
        ValueError: the last ratio is not above 1, or the first one and all after it are.
    """
    above = np.asarray(ratios) > 1
    if not above[-1] or above.all():
        raise ValueError(f"expected ratios that rise through 1, got {np.asarray(ratios).tolist()}")
    last = int(np.flatnonzero(~above)[-1])
    (left, right), (below, over) = (
        np.log2(lengths[last : last + 2]),
        np.log2(ratios[last : last + 2]),
    )
    return float(round(2 ** (left + (right - left) * -below / (over - below)), 9))


def pattern_to_stream(n: int, d: int, heads: int) -> float:
    """How many times as many numbers a layer's patterns hold as its stream: $h n^2 / (n d)$.

    >>> pattern_to_stream(1024, 768, 12)
    16.0
    """
    return heads * n / d
