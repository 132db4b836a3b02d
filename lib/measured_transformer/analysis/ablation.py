"""Ablation: what a model loses when one of its components is replaced by zero, a mean or another input's value.

A component is what passes one tap: a head's mixture of values, the pattern that a head attends with, what a
feed-forward network writes. Three ways to take it away, from crude to careful:

- `zero`: it is replaced by zeros. The rest of the model has never seen that, so what breaks may be the shock.
- `mean`: by its mean over other sequences, position by position. What does not depend on the sequence stays.
- `resample`: by what it is on another sequence. Each value is one that the model knows, but of the wrong input.

What they say differs: a head that adds the same vector to every sequence matters under `zero` and not under
the other two. Of a model with its tokenizer batches may be texts, see `texts`. Sources: Michel et al. (2019);
Wang et al. (2023), "Interpretability in the Wild"; Chan et al. (2022), "Causal Scrubbing".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.internals.names import taps
from measured_transformer.internals.places import select_one
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.losses import cross_entropy

How = Literal["zero", "mean", "resample", "even"]
Metric = Callable[[Model, Batch], float]


@dataclass(frozen=True)
class Component:
    """A component to ablate: everything that passes a tap, or one head's part of it.

    Attributes:
        tap: its name, such as `blocks.0.attention.mixed`.
        head: which head; all of them, or a tap without heads, when None.

    >>> Component("blocks.0.attention.mixed", 2).label
    'blocks.0.attention.mixed head 2'
    """

    tap: str
    head: int | None = None

    @property
    def label(self) -> str:
        """The tap's name, with the head's number."""
        return self.tap if self.head is None else f"{self.tap} head {self.head}"


def listed(name: str, given: Any, *kinds: type[Any]) -> list[Any]:
    """What an instrument was given, as a list: several components, or one by itself.

    Args:
        name: of the argument, for the error.
        given: one object or several.
        kinds: the classes that they may have; `Component` when none is given.

    Raises:
        ValueError: when one of them is another kind of thing, such as the bare name of a tap.

    >>> listed("components", Component("embedding"))
    [Component(tap='embedding', head=None)]
    >>> listed("components", ["embedding"])
    Traceback (most recent call last):
    ValueError: components must be of the class Component, got 'embedding': write Component('embedding')
    """
    classes: tuple[type[Any], ...] = kinds or (Component,)
    if isinstance(given, classes):
        return [given]
    place = isinstance(given, tuple) and [*map(type, given)] == [str, int]  # a tap and a head
    several = isinstance(given, Iterable) and not isinstance(given, str | Tensor) and not place
    found = list(given) if several else [given]
    for each in found:
        if not isinstance(each, classes):
            told, hint = " or ".join(one.__name__ for one in classes), ""
            if isinstance(each, str) and Component in classes:
                hint = f": write Component({each!r})"
            elif (
                isinstance(each, tuple)
                and [*map(type, each)] == [str, int]
                and Component in classes
            ):
                hint = f": write Component({each[0]!r}, {each[1]})"
            raise ValueError(f"{name} must be of the class {told}, got {each!r}{hint}")
    return found


def of_head(value: Float[Tensor, "..."], head: int) -> int:
    """The number of a head, from 0, among those of a value (batch, head, position, ...) of a tap.

    Raises:
        ValueError: when the value has no heads, or there is no such head; keys and values have as many as the
            model has key-value heads.
    """
    if value.ndim != 4:
        raise ValueError(
            "heads can be chosen of values of shape (batch, head, position, ...), got shape "
            f"{tuple(value.shape)}"
        )
    return select_one("head", head, value.shape[1])


@takes_text()
def heads(model: Model, what: str = "mixed") -> list[Component]:
    """Every head of the model, layer by layer.

    Args:
        model: with one or more layers of attention.
        what: the tap under each attention: ``mixed`` (what a head has gathered, so all that it will write),
            `pattern` (only where it looks) or `head_outputs`.

    Raises:
        ValueError: when an attention has no such tap with heads.

    >>> from measured_transformer.analysis.handmade import heads_model
    >>> [c.label for c in heads(heads_model(["next", "mirror"], vocab=3, length=4))]
    ['blocks.0.attention.mixed head 0', 'blocks.0.attention.mixed head 1']
    """
    if what not in ("queries", "scores", "pattern", "mixed", "head_outputs"):
        raise ValueError(
            "heads are seen at queries, scores, pattern, mixed or head_outputs of an attention, got "
            f"{what!r}"
        )
    found = [name for name in taps(model) if re.search(rf"attention\.{what}$", name)]
    config = model.config
    return [
        Component(name, head)
        for name in found
        for head in range(
            config.decoder_heads if name.startswith(("decoder.", "writer.")) else config.n_heads
        )
    ]


@takes_text()
def feedforwards(model: Model) -> list[Component]:
    """The feed-forward network of each block, as a whole."""
    return [Component(name) for name in taps(model) if name.endswith("feedforward.out")]


@takes_text(batches=["reference"])
@contextmanager
def ablated(
    model: Model,
    components: Sequence[Component] | Component,
    how: How = "mean",
    *,
    reference: Batch | None = None,
    order: Int[Tensor, "example"] | None = None,
) -> Iterator[None]:
    """Run the block with these components ablated.

    Args:
        model: is changed only while the block runs.
        components: what is taken away, all at once. What they are replaced by is taken from the whole model.
        how: `zero`, `mean`, `resample` (see above), or `even`: a pattern that attends to all keys that the
            component ever attended to on the reference, alike.
        reference: sequences for all but `zero`: of the same length as those in the block, and for `resample`
            as many.
        order: for `resample`, which sequence of the reference stands in for each one in the block; when not
            given, the next one.

    Raises:
        ValueError: when `how` is another one, a reference is missing or `order` is no list of numbers; in the
            forward pass, when the reference does not fit.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> model, tokens = reversal_model(vocab=5, length=4), torch.tensor([[3, 1, 4, 2]])
    >>> with ablated(model, heads(model), "zero"):
    ...     bool((model(tokens) == 0).all())
    True
    """
    _check(how, reference, order)
    components = listed("components", components)
    seen = {} if how == "zero" or reference is None else _seen(model, components, [reference])
    with _all(model, _changes(components, seen, how, order)):
        yield


def _check(how: How, reference: Batch | None, order: Tensor | None) -> None:
    if how not in get_args(How):
        raise ValueError(f"components are ablated by {', '.join(get_args(How))}; got {how!r}")
    if how != "zero" and reference is None:
        raise ValueError(f"{how!r} replaces by what is seen on other sequences: give a reference")
    if order is not None and (order.dtype == torch.bool or order.ndim != 1):
        raise ValueError(
            f"order must be one number of a sequence for each, got {order.dtype} of shape {tuple(order.shape)}"
        )


@torch.no_grad()
def _seen(
    model: Model, components: Sequence[Component], reference: Sequence[Batch]
) -> dict[str, Tensor]:
    """What passes the components' taps on sequences that are run part by part."""
    found: list[dict[str, Tensor]] = []
    for part in reference:
        with capture(model, *{c.tap for c in components}) as seen:
            predict(model, part)
        found.append(seen)
    if len(found) == 1:
        return found[0]
    return {tap: torch.cat([seen[tap] for seen in found]) for tap in found[0]}


def _changes(
    components: Sequence[Component], seen: Mapping[str, Tensor], how: How, order: Tensor | None
) -> list[Mapping[str, Change]]:
    """One change for each tap and head, each for a context of its own: they nest."""
    changes: list[Mapping[str, Change]] = []
    for component in components:
        value = _replacement(seen.get(component.tap), how, order)
        if component.head is None:
            changes.append({component.tap: _same_shape(value, how)})
        else:
            own = value
            if isinstance(value, Tensor):
                own = value[:, [of_head(value, component.head)]]
            changes.append({component.tap: at(_same_shape(own, how), heads=component.head)})
    return changes


@contextmanager
def _all(model: Model, changes: Sequence[Mapping[str, Change]]) -> Iterator[None]:
    if not changes:
        yield
        return
    with intervene(model, changes[0]), _all(model, changes[1:]):
        yield


def _replacement(seen: Tensor | None, how: How, order: Tensor | None) -> Tensor | float:
    if seen is None:
        return 0.0
    if how == "mean":
        return seen.mean(0, keepdim=True)
    if how == "even":
        attended = (seen > 0).any(0, keepdim=True).to(seen.dtype)
        return attended / attended.sum(-1, keepdim=True).clamp_min(1)
    return seen.roll(-1, 0) if order is None else seen[order]


def _same_shape(value: Tensor | float, how: How) -> Change:
    """Wrap the replacement in a change that reports a wrong shape."""
    if not isinstance(value, Tensor):
        return value

    def change(there: Tensor) -> Tensor:
        try:
            if how == "resample" and len(value) != len(there):
                raise RuntimeError  # a single sequence would stand in for all of them
            return value.to(there).expand_as(there)
        except RuntimeError:
            raise ValueError(
                "the reference must have sequences of the same length as those that are changed, and for "
                f"'resample' as many: it gives {tuple(value.shape)} for {tuple(there.shape)}"
            ) from None

    return change


@torch.no_grad()
def accuracy(model: Model, batch: Batch) -> float:
    """Share of scored positions whose most likely answer is right."""
    right = predict(model, batch).argmax(-1) == batch.targets
    return float(right[batch.scored].double().mean())


@torch.no_grad()
def loss(model: Model, batch: Batch) -> float:
    """Cross-entropy in nats per scored position."""
    return float(cross_entropy(predict(model, batch), batch.targets, batch.scored))


@takes_text(batches=["batch", "reference"])
def effects(
    model: Model,
    components: Sequence[Component | Sequence[Component]] | Component,
    batch: Batch,
    *,
    how: How = "mean",
    reference: Batch | None = None,
    metric: Metric = accuracy,
    rows: int | None = None,
) -> Float[ndarray, "component"]:
    """The change of a metric when each component is ablated on its own: ablated minus whole.

    Args:
        model: trained.
        components: each of them, or each group of them, is taken away alone.
        batch: what the metric is measured on.
        how, reference: as in `ablated`.
        metric: `accuracy`, `loss`, or any function of model and batch.
        rows: how many sequences are run at once; all when None. Few take less memory, as a large vocabulary
            asks for. The metric must then be a mean over scored positions, as `accuracy` and `loss` are.

    Raises:
        ValueError: as `ablated`, and when `rows` is not positive.

    >>> from measured_transformer.analysis.handmade import heads_model
    >>> from measured_transformer.tasks.reversal import Reversal
    >>> model = heads_model(["uniform", "mirror"], vocab=5, length=4)
    >>> batch = Reversal(5, 4).batch(torch.Generator().manual_seed(0), 100)
    >>> [bool(fall < -0.5) for fall in effects(model, heads(model), batch, how="zero")]
    [False, True]
    """
    several = [components] if isinstance(components, Component | str) else components
    groups = [listed("components", each) for each in several]
    if rows is not None:
        return _effects_by_rows(model, groups, batch, how, reference, metric, rows)
    whole = metric(model, batch)
    found = []
    for group in groups:
        with ablated(model, group, how, reference=reference):
            found.append(metric(model, batch) - whole)
    return np.array(found)


def _effects_by_rows(
    model: Model,
    groups: Sequence[Sequence[Component]],
    batch: Batch,
    how: How,
    reference: Batch | None,
    metric: Metric,
    rows: int,
) -> Float[ndarray, "component"]:
    _check(how, reference, None)
    if rows < 1:
        raise ValueError(f"rows must be a positive number of sequences, got {rows}")
    count = len(batch.inputs)
    if reference is not None and how == "resample" and len(reference.inputs) != count:
        raise ValueError(
            f"'resample' needs a reference of as many sequences as are changed, got {len(reference.inputs)} "
            f"for {count}"
        )
    places = torch.arange(count).split(rows)
    parts = [_part(batch, some) for some in places]
    shares = [float(part.scored.sum()) / float(batch.scored.sum()) for part in parts]
    replacing = [] if how == "zero" or reference is None else _split(reference, rows)

    def measured(group: Sequence[Component], seen: Mapping[str, Tensor]) -> float:
        total = 0.0
        for some, part, share in zip(places, parts, shares, strict=True):
            order = (some + 1) % count if how == "resample" else None
            if share:
                with _all(model, _changes(group, seen, how, order)):
                    total += share * metric(model, part)
        return total

    whole, found = measured([], {}), []
    taps_seen: frozenset[str] = frozenset()
    seen: dict[str, Tensor] = {}
    for group in groups:
        wanted = frozenset(one.tap for one in group)
        if replacing and wanted != taps_seen:  # heads of one layer share a run of the reference
            seen, taps_seen = _seen(model, group, replacing), wanted
        found.append(measured(group, seen) - whole)
    return np.array(found)


def _split(batch: Batch, rows: int) -> list[Batch]:
    return [_part(batch, some) for some in torch.arange(len(batch.inputs)).split(rows)]


def _part(batch: Batch, rows: Int[Tensor, "row"]) -> Batch:
    """Some sequences of a batch."""
    given: dict[str, Any] = {one.name: getattr(batch, one.name) for one in fields(batch)}
    gold = {name: tensor[rows] for name, tensor in given.pop("gold").items()}
    given = {name: x if x is None else x[rows] for name, x in given.items()}
    return Batch(**given, gold=gold)
