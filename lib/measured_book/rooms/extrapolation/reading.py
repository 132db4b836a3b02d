"""How the results of the chapter on longer sequences are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from typing import Any

from measured_transformer.variants.longer import yarn_stretch
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.extrapolation.measure import (
    BACK,
    FAR,
    LATELY,
    LENGTH,
    LONGER,
    REACH,
    READ,
    SCHEMES,
    STRING,
)

# What the claims are judged by --------------------------------------------------------------------

OTHERS = ("sinusoidal", "learned", "relative", "alibi", "none")


def _near(values: DataArray) -> DataArray:
    """Just beyond the trained length, up to one and a half times."""
    return values.sel(bucket=slice(LENGTH, 3 * LENGTH // 2 - 1)).mean("bucket")


def _far(values: DataArray) -> DataArray:
    """Four to eight times the trained length."""
    return values.sel(bucket=slice(4 * LENGTH, None)).mean("bucket")


def _long(values: DataArray) -> DataArray:
    """Two to eight times the trained length."""
    return values.sel(bucket=slice(2 * LENGTH, None)).mean("bucket")


def judged(lag: Dataset, strings: Dataset, reached: Dataset, rule: str) -> dict[str, DataArray]:
    """The excess on a rule, by scheme, of the models that are judged and drawn.

    ALiBi that was trained until it had learned, and T5's bias with buckets that training reaches.
    """
    excess = (lag if rule == "three back" else strings).excess
    found = {name: excess.sel(scheme=name) for name in SCHEMES}
    found["alibi"] = lag.excess.sel(scheme=LONGER) if rule == "three back" else reached.alibi
    return {**found, "relative": reached.relative.sel(rule=rule)}


@evidence("DD-7.7")
def _(lag: Dataset, strings: Dataset, reached: Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, where, rule in (
        ("near", _near, "three back"),
        ("far", _far, "three back"),
        ("copy", _far, "strings"),
    ):
        excess = judged(lag, strings, reached, rule)
        for other in OTHERS:
            found[f"{name}_{other}"] = {
                "treatment": where(excess["rotary"]),
                "baseline": where(excess[other]),
            }
    return found


@evidence("DD-14.4")
def _(lag: Dataset, strings: Dataset, lately: Dataset) -> dict[str, Any]:
    return {
        "alone": {"value": _long(lag.excess.sel(scheme="rotary"))},
        "limited": {"value": lag.limited.sel(scheme="rotary")},
        "strings": {"value": strings.limited.sel(scheme="rotary")},
        "lately": {"value": _long(lately.loss.sel(kept="window"))},
        "start": {"value": _long(lately.loss.sel(kept="window and start"))},
    }


# Numbers that the prose names ---------------------------------------------------------------------


def _mean(values: DataArray) -> float:
    return float(values.mean("seed"))


def _of(values: DataArray, method: str) -> DataArray:
    return values.sel({"method": method})  # by its name xarray would take it for a way to fill gaps


@number
def near_rotary(lag: Dataset) -> float:
    """Excess just beyond the trained length on 'three back': rotary."""
    return _mean(_near(lag.excess.sel(scheme="rotary")))


@number
def near_sinusoidal(lag: Dataset) -> float:
    """The same: sinusoidal."""
    return _mean(_near(lag.excess.sel(scheme="sinusoidal")))


@number
def near_learned(lag: Dataset) -> float:
    """The same: learned."""
    return _mean(_near(lag.excess.sel(scheme="learned")))


@number
def far_rotary(lag: Dataset) -> float:
    """Excess at four to eight times the trained length on 'three back': rotary."""
    return _mean(_far(lag.excess.sel(scheme="rotary")))


@number
def far_alibi(lag: Dataset) -> float:
    """The same: ALiBi, trained longer."""
    return _mean(_far(lag.excess.sel(scheme=LONGER)))


@number
def far_relative(reached: Dataset) -> float:
    """The same: T5's bias."""
    return _mean(_far(reached.relative.sel(rule="three back")))


@number
def far_unreached(lag: Dataset) -> float:
    """The same: T5's bias with its usual largest distance, whose last numbers are never trained."""
    return _mean(_far(lag.excess.sel(scheme="relative")))


@number
def far_none(lag: Dataset) -> float:
    """The same: none."""
    return _mean(_far(lag.excess.sel(scheme="none")))


@number
def guess_lag() -> float:
    """Excess of guessing on 'three back'."""
    return math.log(BACK.vocab) - BACK.bayes_loss()


def _inside(values: DataArray) -> float:
    return _mean(values.sel(bucket=slice(0, LENGTH - 1)).mean("bucket"))


@number
def inside_alibi_short(lag: Dataset) -> float:
    """Excess within the trained length: ALiBi after the steps of all."""
    return _inside(lag.excess.sel(scheme="alibi"))


@number
def inside_alibi(lag: Dataset) -> float:
    """The same after ten times as many."""
    return _inside(lag.excess.sel(scheme=LONGER))


@number
def copy_inside_rotary(strings: Dataset) -> float:
    """Excess within the trained length on strings: rotary."""
    return _inside(strings.excess.sel(scheme="rotary"))


@number
def copy_far_rotary(strings: Dataset) -> float:
    """Excess at four to eight times the trained length on strings: rotary."""
    return _mean(_far(strings.excess.sel(scheme="rotary")))


@number
def copy_far_learned(strings: Dataset) -> float:
    """The same: learned."""
    return _mean(_far(strings.excess.sel(scheme="learned")))


@number
def copy_far_relative(reached: Dataset) -> float:
    """The same: T5's bias."""
    return _mean(_far(reached.relative.sel(rule="strings")))


@number
def copy_inside_alibi(reached: Dataset) -> float:
    """Excess within the trained length on strings: ALiBi, trained longer."""
    return _inside(reached.alibi)


@number
def copy_far_alibi(reached: Dataset) -> float:
    """The same at four to eight times the trained length."""
    return _mean(_far(reached.alibi))


@number
def clipped_rotary(reached: Dataset) -> float:
    """Excess of rotary at two to eight times the trained length on 'three back': all keys, no new distance."""
    return _mean(_long(reached.clipped.sel(rule="three back")))


@number
def copy_clipped_rotary(reached: Dataset) -> float:
    """The same on strings."""
    return _mean(_long(reached.clipped.sel(rule="strings")))


@number
def copy_bag() -> float:
    """Loss of knowing a string's symbols and not their order, in long sequences."""
    return STRING.bag_loss(length=REACH)


@number
def long_rotary(lag: Dataset) -> float:
    """Excess at two to eight times the trained length on 'three back': rotary."""
    return _mean(_long(lag.excess.sel(scheme="rotary")))


@number
def limited_rotary(lag: Dataset) -> float:
    """The same with a window."""
    return _mean(lag.limited.sel(scheme="rotary"))


@number
def copy_limited_rotary(strings: Dataset) -> float:
    """The same on strings."""
    return _mean(strings.limited.sel(scheme="rotary"))


@number
def copy_limited_relative(reached: Dataset) -> float:
    """The same for T5's bias."""
    return _mean(reached.limited.sel(rule="strings"))


@number
def copy_limited_learned(strings: Dataset) -> float:
    """The same for learned vectors."""
    return _mean(strings.limited.sel(scheme="learned"))


@number
def copy_long_relative(reached: Dataset) -> float:
    """Excess at two to eight times the trained length on strings, without a window: T5's bias."""
    return _mean(_long(reached.relative.sel(rule="strings")))


@number
def copy_long_learned(strings: Dataset) -> float:
    """The same: learned."""
    return _mean(_long(strings.excess.sel(scheme="learned")))


@number
def yarn_scores() -> float:
    """By what YaRN multiplies scores for sequences eight times as long."""
    return yarn_stretch(8.0) ** 2


@number
def text_trained(text: Dataset) -> float:
    """Nats a character in the second half of the trained length, on text held out."""
    inside = _of(text.loss, "as trained").sel(bucket=slice(READ // 2, READ - 1))
    return _mean(inside.mean("bucket"))


def _above(text: Dataset, method: str, start: int, end: int) -> float:
    """Nats a character more than with a window, between positions, stretched by eight."""
    where = slice(start, end - 1)
    zero = text.limited.sel(kept="window", bucket=where).mean("bucket")
    return _mean(_of(text.loss, method).sel(bucket=where).mean("bucket") - zero)


@number
def text_far(text: Dataset, *, method: str) -> float:
    """Nats a character above the window at four to eight times the trained length, by method."""
    return _above(text, method, 4 * READ, FAR)


@number
def text_inside(text: Dataset, *, method: str) -> float:
    """Nats a character above the window within the trained length, by method."""
    return _above(text, method, 0, READ)


@number
def text_behind_parts(text: Dataset) -> float:
    """The same right behind it, up to twice the trained length: by parts."""
    return _above(text, "by parts", READ, 2 * READ)


@number
def text_middle_ntk(text: Dataset) -> float:
    """The same at two to three times the trained length: NTK-aware."""
    return _above(text, "NTK-aware", 2 * READ, 3 * READ)


@number
def text_weight(text: Dataset) -> float:
    """Largest mean weight of a head on the start token, of any seed."""
    return float(text.weight.isel(token=0).max())


def _best_for_others(loss: DataArray) -> DataArray:
    """The loss at the rate that is best for the *other* seeds, so that no seed chooses for itself."""
    others = (loss.sum("seed") - loss) / (loss.seed.size - 1)
    return loss.isel(rate=others.argmin("rate"))


def more_training(again: Dataset, short: Dataset) -> tuple[DataArray, DataArray]:
    """Nats above the window at two to four times the trained length, before and after a few steps, by method.

    The window's own model has had as many further steps as what is compared with it. Rates are those that are
    best for the other seeds.
    """
    far = slice(2 * READ, None)
    before = again.before.sel(bucket=far).mean("bucket")
    after = _best_for_others(again.loss.sel(bucket=far).mean("bucket"))
    zero = again.limited.sel(bucket=far).mean("bucket")
    return before - zero, after - _best_for_others(short.loss)


@number
def window_gain(again: Dataset, short: Dataset) -> float:
    """By how much the window itself gets better with these steps."""
    zero = again.limited.sel(bucket=slice(2 * READ, None)).mean("bucket")
    return _mean(zero - _best_for_others(short.loss))


def _before(again: Dataset, short: Dataset, method: str) -> float:
    return _mean(_of(more_training(again, short)[0], method))


def _after(again: Dataset, short: Dataset, method: str) -> float:
    return _mean(_of(more_training(again, short)[1], method))


@number
def above_before(again: Dataset, short: Dataset, *, method: str) -> float:
    """Nats above the window before further training, by method."""
    return _before(again, short, method)


@number
def above_after(again: Dataset, short: Dataset, *, method: str) -> float:
    """Nats above the window after further training, by method."""
    return _after(again, short, method)


@number
def new_share() -> float:
    """How often a symbol is not among the last six."""
    return LATELY.new_share()


@number
def lately_guess() -> float:
    """Loss of guessing by how frequent the answers of 'seen lately' are."""
    return LATELY.blind_loss()


@number
def lately_window(lately: Dataset) -> float:
    """Loss on 'seen lately' at two to eight times the trained length, with a window."""
    return _mean(_long(lately.loss.sel(kept="window")))


@number
def lately_window_least(lately: Dataset) -> float:
    """The same of the seed that suffers least."""
    return float(_long(lately.loss.sel(kept="window")).min())


@number
def lately_start(lately: Dataset) -> float:
    """The same with the start token in it."""
    return _mean(_long(lately.loss.sel(kept="window and start")))


@number
def says_window(lately: Dataset) -> float:
    """How often the model says 'seen' with a window."""
    return _mean(lately.says.sel(kept="window"))


@number
def start_new(lately: Dataset) -> float:
    """Weight of the head that leans most on the start token, at new symbols."""
    return _mean(lately.weight.sel(token="new"))


@number
def start_seen(lately: Dataset) -> float:
    """The same at symbols seen lately."""
    return _mean(lately.weight.sel(token="seen"))
