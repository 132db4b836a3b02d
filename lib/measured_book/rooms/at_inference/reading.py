"""How the results of the chapter on attention at inference are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from measured_transformer.analysis.roofline import A100
from measured_transformer.inference.speculative import per_pass
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.at_inference.measure import (
    AHEAD,
    CACHES,
    KERNEL_LENGTHS,
    LLAMA_2,
    LLAMA_3,
    VARIANTS,
    largest_batch,
    matrices,
    one_step,
    tokens_a_second,
)

# What the claims are judged by --------------------------------------------------------------------


def checked(drawn: Dataset, check: str) -> dict[str, DataArray]:
    """Errors of a check and of its control, over the draws."""
    here = drawn.sel(check=check)
    return {"error": here.error, "control": here.control}


@evidence("DD-13.17")
def _(drawn: Dataset) -> dict[str, Any]:
    return {name: checked(drawn, name) for name in ("all", "grouped")}


@evidence("DD-13.18")
def _(counted: Dataset) -> dict[str, Any]:
    sizes = {"half": 2, "single": 4}
    return {
        name: {"value": float(counted.gigabytes.sel(size=size).mean())}
        for name, size in sizes.items()
    }


@evidence("DD-13.20")
def _(drawn: Dataset, counted: Dataset) -> dict[str, Any]:
    growth = [float(counted[f"{how}_growth"].mean()) for how in ("cached", "recomputed")]
    return {
        "learned": checked(drawn, "learned"),
        "rotary": checked(drawn, "rotary"),
        "cost": {"value": growth},
    }


@evidence("DD-13.19")
def _(counted: Dataset, clocked: Dataset) -> dict[str, Any]:
    whole = counted.intensity.sel(piece="whole")
    here = clocked.sel(length=1024)
    return {
        "decoding": {"value": float(whole.sel(phase="step").mean())},
        "prompt": {"value": float(whole.sel(phase="prompt").mean())},
        "time": {"treatment": here.step_cached, "baseline": here.step_plain},
    }


@evidence("DD-14.1a")
def _(drawn: Dataset) -> dict[str, Any]:
    return dict(checked(drawn, "blocks"))


@evidence("DD-14.1b")
def _(clocked: Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for n in KERNEL_LENGTHS:
        here = clocked.sel(tokens=n)
        found[f"time_{n}"] = {"value": here.formula - here.fused}
        found[f"memory_{n}"] = {"value": float((here.formula_peak / here.fused_peak).mean())}
    return found


@evidence("DD-14.2")
def _(drawn: Dataset, stored: Dataset, clocked: Dataset) -> dict[str, Any]:
    kept = stored.bytes.sel(layers=32).mean("seed")
    share = float(kept.sel(how="checkpointed") / kept.sel(how="plain"))
    here = clocked.sel(layers=32)
    return {
        "gradients": checked(drawn, "gradients"),
        "memory": {"value": math.log(share)},
        "time": {"treatment": here.checkpointed, "baseline": here.plain},
    }


@evidence("DD-14.13")
def _(counted: Dataset) -> dict[str, Any]:
    shares = counted.variants.mean("seed")
    return {name: {"value": float(shares.sel(variant=name))} for name in VARIANTS}


@evidence("LT-9.1")
def _(drawn: Dataset) -> dict[str, Any]:
    return dict(checked(drawn, "draft"))


@evidence("LT-9.2")
def _(drafted: Dataset) -> dict[str, Any]:
    gap = np.log(drafted.per_pass / drafted.predicted)
    return {f"ahead_{k}": {"value": gap.sel(ahead=k)} for k in AHEAD}


@evidence("LT-9.3")
def _(drawn: Dataset) -> dict[str, Any]:
    return dict(checked(drawn, "pages"))


@evidence("LT-9.4")
def _(requests: Dataset) -> dict[str, Any]:
    return {"value": requests.wasted.sel(page=16)}


@evidence("LT-9.5")
def _(requests: Dataset) -> dict[str, Any]:
    return {"treatment": np.log(requests.steps), "baseline": np.log(requests.waiting_steps)}


# Numbers that the prose names ---------------------------------------------------------------------


@number
def kilobytes(*, model: str) -> float:
    """Kilobytes (1024 bytes) that a token leaves in a cache, two bytes a number."""
    kept = {name.split(":")[0]: one for name, one in CACHES.items()}
    return kept[model].bytes(1) / 1024


@number
def gigabytes(*, model: str, tokens: int) -> float:
    """Gigabytes of a text's cache, two bytes a number."""
    kept = {name.split(":")[0]: one for name, one in CACHES.items()}
    return kept[model].bytes(tokens) / 1e9


@number
def fits(*, model: str, tokens: int) -> int:
    """How many texts of a length fit beside the weights into 80 gigabytes."""
    return largest_batch({"Llama 2": LLAMA_2, "Llama 3": LLAMA_3}[model], tokens)


@number
def most_tokens(*, model: str, tokens: int, batch: int) -> float:
    """The most tokens a second that an A100 can write in a batch of texts of a length; batch 0: the largest."""
    config = {"Llama 2": LLAMA_2, "Llama 3": LLAMA_3}[model]
    return tokens_a_second(config, tokens, batch or largest_batch(config, tokens))


@number
def weight_gigabytes() -> float:
    """Gigabytes of the matrices of Llama 2 7B, two bytes a number."""
    return 2 * sum(a * b for a, b in matrices(LLAMA_2)) / 1e9


@number
def step_milliseconds(*, tokens: int) -> float:
    """The least milliseconds that one more token after so many takes on an A100, batch of one, Llama 2 7B."""
    return 1e3 * one_step(LLAMA_2, tokens).seconds(A100)


@number
def ridge() -> float:
    """Operations for each byte from which on an A100 computes all the time."""
    return A100.ridge


@number
def formula_per_pass(*, percent: int, ahead: int) -> float:
    """Tokens for each pass of the target when so many in a hundred proposals are accepted."""
    return per_pass(percent / 100, ahead)


@number
def error_most(drawn: Dataset, *, check: str) -> float:
    """The largest error of a check."""
    return float(abs(drawn.error.sel(check=check)).max())


@number
def control_least(drawn: Dataset, *, check: str) -> float:
    """The smallest error of a check's control."""
    return float(abs(drawn.control.sel(check=check)).min())


def _ratio(clocked: Dataset, over: str, under: str) -> DataArray:
    """Ratios of the medians over the rounds."""
    logarithm: DataArray = clocked[over].median("seed") - clocked[under].median("seed")
    return logarithm.copy(data=np.exp(logarithm.values))


@number
def without_over_with(clocked: Dataset, *, tokens: int) -> float:
    """How many times as long one more token takes without a cache, after so many tokens."""
    return float(_ratio(clocked, "step_plain", "step_cached").sel(length=tokens))


@number
def formula_over_fused(clocked: Dataset, *, tokens: int) -> float:
    """How many times as long attention takes by the formula as in the fused kernel, both passes."""
    return float(_ratio(clocked, "formula", "fused").sel(tokens=tokens))


@number
def peak_over_fused(clocked: Dataset, *, tokens: int) -> float:
    """How many times as much memory it takes at its fullest."""
    here = clocked.sel(tokens=tokens).mean("seed")
    return float(here.formula_peak / here.fused_peak)


@number
def again(clocked: Dataset) -> float:
    """How many times as long a step of training takes with checkpointing, 32 layers."""
    return float(_ratio(clocked, "checkpointed", "plain").sel(layers=32))


@number
def kept_share(stored: Dataset) -> float:
    """What share of the bytes checkpointing keeps, 32 layers."""
    kept = stored.bytes.sel(layers=32).mean("seed")
    return float(kept.sel(how="checkpointed") / kept.sel(how="plain"))
