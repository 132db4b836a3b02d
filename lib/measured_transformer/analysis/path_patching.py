"""Path patching: another run's values, along some edges or along one path, and nowhere else.

`patching.patched` changes what a part writes for all that follows. Here only the receivers of chosen edges
(`edges`) see the other value: `edge_patched` lets everything follow from that, `patched_along` lets it act
along one path and holds all else. `patching.path_patched` is the first of these for the edges from one head to
receivers that do not read each other.

A receiver's input is made by a run in which all senders before it are held at what it is to see. So the price
is a run for each group of receivers in a sublayer that see different values. What is exact:

- No edge is a run left to itself; all edges are the run that the values come from.
- All edges of one sender are patching that sender.
- The edge to the last state is the direct effect: without a final norm, or with its scale held, what
  `attribution.direct_logits` tells.
- In a model that is linear in its stream, the effects along all paths from one sender add up to its own.

Sources: Wang et al. (2023) and Goldowsky-Dill et al. (2023), path patching; Conmy et al. (2023), edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.analysis.ablation import Component, listed
from measured_transformer.analysis.attribution import Explained, Target
from measured_transformer.analysis.edges import (
    Edge,
    Sublayer,
    meet,
    senders_by_receiver,
    sublayers,
)
from measured_transformer.analysis.references import Values, replaced, seen_on
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import Places


@takes_text("tokens")
@torch.no_grad()
def edges_replaced(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    chosen: Sequence[Edge] | Edge,
    values: Values,
    *,
    positions: Places | None = None,
) -> Float[Tensor, "example answer vocab"]:
    """The logits of a run in which the receivers of the chosen edges see other values of the senders.

    Args:
        model: as for `edges`; run about three times for each sublayer that has chosen receivers.
        tokens: the run that is changed.
        chosen: edges whose receivers see these values; along all other edges they see what the senders write
            in this run.
        values: for each sender's tap, as `references.Reference` gives them or `capture` sees them.
        positions: of the senders, at which the values are other ones; all when None.

    Raises:
        ValueError: when the model has no such edge, or a value does not fit.
        KeyError: when a sender's tap has no value.
    """
    chosen = listed("chosen", chosen, Edge)
    *parts, last = sublayers(model)
    cut = senders_by_receiver([*parts, last], chosen)
    fixed: dict[
        str, Tensor
    ] = {}  # what the sublayers with cut edges write; all others follow from it
    now, behind = _senders_values(model, tokens, last, fixed), False
    for each in parts:
        groups: dict[frozenset[Component], list[Component]] = {}
        for receiver in each.receivers:
            groups.setdefault(cut.get(receiver, frozenset()), []).append(receiver)
        if not any(groups):
            behind = behind or bool(fixed)
            continue
        if behind:
            now, behind = _senders_values(model, tokens, last, fixed), False
        sent = {sender.tap: now[sender.tap] for sender in each.before}
        fixed[each.written] = _written(model, tokens, each, groups, sent, values, positions)
        now[each.written] = fixed[each.written]
    others = cut.get(last.receivers[0])
    if others is None:
        with intervene(model, fixed):
            return model(tokens)
    if behind:
        now = _senders_values(model, tokens, last, fixed)
    with intervene(model, now), replaced(model, list(others), values, positions=positions):
        return model(tokens)


def _senders_values(
    model: Explained, tokens: Tensor, last: Sublayer, fixed: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What all senders write when some of them are fixed."""
    with intervene(model, fixed), capture(model, *{each.tap for each in last.before}) as seen:
        model(tokens)
    return dict(seen)


def _written(
    model: Explained,
    tokens: Tensor,
    sublayer: Sublayer,
    groups: Mapping[frozenset[Component], list[Component]],
    sent: Mapping[str, Tensor],
    values: Values,
    positions: Places | None,
) -> Tensor:
    """What a sublayer writes, when each group of its receivers sees other values of other senders."""
    found = []
    for others, receivers in groups.items():
        looked_at = {each.tap for each in receivers} if len(groups) > 1 else {sublayer.written}
        with (
            intervene(model, sent),
            replaced(model, list(others), values, positions=positions),
            capture(model, *looked_at) as seen,
        ):
            model(tokens)
        found.append((receivers, dict(seen)))
    if len(groups) == 1:
        return found[0][1][sublayer.written]
    with ExitStack() as stack:
        for receivers, got in found:
            stack.enter_context(replaced(model, receivers, got))
        seen = stack.enter_context(capture(model, sublayer.written))
        model(tokens)
    return seen[sublayer.written]


@takes_text("into", "source")
def edge_patched(
    model: Explained,
    into: Int[Tensor, "example position"],
    source: Int[Tensor, "example position"],
    chosen: Sequence[Edge] | Edge,
    target: Target,
    *,
    positions: Places | None = None,
) -> Float[Tensor, "example"]:
    """The target of a run in which the receivers of some edges see the senders' values of another run.

    The value that is sent is the source run's, whatever else is patched; `patched_along` follows one path.

    Args:
        model: as for `edges_replaced`.
        into: the tokens of the run that is changed.
        source: the tokens of the run that the values come from.
        chosen: edges, all at once.
        target: read off the logits of the changed run.
        positions: of the senders; all when None.

    Raises:
        ValueError: as `edges_replaced`.

    >>> from measured_transformer.analysis.attribution import answer_logit
    >>> from measured_transformer.analysis.handmade import induction_model
    >>> model = induction_model(vocab=6, length=8)
    >>> clean, other = torch.tensor([[0, 5, 3, 1, 5]]), torch.tensor([[0, 4, 3, 1, 5]])
    >>> note, target = Component("blocks.0.attention.mixed", 0), answer_logit(-1, torch.tensor([3]))
    >>> for what in ("keys", "values"):    # the note is read as a key, and never as a value
    ...     edge = Edge(note, Component(f"blocks.1.attention.{what}", 0))
    ...     print(round(edge_patched(model, clean, other, [edge], target).item(), 2))
    0.25
    1.0
    """
    chosen = listed("chosen", chosen, Edge)
    if not chosen:
        with torch.no_grad():
            return target(model(into))
    values = seen_on(model, source, [each.sender for each in chosen]).values
    return target(edges_replaced(model, into, chosen, values, positions=positions))


@takes_text("clean", "corrupted")
@torch.no_grad()
def patched_along(
    model: Explained,
    clean: Int[Tensor, "example position"],
    corrupted: Int[Tensor, "example position"],
    path: Sequence[Edge] | Edge,
    target: Target,
) -> Float[Tensor, "example"]:
    """The target of the clean run when a sender's corrupted value acts along one path alone.

    Every part that is not on the path is held at what it writes in the clean run, for all parts on it. Where
    the path ends before the last state, the clean run with its end changed is left to itself, as
    `patching.path_patched` does it.

    Args:
        model: as for `edges`; run twice for each edge.
        clean, corrupted: two inputs of one shape.
        path: edges, each of whose senders is what the receiver before it writes with.
        target: read off the logits.

    Raises:
        ValueError: when there is no edge, the model has no such edge, or two of them do not meet.
    """
    path = listed("path", path, Edge)
    parts = sublayers(model)
    senders_by_receiver(parts, path)
    if not path:
        raise ValueError("a path has at least one edge, got none")
    for one, other in pairwise(path):
        if not meet(model, one.receiver, other.sender):
            raise ValueError(
                f"each edge of a path begins where the one before it ends: {one.label} does not lead to "
                f"{other.sender.label}"
            )
    own = seen_on(model, clean, [sender for each in parts for sender in each.before]).values
    values = seen_on(model, corrupted, [path[0].sender]).values
    for number, edge in enumerate(path):
        [sublayer] = [each for each in parts if edge.receiver in each.receivers]
        before = {sender.tap for sender in sublayer.before}
        with (
            intervene(model, {tap: own[tap] for tap in before}),
            replaced(model, [edge.sender], values),
            capture(model, edge.receiver.tap) as got,
        ):
            logits = model(clean)
        if sublayer.written == "":  # the last state: nothing follows but the logits
            return target(logits)
        following = path[number + 1].sender.tap if number + 1 < len(path) else edge.receiver.tap
        with replaced(model, [edge.receiver], dict(got)), capture(model, following) as seen:
            logits = model(clean)
        values = dict(seen)
    return target(logits)
