"""What the figures of the chapter on longer sequences draw, and two numbers of its prose.

What its claims are judged by, and the other numbers, stand in ``claims.toml`` and in the text.
"""

from __future__ import annotations

from measured_transformer.parts.rotary_scaling import (
    yarn_stretch,
)
from xarray import DataArray, Dataset

from measured_book.evidence.functions import best_rate
from measured_book.measuring import number
from measured_book.rooms.extrapolation.measure import LONGER, REACH, READ, SCHEMES, STRING


def judged(lag: Dataset, strings: Dataset, reached: Dataset, rule: str) -> dict[str, DataArray]:
    """The excess on a rule, by scheme, of the models that are judged and drawn.

    ALiBi that was trained until it had learned, and T5's bias with buckets that training reaches.
    """
    excess = (lag if rule == "three back" else strings).excess
    found = {name: excess.sel(scheme=name) for name in SCHEMES}
    found["alibi"] = lag.excess.sel(scheme=LONGER) if rule == "three back" else reached.alibi
    return {**found, "relative": reached.relative.sel(rule=rule)}


def more_training(again: Dataset, short: Dataset) -> tuple[DataArray, DataArray]:
    """Nats above the window at two to four times the trained length, before and after a few steps, by method.

    The window's own model has had as many further steps as what is compared with it. Rates are those that are
    best for the other seeds.
    """
    far = slice(2 * READ, None)
    before = again.before.sel(bucket=far).mean("bucket")
    after = best_rate(again.loss.sel(bucket=far).mean("bucket"))
    zero = again.limited.sel(bucket=far).mean("bucket")
    return before - zero, after - best_rate(short.loss)


@number
def copy_bag() -> float:
    """Loss of knowing a string's symbols and not their order, in long sequences."""
    return STRING.bag_loss(length=REACH)


@number
def yarn_scores() -> float:
    """By what YaRN multiplies scores for sequences eight times as long."""
    return yarn_stretch(8.0) ** 2
