"""How the results of the chapter on language models are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import lzma
import math
from typing import Any

import numpy as np
from measured_transformer.tasks.byte_pairs import text_bytes
from measured_transformer.tasks.task import Part
from measured_transformer.training.loop import make_model
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.language_models.measure import (
    DURATIONS,
    HELD_OUT,
    MERGES,
    MODEL,
    SIZES,
    TEXT,
    WAYS,
    fitted,
    operations,
    parameters_of,
    tokens_read,
)


def prediction_errors(scaling: Dataset, size: str, duration: int) -> DataArray:
    """Predicted minus measured nats of a run, for each seed by the law of that seed's cheaper runs."""
    n, d = float(parameters_of(size)), float(tokens_read(duration))
    said = [float(fitted(scaling, int(seed))(n, d)) for seed in scaling.seed.values]
    measured = scaling.nats.sel(size=size, duration=duration)
    return DataArray(said, dims="seed", coords={"seed": scaling.seed}) - measured


# What the claims are judged by --------------------------------------------------------------------------


def _checked(exact: Dataset, name: str) -> dict[str, Any]:
    found = exact.sel(check=name).squeeze("seed")
    return {"error": found.error, "control": found.control}


@evidence("IW-2.1")
def _(exact: Dataset) -> dict[str, Any]:
    return _checked(exact, "chain")


@evidence("IW-2.2")
def _(exact: Dataset) -> dict[str, Any]:
    return {part: _checked(exact, part) for part in ("likelihood", "floor")}


@evidence("IW-2.3")
def _(exact: Dataset, shapes: Dataset) -> dict[str, Any]:
    sizes = shapes.embedding.squeeze("seed")
    return {"lookup": _checked(exact, "lookup"), "shapes": {"value": sizes}}


@evidence("IW-2.5")
def _(exact: Dataset) -> dict[str, Any]:
    parts = {part: _checked(exact, part) for part in ("transposed", "normed")}
    return {"printed": {"value": exact.exists.squeeze("seed")}, **parts}


@evidence("IW-2.6")
def _(exact: Dataset) -> dict[str, Any]:
    return {"value": exact.p.squeeze("seed"), "control": exact.p_control.squeeze("seed")}


@evidence("DD-8.5")
def _(peeking: Dataset) -> dict[str, Any]:
    return {
        part: {
            "treatment": peeking[part].sel(arm="peeking"),
            "baseline": peeking[part].sel(arm="masked"),
        }
        for part in ("training", "honest")
    }


@evidence("EX-3.15")
def _(exact: Dataset) -> dict[str, Any]:
    return {part: _checked(exact, part) for part in ("same", "mixed")}


@evidence("EX-3.14")
def _(shapes: Dataset, vocabularies: Dataset) -> dict[str, Any]:
    return {"uniform": {"value": shapes.uniform}, "slope": {"value": vocabularies.slope}}


@evidence("EX-3.2")
def _(exact: Dataset) -> dict[str, Any]:
    found = {part: _checked(exact, part) for part in ("kept", "untrained", "moves")}
    for part in ("kept", "moves"):
        found[part]["value"] = found[part].pop("error")
    return found


@evidence("EX-3.3")
def _(exact: Dataset) -> dict[str, Any]:
    return {
        "whole": _checked(exact, "whole"),
        "without": {"value": exact.without.squeeze("seed")},
        "strict": {"value": exact.refused.squeeze("seed")},
    }


@evidence("EX-3.4")
def _(shapes: Dataset) -> dict[str, Any]:
    return {"value": shapes.encoder, "control": shapes.decoder}


@evidence("EX-3.5")
def _(exact: Dataset, shapes: Dataset) -> dict[str, Any]:
    found = exact.squeeze("seed")
    return {
        "linear": {"error": found.linear, "control": found.linear_control},
        "shape": {"value": shapes.linear.squeeze("seed")},
    }


@evidence("EX-3.6")
def _(exact: Dataset) -> dict[str, Any]:
    return _checked(exact, "softmax")


@evidence("EX-3.7")
def _(exact: Dataset) -> dict[str, Any]:
    return {part: _checked(exact, part) for part in ("entries", "boolean")}


@evidence("EX-3.8")
def _(exact: Dataset) -> dict[str, Any]:
    return _checked(exact, "entry")


@evidence("EX-3.9")
def _(exact: Dataset) -> dict[str, Any]:
    return _checked(exact, "causal")


@evidence("EX-3.10")
def _(exact: Dataset) -> dict[str, Any]:
    return _checked(exact, "decoder")


@evidence("EX-3.11")
def _(exact: Dataset, shapes: Dataset) -> dict[str, Any]:
    return {
        "steps": _checked(exact, "steps"),
        "causal": _checked(exact, "causal"),
        "shape": {"value": shapes.logits.squeeze("seed")},
        "batch": {"value": shapes.one_batch},
    }


@evidence("EX-3.12")
def _(exact: Dataset) -> dict[str, Any]:
    return _checked(exact, "forcing")


@evidence("LT-13.1")
def _(cuts: Dataset) -> dict[str, Any]:
    perplexity = np.log2(np.exp(cuts.nats))
    ends = {"treatment": MERGES[-1], "baseline": MERGES[0]}
    return {
        "token": {side: perplexity.sel(merges=m) for side, m in ends.items()},
        "byte": {side: cuts.bits.sel(merges=m) for side, m in ends.items()},
    }


@evidence("LT-13.2")
def _(writing: Dataset) -> dict[str, Any]:
    return {
        part: {
            "treatment": writing.repeated.sel(way=way),
            "baseline": writing.repeated.sel(way=TEXT),
        }
        for part, way in (("greedy", "greedy"), ("sampled", "T = 1"))
    }


@evidence("LT-13.3")
def _(author: Dataset) -> dict[str, Any]:
    return {
        "treatment": author.error.sel(last="long"),
        "baseline": author.error.sel(last="right"),
    }


@evidence("LT-13.4")
def _(scaling: Dataset) -> dict[str, Any]:
    return {
        part: {"value": abs(prediction_errors(scaling, "64 x 2", duration))}
        for part, duration in (("two", 540), ("five", 1620))
    }


# Numbers that the prose names -----------------------------------------------------------------------------


@number
def mean_successors(source: Dataset) -> float:
    """Perplexity of the source: how many equally likely successors would be as hard."""
    return float(np.exp(source.rate.mean()))


@number
def frequencies(source: Dataset) -> float:
    """Perplexity of the source for somebody who knows how frequent each token is, and nothing else."""
    return float(np.exp(source.unigram.mean()))


@number
def perplexity(cuts: Dataset, *, merges: int) -> float:
    """Perplexity per token of the models with so many merges, the mean of the seeds."""
    return float(np.exp(cuts.nats.sel(merges=merges)).mean())


@number
def compressed(cuts: Dataset, *, merges: int) -> DataArray:
    """Share of a text's size that is left when it is coded with these models: bits per byte over eight."""
    return cuts.bits.sel(merges=merges) / 8


@number
def wrote(writing: Dataset, *, way: str, what: str) -> DataArray:
    """A number of the texts that the model wrote in a way, whose name stands here without blanks."""
    return writing[what].sel(way=next(w for w in (*WAYS, TEXT) if _slug(w) == way))


def _slug(name: str) -> str:
    """A label as the prose can name it."""
    return name.replace(" ", "").replace("=", "")


@number
def best_temperature(author: Dataset, *, last: str) -> float:
    """The temperature at which held-out text costs least, for the mean of the seeds."""
    costs = author.warm.sel(last=last).mean("seed")
    return float(author.temperature.values[int(costs.argmin("temperature"))])


@number
def law(scaling: Dataset, *, what: str) -> DataArray:
    """A constant of the law, fitted to the cheaper runs of each seed."""
    values = [getattr(fitted(scaling, int(seed)), what) for seed in scaling.seed.values]
    return DataArray(values, dims="seed")


@number
def missed(scaling: Dataset, *, size: str, duration: int) -> DataArray:
    """Predicted minus measured nats of a run that the law was not fitted to."""
    return prediction_errors(scaling, size.replace("x", " x "), duration)


@number
def author_nats(author: Dataset) -> float:
    """Nats a byte of the book's model on the validation text."""
    return float(author.bits.sel(last="right", part="validation").mean()) * math.log(2)


@number
def decades(*, part: str) -> float:
    """Over how many powers of ten of compute all runs reach, or those that the law was fitted to."""
    every = [operations(s, d) for s in SIZES for d in DURATIONS]
    chosen = [c for c in every if part == "all" or c < HELD_OUT]
    return math.log10(max(chosen) / min(chosen))


@number
def epochs(*, steps: int, tokens: int) -> float:
    """How often a training of so many steps, with so many tokens a step, reads the training text."""
    return steps * tokens / len(text_bytes("train"))


@number
def text_size(*, part: str) -> int:
    """Bytes of a part of the text."""
    parts: dict[str, Part] = {"train": "train", "validation": "validation", "test": "test"}
    return len(text_bytes(parts[part]))


def _xz(text: bytes) -> int:
    return len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


@number
def xz_alone() -> float:
    """Bits a byte of the test text for xz that has read nothing before."""
    return 8 * _xz(text_bytes("test")) / len(text_bytes("test"))


@number
def xz_validation() -> float:
    """Bits a byte of the validation text for xz that has read the training text before."""
    seen, text = text_bytes("train"), text_bytes("validation")
    return 8 * (_xz(seen + text) - _xz(seen)) / len(text)


@number
def weight_bytes() -> int:
    """Bytes of the book's model in half precision."""
    return 2 * sum(p.numel() for p in make_model(MODEL, causal=True, seed=0).parameters())


@number
def weights() -> int:
    """Numbers that the book's model has learned."""
    return sum(p.numel() for p in make_model(MODEL, causal=True, seed=0).parameters())
