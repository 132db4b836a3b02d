"""How the results of the chapter on norm placement are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from measured_transformer.analysis.solving import LEVEL
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.norm_placement.measure import DEEP, DEPTHS, LIMIT, TASK

# What the claims are judged by --------------------------------------------------------------------


def _log(values: DataArray) -> DataArray:
    """The natural logarithm, with axes kept."""
    found: DataArray = xarray.apply_ufunc(np.log, values)
    return found


def at_best_rate(steps: DataArray) -> DataArray:
    """Steps of each seed at the learning rate that is best for the *other* seeds (smallest mean logarithm)."""
    logs = _log(steps)
    chosen = []
    for seed in steps.seed.values:
        others = logs.drop_sel(seed=seed).mean("seed")
        best = others.argmin("rate")
        chosen.append(steps.sel(seed=seed).isel(rate=best))
    return xarray.concat([one.drop_vars("rate") for one in chosen], "seed")


def _log_steps(border: Dataset, placement: str, depth: int) -> DataArray:
    return _log(at_best_rate(border.steps.sel(placement=placement, depth=depth)))


@evidence("CS-4.1")
def _(two_blocks: Dataset) -> dict[str, Any]:
    return {"value": two_blocks.loss.sel(placement="pre", rate="stated")}


@evidence("CS-4.2")
def _(two_blocks: Dataset) -> dict[str, Any]:
    def arms(values: DataArray, kind: str) -> dict[str, DataArray]:
        here = values.sel(rate=kind)
        return {"treatment": here.sel(placement="post"), "baseline": here.sel(placement="pre")}

    return {
        "converges": {"value": two_blocks.loss.sel(placement="post", rate="stated")},
        "steps": arms(_log(two_blocks.steps), "stated"),
        "loss": arms(two_blocks.loss, "stated"),
        "steps_tuned": arms(_log(two_blocks.steps), "tuned"),
        "loss_tuned": arms(two_blocks.loss, "tuned"),
    }


@evidence("CS-4.7")
def _(two_blocks: Dataset) -> dict[str, Any]:
    logs = _log(two_blocks.steps.sel(rate="tuned"))
    return {"treatment": logs.sel(placement="pre"), "baseline": logs.sel(placement="post")}


def _gain(border: Dataset, depth: int) -> DataArray:
    return _log_steps(border, "post", depth) - _log_steps(border, "pre", depth)


def _rates_that_work(border: Dataset, placement: str) -> DataArray:
    return border.solved.sel(placement=placement, depth=DEEP).sum("rate").astype(float)


@evidence("CS-6.4")
def _(border: Dataset) -> dict[str, Any]:
    steps = {
        f"steps_{depth}": {
            "treatment": _log_steps(border, "pre", depth),
            "baseline": _log_steps(border, "post", depth),
        }
        for depth in DEPTHS
    }
    return {
        **steps,
        "interaction": {"treatment": _gain(border, DEEP), "baseline": _gain(border, 2)},
        "stable": {
            "treatment": _rates_that_work(border, "pre"),
            "baseline": _rates_that_work(border, "post"),
        },
    }


@evidence("DD-14.5")
def _(border: Dataset, two_blocks: Dataset) -> dict[str, Any]:
    loss = two_blocks.loss.sel(rate="tuned")
    return {
        "stable": {
            "treatment": _rates_that_work(border, "pre"),
            "baseline": _rates_that_work(border, "post"),
        },
        "steps": {
            "treatment": _log_steps(border, "pre", DEEP),
            "baseline": _log_steps(border, "post", DEEP),
        },
        "loss": {"treatment": loss.sel(placement="pre"), "baseline": loss.sel(placement="post")},
    }


@evidence("EX-1.11")
def _(untrained: Dataset) -> dict[str, Any]:
    logs = _log(untrained.logits)

    def arm(final: str, depth: int) -> DataArray:
        return logs.sel(final=final, depth=depth)

    return {
        "grows": {"treatment": arm("without", DEEP), "baseline": arm("without", 2)},
        "stays": {
            "treatment": arm("with", DEEP),
            "baseline": arm("with", 2),
            "control": arm("without", DEEP) - arm("without", 2) + arm("with", 2),
        },
    }


@evidence("EX-1.9")
def _(border: Dataset, elsewhere: Dataset) -> dict[str, Any]:
    found = {
        "pre": border.steps.sel(placement="pre", depth=DEEP),
        "post": border.steps.sel(placement="post", depth=DEEP),
        "sandwich": elsewhere.steps.sel(place="both sides"),
        "qk": elsewhere.steps.sel(place="queries and keys"),
        "none": elsewhere.steps.sel(place="nowhere"),
    }
    shares = {name: at_best_rate(steps) < LIMIT for name, steps in found.items()}
    return {
        name: {"successes": [int(share.sum())], "trials": [share.size]}
        for name, share in shares.items()
    }


# Numbers that the prose names ---------------------------------------------------------------------


@number
def bag_loss() -> float:
    """What a model can reach that knows which tokens there are, and nothing of their order."""
    return TASK.bag_loss()


@number
def level() -> float:
    """The loss at which the task counts as solved."""
    return LEVEL


@number
def slower_tuned(two_blocks: Dataset) -> DataArray:
    """How many times as many steps post-norm takes, two blocks, each at its own learning rate."""
    steps = two_blocks.steps.sel(rate="tuned")
    return steps.sel(placement="post") / steps.sel(placement="pre")


@number
def slower_stated(two_blocks: Dataset) -> DataArray:
    """The same at the stated learning rate."""
    steps = two_blocks.steps.sel(rate="stated")
    return steps.sel(placement="post") / steps.sel(placement="pre")


@number
def post_best_loss(border: Dataset) -> float:
    """The smallest last loss, over learning rates, of post-norm of twelve blocks (mean over seeds)."""
    losses = border.last_loss.sel(placement="post", depth=DEEP).mean("seed")
    return float(losses.min())


@number
def solved_pre(border: Dataset) -> int:
    """Trainings of twelve blocks of pre-norm that solve the task."""
    return int(border.solved.sel(placement="pre", depth=DEEP).sum())


@number
def solved_post(border: Dataset) -> int:
    """Trainings of twelve blocks of post-norm that solve the task."""
    return int(border.solved.sel(placement="post", depth=DEEP).sum())


@number
def solved_small(recipes: Dataset) -> int:
    """Trainings of twelve blocks of post-norm with small weights that solve the task."""
    return int(recipes.solved.sel(recipe="small weights", placement="post").sum())


@number
def tried_small(recipes: Dataset) -> int:
    """How many of these there are."""
    return int(recipes.solved.sel(recipe="small weights", placement="post").size)


@number
def solved_small_pre(recipes: Dataset) -> int:
    """The same for pre-norm."""
    return int(recipes.solved.sel(recipe="small weights", placement="pre").sum())


@number
def solved_long(recipes: Dataset) -> int:
    """Trainings of twelve blocks of post-norm with a longer warm-up that solve the task."""
    return int(recipes.solved.sel(recipe="long warm-up", placement="post").sum())


@number
def per_cell(border: Dataset) -> int:
    """Trainings in each cell of the map."""
    return int(border.sizes["seed"])


@number
def tried_deep(border: Dataset) -> int:
    """Trainings of one placement with twelve blocks."""
    return int(border.solved.sel(placement="pre", depth=DEEP).size)


@number
def kept_post(untrained: Dataset) -> float:
    """The cosine between the stream before and after one fresh post-norm block."""
    return float(untrained.kept.sel(weights="xavier", placement="post").mean())


@number
def solved_long_pre(recipes: Dataset) -> int:
    """Trainings of twelve blocks of pre-norm with a longer warm-up that solve the task."""
    return int(recipes.solved.sel(recipe="long warm-up", placement="pre").sum())


@number
def solved_apart(elsewhere: Dataset) -> int:
    """Trainings with norms on queries and keys alone that solve the task."""
    return int(elsewhere.solved.sel(place="queries and keys").sum())


@number
def logit_growth(untrained: Dataset) -> DataArray:
    """How far logits spread at 24 blocks, as a multiple of two blocks, without a final norm."""
    spread = untrained.logits.sel(final="without")
    return spread.sel(depth=24) / spread.sel(depth=2)


@number
def sure_small(recipes: Dataset) -> int:
    """Learning rates at which every post-norm training with small weights solves the task."""
    solved = recipes.solved.sel(recipe="small weights", placement="post")
    return int(solved.all("seed").sum())


@number
def at_its_surest(border: Dataset, *, depth: int) -> int:
    """Trainings of post-norm that solve the task at the learning rate at which most do."""
    return int(border.solved.sel(placement="post", depth=depth).sum("seed").max())


@number
def per_place(elsewhere: Dataset) -> int:
    """Trainings of a norm in another place at each learning rate."""
    return int(elsewhere.sizes["seed"])


@number
def rates_tried(border: Dataset) -> int:
    """Learning rates of the grid."""
    return int(border.sizes["rate"])


@number
def slower(border: Dataset, *, depth: int) -> DataArray:
    """How many times as many steps post-norm takes, each seed at its learning rate."""
    found: DataArray = xarray.apply_ufunc(np.exp, _gain(border, depth))
    return found


@number
def alike_small(alike: Dataset) -> float:
    """With small weights: how much of the first block's cosine with the embedding the twelfth still has."""
    kept = alike.kept.sel(stack="post, small").mean("seed")
    return float(kept.sel(block=DEEP) / kept.sel(block=1))


@number
def alike_bert(alike: Dataset) -> DataArray:
    """The cosine between two positions after twelve blocks drawn as BERT is."""
    return alike.alike.sel(stack="post, as BERT", block=DEEP)


@number
def alike_wide(alike: Dataset) -> DataArray:
    """The same at that width with Xavier weights."""
    return alike.alike.sel(stack="post, wide", block=DEEP)
