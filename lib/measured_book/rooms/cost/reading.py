"""How the results of the chapter on the cost of attention are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.roofline import A100
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.cost.measure import (
    MODELS,
    counted_fused,
    crossovers,
    equal_length,
    measured_sublayers,
    pattern_to_stream,
    pieces,
)

# What the claims are judged by --------------------------------------------------------------------


@evidence("DD-13.11")
def _(drawn: Dataset) -> dict[str, Any]:
    return {
        "attention": {"error": drawn.attention, "control": drawn.attention_control},
        "network": {"error": drawn.network, "control": drawn.network_control},
    }


@evidence("DD-13.12")
def _(drawn: Dataset) -> dict[str, Any]:
    names = ("whole", "quadratic", "linear")
    return {name: {"value": float(drawn[name].mean())} for name in names}


# Numbers that the prose names ---------------------------------------------------------------------


@number
def whole() -> float:
    """The length, in widths, at which all of attention costs as much as the network."""
    return crossovers().whole


@number
def quadratic() -> float:
    """The same for the pairs alone."""
    return crossovers().quadratic


@number
def linear_terms() -> float:
    """The same for the pairs against everything else."""
    return crossovers().linear


@number
def network_at_d() -> float:
    """The network's share of the operations where the sequence is as long as the stream is wide."""
    return 1 - Operations(256, 256).share


@number
def pairs_at_d() -> float:
    """The pairs' share of the operations there."""
    by = Operations(256, 256)
    return by.pairs / (by.attention + by.network)


@number
def seen_by_counter() -> float:
    """Million operations that the counter sees in the fused kernel's layer, 512 tokens and a width of 64."""
    return counted_fused(512, 64, heads=4) / 1e6


@number
def truly_counted() -> float:
    """Million operations that there are."""
    return Operations(512, 64).attention / 1e6


def _pairs_of(model: str) -> float:
    found = pieces(*MODELS[model])
    return found["pairs"] / sum(found.values())


@number
def bert_pairs() -> float:
    """The pairs' share of the operations of BERT's blocks."""
    return _pairs_of("BERT base, 512")


@number
def llama3_pairs() -> float:
    """The same for Llama 3."""
    return _pairs_of("Llama 3 8B, 8192")


@number
def long_pairs() -> float:
    """The same for Llama 3 at sixteen times the length."""
    return _pairs_of("the same, 131072")


@number
def llama3_equal() -> float:
    """The length from which on attention takes more operations than the networks of Llama 3."""
    return equal_length(MODELS["Llama 3 8B, 8192"][1])


@number
def llama_gigabytes() -> float:
    """Gigabytes of the patterns of one layer: 32 heads, 8192 tokens, two bytes a number."""
    return 32 * 8192**2 * 2 / 1e9


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
def plain_busy() -> float:
    """The largest share of an A100's operations that plain attention reaches, heads of 64, any length."""
    return A100.attainable(64 / 2) / A100.operations


@number
def plain_busy_wide() -> float:
    """The same with heads of 128."""
    return A100.attainable(128 / 2) / A100.operations


@number
def window_inside(lookup: Dataset) -> DataArray:
    """How often two layers of a window recall a pair that stands inside the window of the question."""
    accuracy: DataArray = lookup.accuracy.sel(arm="window, 2")
    return accuracy.sel(back=slice(1, 6)).mean("back")


@number
def window_outside(lookup: Dataset) -> DataArray:
    """The same for pairs beyond it."""
    accuracy: DataArray = lookup.accuracy.sel(arm="window, 2")
    return accuracy.sel(back=slice(7, None)).mean("back")


@number
def all_pairs_recall(lookup: Dataset) -> DataArray:
    """How often one layer of attention to everything recalls a pair, wherever it stands."""
    accuracy: DataArray = lookup.accuracy.sel(arm="all pairs, 1")
    return accuracy.mean("back")


def _strided_recall(lookup: Dataset, one_step: bool) -> DataArray:
    """Recall through strides of four, of pairs that the question sees itself or of all others."""
    back = lookup.back
    direct = (back <= 4) | (back % 4 == 0)
    accuracy: DataArray = lookup.accuracy.sel(arm="strided, 2")
    return accuracy.where(direct if one_step else ~direct, drop=True).mean("back")


@number
def strided_direct(lookup: Dataset) -> DataArray:
    """How often strides recall a pair that one step leads to."""
    return _strided_recall(lookup, one_step=True)


@number
def strided_two_steps(lookup: Dataset) -> DataArray:
    """How often they recall a pair that takes two steps."""
    return _strided_recall(lookup, one_step=False)


@number
def beyond_two_windows(reach: Dataset) -> DataArray:
    """Accuracy of two layers of windows at a delay of twelve, which they do not reach."""
    accuracy: DataArray = reach.accuracy.sel(arm="window, 2", delay=12)
    return accuracy


def _recalled(capacity: Dataset, arm: str) -> DataArray:
    accuracy: DataArray = capacity.accuracy.sel(arm=arm, pairs=16)
    return accuracy


@number
def recalled_softmax(capacity: Dataset) -> DataArray:
    """How often softmax attention recalls one of sixteen pairs."""
    return _recalled(capacity, "softmax, 4")


@number
def recalled_16(capacity: Dataset) -> DataArray:
    """The same for linear attention with sixteen features in all."""
    return _recalled(capacity, "linear, 4")


@number
def recalled_8(capacity: Dataset) -> DataArray:
    """The same with eight."""
    return _recalled(capacity, "linear, 2")


@number
def recalled_4(capacity: Dataset) -> DataArray:
    """The same with four."""
    return _recalled(capacity, "linear, 1")


@number
def softmax_least(capacity: Dataset) -> float:
    """The smallest mean accuracy of softmax attention, over the numbers of pairs."""
    return float(capacity.accuracy.sel(arm="softmax, 4").mean("seed").min())


@number
def ridge() -> float:
    """Operations for each byte from which on an A100 computes all the time."""
    return A100.ridge


@number
def largest_error(drawn: Dataset) -> float:
    """The largest deviation of tiled attention, or of one of its gradients, from the kernel."""
    return float(max(drawn.tiled.max(), drawn.gradients.max()))


@number
def traffic_error(drawn: Dataset) -> float:
    """The largest relative deviation of what was moved from the formulas."""
    return float(max(abs(drawn.plain).max(), abs(drawn.tiled_traffic).max()))


@number
def fused_crossover() -> float:
    """The length, in widths, from which on the fused kernel's layer took longer than the network."""
    return measured_sublayers().times().crossover


@number
def written_crossover() -> float:
    """The same with the softmax written out."""
    return measured_sublayers().times("attention, written out").crossover


@number
def written_over_fused() -> float:
    """How many times as long the written-out layer took as the fused one, at the longest sequence."""
    run = measured_sublayers()
    return float(run.times("attention, written out").seconds[-1] / run.times().seconds[-1])


@number
def rounds() -> int:
    """Rounds of the benchmark."""
    return measured_sublayers().rounds
