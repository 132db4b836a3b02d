"""Edges: what one part writes, as one other part reads it.

In a residual stream every part reads the sum of all that was written before. An *edge* is one summand of it, as
one reader sees it: the write of a sender (the embedding, a head, a network), read by a receiver (a head's
queries, keys or values, a network, the last state). `path_patching` changes what is sent along some edges
alone, and a circuit can be a set of them (`faithfulness`).

The names of a model's taps tell its edges, in the order in which its parts write: nothing is assumed of where
norms stand or how a part reads the stream. Source: Conmy et al. (2023), "Towards Automated Circuit Discovery".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import Explained
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.names import taps
from measured_transformer.parts.attention import MultiHeadAttention

_WRITES = r"blocks\.\d+\.((cross_)?attention\.mixed|feedforward\.out)$"


@dataclass(frozen=True)
class Edge:
    """One summand of the stream, as one part reads it.

    Attributes:
        sender: the embedding, a head at ``mixed`` of its attention, or a network at `feedforward.out`.
        receiver: a head at `queries`, `keys` or `values`, a network at `feedforward.out`, or the last state at
            `final_state`, from which the logits are read.

    >>> Edge(Component("embedding"), Component("blocks.0.attention.keys", 1)).label
    'embedding -> blocks.0.attention.keys head 1'
    """

    sender: Component
    receiver: Component

    @property
    def label(self) -> str:
        """Both labels."""
        return f"{self.sender.label} -> {self.receiver.label}"


@takes_text()
def edges(model: Explained) -> list[Edge]:
    """All edges of a model, from the first receiver to the last state.

    Args:
        model: of an encoder-decoder one of its `interop.sides`. A `SourceSide` has the edges of both stacks.

    Raises:
        ValueError: when the model is none of these.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> for edge in edges(reversal_model(vocab=5, length=4))[-3:]:
    ...     print(edge.label)
    embedding -> final_state
    blocks.0.attention.mixed head 0 -> final_state
    blocks.0.feedforward.out -> final_state
    """
    return [
        Edge(sender, receiver)
        for each in sublayers(model)
        for receiver, senders in each.readings.items()
        for sender in senders
    ]


@dataclass(frozen=True)
class Sublayer:
    """Receivers that read together, each with the senders that it reads, and the tap that they write to.

    Attributes:
        readings: for each receiver its senders.
        written: where the sublayer writes; nowhere, of the last state.
        before: all senders whose writes are held in a run for this sublayer.
    """

    readings: Mapping[Component, tuple[Component, ...]]
    written: str
    before: tuple[Component, ...]

    @property
    def receivers(self) -> tuple[Component, ...]:
        """All of them, in order."""
        return tuple(self.readings)


@takes_text()
def sublayers(model: Explained) -> list[Sublayer]:
    """The sublayers in the order in which they write, and the last state.

    Raises:
        ValueError: when the model is no single stack or side.
    """
    known = taps(model)
    if "embedding" not in known or "final_state" not in known:
        raise ValueError(
            f"edges are those of a Decoder or an Encoder, or of one side of an EncoderDecoder (interop.sides), "
            f"got {type(model).__name__}"
        )
    streams = [stream for stream in ("", "writer.") if f"{stream}embedding" in known]
    written = {stream: [Component(f"{stream}embedding")] for stream in streams}
    found: list[Sublayer] = []
    names = [name.rpartition(".")[0] for name in known if re.search(_WRITES, name)]
    for stream in streams:
        for name in (each for each in names if each.startswith(f"{stream}blocks.")):
            own = tuple(written[stream])
            before = tuple(sender for each in streams for sender in written[each])
            if name.endswith("feedforward"):
                network = Component(f"{name}.out")
                found.append(Sublayer({network: own}, network.tap, before))
                written[stream].append(network)
                continue
            memory = own if name.endswith(".attention") else ()
            if stream and name.endswith("cross_attention"):
                memory = tuple(written[""])
            n_heads, n_kv_heads = _head_counts(model, name)
            readings = {Component(f"{name}.queries", head): own for head in range(n_heads)}
            if memory:
                pairs = [(what, head) for what in ("keys", "values") for head in range(n_kv_heads)]
                readings |= {Component(f"{name}.{what}", head): memory for what, head in pairs}
            found.append(Sublayer(readings, f"{name}.mixed", before))
            written[stream] += [Component(f"{name}.mixed", head) for head in range(n_heads)]
    before = tuple(sender for each in streams for sender in written[each])
    last = Component(f"{streams[-1]}final_state")
    return [*found, Sublayer({last: tuple(written[streams[-1]])}, "", before)]


def _head_counts(model: Explained, name: str) -> tuple[int, int]:
    attention = cast(MultiHeadAttention, model.get_submodule(name))
    return attention.n_heads, attention.n_kv_heads


def senders_by_receiver(
    sublayers: Sequence[Sublayer], chosen: Sequence[Edge]
) -> dict[Component, frozenset[Component]]:
    """The chosen edges' senders for each receiver.

    Raises:
        ValueError: when an edge is none of the model's.
    """
    readings = {receiver: s for each in sublayers for receiver, s in each.readings.items()}
    found: dict[Component, set[Component]] = {}
    for edge in chosen:
        if edge.sender not in readings.get(edge.receiver, ()):
            raise ValueError(
                f"the model has no edge {edge.label}: analysis.edges.edges lists those that it has"
            )
        found.setdefault(edge.receiver, set()).add(edge.sender)
    return {receiver: frozenset(senders) for receiver, senders in found.items()}


@takes_text()
def meet(model: Explained, receiver: Component, sender: Component) -> bool:
    """Return whether this receiver's input is part of what makes that sender's write."""
    name, _, what = receiver.tap.rpartition(".")
    if what == "out" or sender.tap != f"{name}.mixed":
        return receiver == sender
    n_heads, n_kv_heads = _head_counts(model, name)
    shared = 1 if what == "queries" else n_heads // n_kv_heads
    return sender.head is not None and sender.head // shared == receiver.head
