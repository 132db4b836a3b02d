r"""What attention costs beside the network: where their operations are equal, counts, and measured times.

Formulas are those of `analysis.cost`: a multiplication with the addition that follows it counts as two
operations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch
from jaxtyping import Float
from torch.utils.flop_counter import FlopCounterMode

from measured_transformer.internals.capture import capture
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.training.seeding import make_generator

Array = Float[np.ndarray, "..."]


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


# By count -----------------------------------------------------------------------------------------


def counted_attention(n: int, d: int, *, heads: int = 1) -> int:
    """Operations that PyTorch's counter sees in a forward pass of self-attention over n tokens.

    The softmax is written out, because on a CPU the counter does not know the fused kernel and leaves its
    products out.
    """
    layer = MultiHeadAttention(d, heads)
    with torch.no_grad(), capture(layer, "pattern"), FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops())


def counted_network(n: int, d: int, *, wider: int = 4) -> int:
    """Operations that PyTorch's counter sees in a forward pass of a feed-forward network over n tokens."""
    layer = FeedForward(d, wider * d, activation="gelu")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops())


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


# Memory -------------------------------------------------------------------------------------------


def pattern_to_stream(n: int, d: int, heads: int) -> float:
    """How many times as many numbers a layer's patterns hold as its stream: $h n^2 / (n d)$.

    >>> pattern_to_stream(1024, 768, 12)
    16.0
    """
    return heads * n / d
