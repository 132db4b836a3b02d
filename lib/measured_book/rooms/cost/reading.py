"""Readings of the chapter on the cost of attention that no expression says: counts, models, a benchmark."""

from __future__ import annotations

from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.roofline import A100

from measured_book.measuring import number
from measured_book.rooms.cost.measure import (
    MODELS,
    counted_fused,
    crossovers,
    equal_length,
    measured_sublayers,
    pattern_to_stream,
    pieces,
)


@number
def equal_at(*, reading: str) -> float:
    """The length, in widths, at which both sides cost the same, by a reading of `Crossovers`."""
    return float(getattr(crossovers(), reading))


@number
def share_at_d(*, part: str) -> float:
    """Share of 'network' or 'pairs' in the operations, of a sequence as long as the stream is wide."""
    by = Operations(256, 256)
    return float(getattr(by, part)) / (by.attention + by.network)


@number
def seen_by_counter() -> float:
    """Million operations that the counter sees in the fused kernel's layer, 512 tokens and a width of 64."""
    return counted_fused(512, 64, heads=4) / 1e6


@number
def truly_counted() -> float:
    """Million operations that there are."""
    return Operations(512, 64).attention / 1e6


@number
def pairs_share(*, model: str) -> float:
    """The pairs' share of the operations of a published model's blocks."""
    found = pieces(*MODELS[model])
    return found["pairs"] / sum(found.values())


@number
def llama3_equal() -> float:
    """The length from which on attention takes more operations than the networks of Llama 3."""
    return equal_length(MODELS["Llama 3 8B, 8192"][1])


@number
def gpt2_patterns() -> float:
    """How many times as many numbers the patterns of one layer of GPT-2 hold as its stream, at 1024 tokens."""
    return pattern_to_stream(1024, 768, 12)


@number
def cache_kilobytes() -> float:
    """Kilobytes of keys and values that Llama 3 keeps for each token, two bytes a number."""
    config = MODELS["Llama 3 8B, 8192"][1]
    return 2 * config.n_layers * config.kv_heads * config.head_width * 2 / 1e3


@number
def plain_busy(*, head: int) -> float:
    """The largest share of an A100's operations that plain attention reaches, by the width of a head."""
    return A100.attainable(head / 2) / A100.operations


@number
def ridge() -> float:
    """Operations for each byte from which on an A100 computes all the time."""
    return A100.ridge


_KERNELS = {"fused": "attention", "written": "attention, written out"}


@number
def crossover(*, kernel: str) -> float:
    """The length, in widths, from which on a layer took longer than the network: 'fused', or 'written' out."""
    return measured_sublayers().times(_KERNELS[kernel]).crossover


@number
def written_over_fused() -> float:
    """How many times as long the written-out layer took as the fused one, at the longest sequence."""
    written, fused = (measured_sublayers().times(_KERNELS[one]) for one in ("written", "fused"))
    return float(written.seconds[-1] / fused.seconds[-1])


@number
def rounds() -> int:
    """Rounds of the benchmark."""
    return measured_sublayers().rounds
