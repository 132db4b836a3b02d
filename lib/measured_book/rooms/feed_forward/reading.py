"""How the results of the chapter on the feed-forward network are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence
from measured_book.rooms.feed_forward.measure import (
    FOUR,
    JOBS,
    LAYERED,
    LENGTHS,
    MODELS,
    PARTS,
)

# What the claims are judged by ---------------------------------------------------------------------


def _errors(identities: Dataset, error: str, control: str) -> dict[str, DataArray]:
    return {"error": identities[error], "control": identities[control]}


@evidence("DA-2.17")
def _(identities: Dataset) -> dict[str, Any]:
    return {g: _errors(identities, g, f"{g}_control") for g in ("relu", "gelu")}


@evidence("DD-5.1")
def _(identities: Dataset) -> dict[str, Any]:
    return _errors(identities, "whole", "without_b1")


@evidence("EX-1.4")
def _(identities: Dataset, counted: Dataset) -> dict[str, Any]:
    return {
        "values": _errors(identities, "whole", "without_b2"),
        "parameters": {"value": counted.parameters},
    }


@evidence("IW-5.2")
def _(identities: Dataset) -> dict[str, Any]:
    return _errors(identities, "block", "block_control")


@evidence("DA-2.18")
def _(identities: Dataset) -> dict[str, Any]:
    return {
        "same": _errors(identities, "shuffled", "shuffled_control"),
        "apart": _errors(identities, "between", "between_control"),
    }


@evidence("DD-5.3")
def _(identities: Dataset) -> dict[str, Any]:
    return {
        "ffn": _errors(identities, "between", "between_control"),
        "attention": {"value": identities.seen, "control": identities.seen_control},
        "ahead": _errors(identities, "ahead", "ahead_control"),
    }


@evidence("DD-13.3")
def _(identities: Dataset) -> dict[str, Any]:
    return {
        "fixed": _errors(identities, "fixed", "mixed"),
        "whole": _errors(identities, "mixed", "bent"),
        "span": _errors(identities, "span", "span_behind"),
    }


@evidence("IW-5.1")
def _(counted: Dataset) -> dict[str, Any]:
    return {"value": counted["shapes"].isel(seed=0)}


def _by_model(values: DataArray) -> dict[str, Any]:
    return {key(name): {"value": values.sel(model=name)} for name in MODELS}


def key(name: str) -> str:
    """The name of a model as claims have it.

    >>> key("Llama 3 8B")
    'llama_3_8b'
    """
    return name.lower().replace(" ", "_").replace("-", "_")


@evidence("DD-5.4")
def _(counted: Dataset) -> dict[str, Any]:
    return _by_model(counted.wider)


@evidence("DD-12.3")
def _(counted: Dataset) -> dict[str, Any]:
    return _by_model(counted.ratio)


@evidence("DD-13.13")
def _(counted: Dataset) -> dict[str, Any]:
    return _by_model(counted.ratio)


@evidence("DD-5.6")
def _(counted: Dataset) -> dict[str, Any]:
    bert = counted.sel(model="BERT-base")
    return {"all": {"value": bert.share}, "attention": {"value": bert.ratio}}


@evidence("DD-5.7")
def _(counted: Dataset) -> dict[str, Any]:
    bert = counted.sel(model="BERT-base").isel(seed=0)
    millions = np.array([float(bert[name]) for name in ("attention", "network", "rest")])
    return {"counts": {"value": millions}, "shares": {"value": 100 * millions / millions.sum()}}


@evidence("DD-5.8")
def _(counted: Dataset) -> dict[str, Any]:
    return {"value": counted.total.sel(model="BERT-base")}


@evidence("DD-14.6")
def _(counted: Dataset) -> dict[str, Any]:
    work = {name: {"value": counted.work.sel(length=name)} for name in LENGTHS}
    return {**work, "parameters": {"value": counted.ratio.sel(model="BERT-base")}}


@evidence("DD-10.7")
def _(activations: Dataset) -> dict[str, Any]:
    return {"error": activations["formula"], "control": activations.tanh}


@evidence("DD-10.8")
def _(activations: Dataset) -> dict[str, Any]:
    return {"value": {"value": activations.tanh}, "derivative": {"value": activations.tanh_slope}}


@evidence("DD-10.5")
def _(activations: Dataset) -> dict[str, Any]:
    return {
        "derivative": {"error": activations.slope, "control": activations.slope_control},
        "jump": {"value": activations.jump, "control": activations.jump_control},
    }


@evidence("DD-5.2")
def _(company: Dataset, jobs: Dataset, deeper: Dataset) -> dict[str, Any]:
    found = {f"pairs_{name}": company.accuracy.sel(arm=name) for name in ("heads", "layers")}
    for task in LAYERED:
        found[f"{task}_heads"] = jobs.accuracy.sel(job=task, arm="heads")
        found[f"{task}_layers"] = deeper.accuracy.sel(job=task)
    return {name: {"value": values} for name, values in found.items()}


@evidence("DA-2.19")
def _(instead: Dataset) -> dict[str, Any]:
    found = {}
    for task, of in (("table", instead.accuracy), ("text", instead.loss)):
        for name in FOUR[1:]:
            arms = {
                "treatment": of.sel(job=task, arm="whole"),
                "baseline": of.sel(job=task, arm=name),
            }
            if task == "table":
                arms["headroom"] = 1 - arms["baseline"]
            found[f"{task}_{name}"] = arms
    return found


def rises(jobs: Dataset) -> dict[str, DataArray]:
    """Rise of the loss in nats, (seed, job, part): trained without a part, and with it taken away afterwards.

    Returns:
        `trained`: loss of the model without the part, with as many parameters, less that of the whole model on
        the same seed; `ablated`: the part of one block replaced by its mean, mean over blocks.
    """
    whole = jobs.loss.sel(arm="whole", drop=True)
    losses = [jobs.loss.sel(arm=name, drop=True) - whole for name in ("heads", "neurons")]
    trained = DataArray(
        np.stack([one.transpose("seed", "job").values for one in losses], axis=2),
        dims=("seed", "job", "part"),
        coords={"job": jobs.job.values, "part": list(PARTS)},
    )
    return {"trained": trained, "ablated": jobs.taken}


@evidence("DD-12.4")
def _(jobs: Dataset) -> dict[str, Any]:
    return {
        f"{how}_{task}": {
            "treatment": rise.sel(job=task, part="network"),
            "baseline": rise.sel(job=task, part="attention"),
        }
        for how, rise in rises(jobs).items()
        for task in JOBS
    }
