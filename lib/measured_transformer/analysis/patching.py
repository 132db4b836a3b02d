"""Patching: puts part of one run into another run.

Two inputs, one clean and one corrupted, and two directions. Taking a value *from* the corrupted run *into* the
clean one asks whether the clean value is **needed** (noising). The other way round, it asks whether that value
is **enough** to bring the answer back (denoising). Where an answer takes two values together each is needed and
neither is enough; where either of two will do, each is enough and neither is needed.

`patched` does either, at one or several taps, and `patching_map` at one place after the other. `path_patched`
lets the new value of one head through along one path only: from that head to the queries, keys or values of a
later one, or to the last state.
All take a model with its tokenizer and texts with equally many tokens as well, see `texts`.

Sources: Vig et al. (2020); Meng et al. (2022); Wang et al. (2023), whose appendix has the steps of path
patching; Heimersheim and Nanda (2024) on the two directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.analysis.ablation import Component, listed, of_head
from measured_transformer.analysis.attribution import Explained, Target, embedded, explained
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.internals.names import taps
from measured_transformer.internals.places import Places, select

Axis = Literal["position", "head"]
"""What is patched one by one."""


@takes_text("into", "source")
@torch.no_grad()
def patched(
    model: Explained,
    into: Int[Tensor, "example position"],
    source: Int[Tensor, "example position"],
    components: Sequence[Component] | Component,
    target: Target,
    *,
    positions: Places | None = None,
    read_at: Places | None = None,
) -> Float[Tensor, "example"]:
    """The target of a run after patching in values of another run.

    Args:
        model: run twice.
        into: the tokens of the run that is changed.
        source: the tokens of the run that the values come from.
        components: whose values.
        target: read off the logits of the changed run.
        positions: at which positions; all when None. Of patterns and scores they are those of the query.
        read_at: at which positions logits are computed, where the target needs few, such as -1; all when None.
            The target then gets these alone, in this order. With a large vocabulary it saves most memory, and
            time.

    Raises:
        ValueError: when the two inputs differ in shape, or a position or a head lies outside.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.attribution import answer_logit
    >>> from measured_transformer.analysis.handmade import induction_model
    >>> model = induction_model(vocab=6, length=8)
    >>> clean, other = torch.tensor([[0, 5, 3, 1, 5]]), torch.tensor([[0, 5, 2, 1, 5]])
    >>> target = answer_logit(-1, torch.tensor([3]))
    >>> patched(model, clean, other, [Component("blocks.1.attention.mixed", 0)], target)
    tensor([0.], dtype=torch.float64)
    """
    _check_alike("into", into, "source", source)
    components = listed("components", components)
    with capture(model, *{each.tap for each in components}) as seen:
        _logits(model, source, read_at)
    with ExitStack() as stack:
        for each in components:
            value = seen[each.tap]
            stack.enter_context(intervene(model, {each.tap: _put(value, each.head, positions)}))
        return target(_logits(model, into, read_at))


def _logits(model: Explained, tokens: Tensor, read_at: Places | None) -> Tensor:
    if read_at is None:
        return model(tokens)
    stream = model.stream(tokens)
    places = select("read_at", read_at, stream.shape[1])
    return model.unembed(stream.index_select(1, places.to(stream.device)))


def _check_alike(first: str, one: Tensor, second: str, other: Tensor) -> None:
    """A single row would be stretched over all others without a word."""
    if one.shape != other.shape:
        raise ValueError(
            f"{first} and {second} must have one shape, row for row, got {tuple(one.shape)} and "
            f"{tuple(other.shape)}"
        )


def _put(value: Tensor, head: int | None, positions: Places | None) -> Change:
    """The change that puts part of a value in place of the same part."""
    if head is None and positions is None:
        return value
    chosen = value
    if head is not None:
        head = of_head(value, head)
        chosen = value[:, [head]]
    if positions is None:
        return at(chosen, heads=head)
    axis = chosen.ndim - 2
    places = select("positions", positions, chosen.shape[axis])
    return at(chosen.index_select(axis, places.to(chosen.device)), heads=head, positions=places)


@takes_text("into", "source")
@torch.no_grad()
def patching_map(
    model: Explained,
    into: Int[Tensor, "example position"],
    source: Int[Tensor, "example position"],
    target: Target,
    *,
    pattern: str = "blocks.*.residual_post",
    by: Axis = "position",
    read_at: Places | None = None,
    at_once: int = 16,
) -> Float[Tensor, "tap place example"]:
    """The target of a run after patching in one place of another run, for each place by itself.

    The same as `patched` for each tap and position, or each tap and head. The source is run once, and several
    places are rows of one batch.

    Args:
        model: of an encoder-decoder one of its `interop.sides`.
        into, source, target, read_at: as for `patched`.
        pattern: which taps, such as 'blocks.*.attention.mixed'; they come in the model's order.
        by: what a place is: a position, or a head of values that have heads.
        at_once: how many places are run in one batch, which takes so many times the memory.

    Raises:
        ValueError: when the two inputs differ in shape, the values at a tap have no heads and heads are asked
            for, or taps have different numbers of places.
        KeyError: when no tap has such a name.

    >>> from measured_transformer.analysis.attribution import answer_logit
    >>> from measured_transformer.analysis.handmade import induction_model
    >>> model = induction_model(vocab=6, length=8)
    >>> clean, other = torch.tensor([[0, 5, 3, 1, 5]]), torch.tensor([[0, 5, 2, 1, 5]])
    >>> target = answer_logit(-1, torch.tensor([3]))
    >>> found = patching_map(model, other, clean, target)    # two blocks, five positions, one example
    >>> found[:, :, 0].argmax(-1)    # the token that differs, until the second block has moved it to the end
    tensor([2, 4])
    """
    _check_alike("into", into, "source", source)
    if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
        raise ValueError(f"at_once must be a positive whole number, got {at_once!r}")
    with capture(model, pattern) as seen:
        _logits(model, source, read_at)
    counts = {tap: _places(tap, value, by) for tap, value in seen.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"the taps must have equally many places, got {by}s as {counts}: ask for them one by one"
        )
    count, found = next(iter(counts.values())), []
    for tap, value in seen.items():
        row = []
        for places in torch.arange(count).split(at_once):
            change = {tap: _one_each(value, places.tolist(), by)}
            with intervene(model, change):
                logits = _logits(model, into.repeat(len(places), 1), read_at)
            row += [target(part) for part in logits.split(len(into))]
        found.append(torch.stack(row))
    return torch.stack(found)


def _places(tap: str, value: Tensor, by: Axis) -> int:
    """How many places there are in a value along an axis."""
    if by not in ("position", "head"):
        raise ValueError(f"by must be 'position' or 'head', got {by!r}")
    if by == "head" and value.ndim != 4:
        raise ValueError(
            f"the values at {tap} have no heads, but the shape {tuple(value.shape)}: ask for attention.mixed "
            "or another tap within attention"
        )
    return value.shape[1 if by == "head" else value.ndim - 2]


def _one_each(value: Tensor, places: list[int], by: Axis) -> Change:
    """The change that puts one place of a value into the first rows, the next one into the rows after them."""
    axis, rows = (1 if by == "head" else value.ndim - 2), len(value)

    def change(run: Tensor) -> Tensor:
        run = run.clone()
        for number, place in enumerate(places):
            part = run[number * rows : (number + 1) * rows]
            part.select(axis, place).copy_(value.select(axis, place))
        return run

    return change


@takes_text("clean", "corrupted")
@torch.no_grad()
def restored_tokens(
    model: Explained,
    clean: Int[Tensor, "example position"],
    corrupted: Int[Tensor, "example position"],
    target: Target,
) -> Float[Tensor, "example position"]:
    """The rise of the target when one token of a corrupted sequence is restored.

    The denoising counterpart of `attribution.occlusion` by `resample`.

    Raises:
        ValueError: when the two inputs differ in shape.
    """
    _check_alike("clean", clean, "corrupted", corrupted)
    spoilt, own = embedded(model, corrupted), embedded(model, clean)
    before = target(model(corrupted))
    found = []
    for position in range(clean.shape[1]):
        changed = spoilt.clone()
        changed[:, position] = own[:, position]
        found.append(explained(model, corrupted, changed, target) - before)
    return torch.stack(found, 1)


@takes_text("clean", "corrupted")
@torch.no_grad()
def path_patched(
    model: Explained,
    clean: Int[Tensor, "example position"],
    corrupted: Int[Tensor, "example position"],
    sender: Component,
    receivers: Sequence[Component] | Component,
    target: Target,
    *,
    through_networks: bool = False,
) -> Float[Tensor, "example"]:
    """The target of the clean run when only the receivers see the corrupted value of one sender.

    First the sender's value is taken from the corrupted run. Then the clean run is made with it, all other
    heads held at what they gather in the clean run (and the networks at what they write): so the receivers get
    the new value over direct paths alone. What they get is put into a clean run that is otherwise left to
    itself.

    Args:
        model: run four times.
        clean, corrupted: two inputs of one shape.
        sender: a head, at ``mixed`` of its attention, or a network at `feedforward.out`.
        receivers: heads of later layers at `queries`, `keys` or `values` of their attention, or the stream
            after the last block, at `residual_post`, for the direct path to the logits.
        target: read off the logits.
        through_networks: whether the sender's value also reaches the receivers through the networks between.

    Raises:
        ValueError: as `patched`.
        KeyError: when there is no such tap.
    """
    _check_alike("clean", clean, "corrupted", corrupted)
    (sender,), receivers = listed("sender", [sender]), listed("receivers", receivers)
    with capture(model, sender.tap) as seen:
        model(corrupted)
    sent = seen[sender.tap]
    writers = [name for name in taps(model) if name.endswith("attention.mixed")]
    if not through_networks:
        writers += [name for name in taps(model) if name.endswith("feedforward.out")]
    with capture(model, *writers) as own:
        model(clean)
    held: Mapping[str, Change] = {name: own[name] for name in writers}
    with (
        intervene(model, held),
        intervene(model, {sender.tap: _put(sent, sender.head, None)}),
        capture(model, *{each.tap for each in receivers}) as got,
    ):
        model(clean)
    with ExitStack() as stack:
        for each in receivers:
            change = _put(got[each.tap], each.head, None)
            stack.enter_context(intervene(model, {each.tap: change}))
        return target(model(clean))
