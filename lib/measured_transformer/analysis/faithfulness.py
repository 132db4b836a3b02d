r"""Faithfulness, completeness and minimality of a circuit.

A *circuit* is a set of components, or of edges between them, that is said to do a task. Everything outside it
is ablated (by `zero`, by the `mean` or by `resample` from a reference set, `references`), and a target is read
off the logits. Which ablation it is changes the numbers and belongs to each of them.

With $F(S)$ the mean target when only the set $S$ is left whole, $M$ the model and $C$ the circuit:

- *Faithfulness* is the circuit's share of what the model does beyond a model with everything ablated,
  $(F(C) - F(\emptyset)) / (F(M) - F(\emptyset))$: 1 where the circuit alone is as good as the model.
- *Completeness* is 1 less the same share for the model without the circuit, $M \setminus C$: 1 where nothing
  outside does the task. (Marks et al., 2024, give the share itself.)
- *Incompleteness* (Wang et al., 2023) asks whether circuit and model stay alike when both lose the same parts
  $K$ of the circuit: $|F(C \setminus K) - F(M \setminus K)|$. It finds parts that step in when others fail.
- *Minimality* (the same) asks of each part $v$ what it adds once others are gone:
  $F(C \setminus K) - F(C \setminus (K \cup \{v\}))$.

With components each value that is put in reaches everything that follows. With edges it reaches the receivers
of those edges alone, and the embedding counts among the senders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.analysis.ablation import Component, feedforwards, heads, listed
from measured_transformer.analysis.attribution import Explained, Target
from measured_transformer.analysis.edges import Edge
from measured_transformer.analysis.path_patching import edges_replaced
from measured_transformer.analysis.references import Replaced, Values, replaced, replacements
from measured_transformer.analysis.texts import takes_text

Part = Component | Edge
"""What a circuit is made of: components, or edges between them."""
_KINDS: tuple[type[Component], type[Edge]] = (Component, Edge)


@dataclass(frozen=True)
class Ablations:
    """Values that stand in for the parts of a model on some sequences, chosen once for all sets to be compared.

    Attributes:
        model: is left as it is.
        tokens: the sequences on which the target is read.
        target: read off the logits.
        parts: everything that may be ablated: components alone, or edges alone.
        how: `zero`, `mean` or `resample`.
        values: what stands in, by the name of the tap.
    """

    model: Explained
    tokens: Int[Tensor, "example position"]
    target: Target
    parts: tuple[Part, ...]
    how: Replaced
    values: Values

    @torch.no_grad()
    def only(self, kept: Iterable[Part] | Part) -> Float[Tensor, "example"]:
        """The target when only these parts are left whole and all others are ablated.

        Raises:
            ValueError: when one of them is none of the parts.
        """
        kept = self._known(kept)
        gone = [each for each in self.parts if each not in kept]
        edges = [each for each in gone if isinstance(each, Edge)]
        if edges:
            return self.target(edges_replaced(self.model, self.tokens, edges, self.values))
        components = [each for each in gone if isinstance(each, Component)]
        with replaced(self.model, components, self.values):
            return self.target(self.model(self.tokens))

    def without(self, gone: Iterable[Part] | Part) -> Float[Tensor, "example"]:
        """The target when these parts are ablated and all others are left whole.

        Raises:
            ValueError: when one of them is none of the parts.
        """
        gone = self._known(gone)
        return self.only([each for each in self.parts if each not in gone])

    def _known(self, parts: Iterable[Part] | Part) -> set[Part]:
        found = set(listed("parts", parts, *_KINDS))
        if strange := found - set(self.parts):
            raise ValueError(
                f"{next(iter(strange)).label} is none of the {len(self.parts)} parts that may be ablated"
            )
        return found


@takes_text("tokens", "reference")
def ablations(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    target: Target,
    how: Replaced,
    *,
    parts: Sequence[Part] | Part | None = None,
    reference: Int[Tensor, "sequence position"] | None = None,
    generator: torch.Generator | None = None,
) -> Ablations:
    """Choose how parts are ablated, and see on the reference set what stands in for them.

    Args:
        model: of an encoder-decoder one of its `interop.sides`.
        tokens: the sequences on which the target is read.
        target: read off the logits.
        how: `zero`, `mean` (position by position) or `resample` (a sequence of the reference for each one here,
            the same for all parts and for all sets that are compared).
        parts: everything that may be ablated; all heads and networks when None. `edges.edges` lists all edges.
        reference: other sequences, of the same length, for `mean` and `resample`.
        generator: for `resample`, where the draw comes from.

    Raises:
        ValueError: when there is no part, components and edges are mixed, or something is missing that `how`
            needs.
        KeyError: when there is no such tap.
    """
    all_parts: Sequence[Part] = [*heads(model), *feedforwards(model)]
    every = tuple(all_parts if parts is None else listed("parts", parts, *_KINDS))
    if not every or len({type(each) for each in every}) > 1:
        raise ValueError(
            "the parts that may be ablated are components alone or edges alone, at least one, got "
            + (", ".join(sorted({type(each).__name__ for each in every})) or "none")
        )
    seen = [each.sender if isinstance(each, Edge) else each for each in every]
    values = replacements(model, tokens, seen, how, reference=reference, generator=generator)
    return Ablations(model, tokens, target, every, how, values)


@dataclass(frozen=True)
class CircuitScore:
    """The mean target of a model, of a circuit, and of both without the other.

    Attributes:
        how: how all else was ablated.
        model: F(M), nothing ablated.
        circuit: F(C), everything outside the circuit ablated.
        rest: F(M without C), the circuit ablated.
        nothing: all parts ablated.
    """

    how: Replaced
    model: float
    circuit: float
    rest: float
    nothing: float

    @property
    def faithfulness(self) -> float:
        """The circuit's share of what the model does beyond nothing; NaN where the model does nothing."""
        return self._share(self.circuit)

    @property
    def completeness(self) -> float:
        """1 less the share of what the model does that is left without the circuit; NaN as above."""
        return 1 - self._share(self.rest)

    def _share(self, value: float) -> float:
        whole = self.model - self.nothing
        return (value - self.nothing) / whole if whole else float("nan")


def circuit_score(setting: Ablations, circuit: Sequence[Part] | Part) -> CircuitScore:
    """Compare a circuit with the model, and the model without it with nothing.

    Args:
        setting: how parts are ablated, and on which sequences.
        circuit: some of its parts.

    Raises:
        ValueError: when one of the circuit's is none of the parts.

    >>> from measured_transformer.analysis.attribution import answer_logit
    >>> from measured_transformer.analysis.handmade import heads_model
    >>> model = heads_model(["uniform", "mirror"], vocab=5, length=4)
    >>> tokens = torch.tensor([[3, 1, 4, 2]])
    >>> setting = ablations(model, tokens, answer_logit(-1, tokens[:, 0]), "zero")
    >>> found = circuit_score(setting, [Component("blocks.0.attention.mixed", 1)])
    >>> found.faithfulness, found.completeness
    (1.0, 1.0)
    """
    return CircuitScore(
        how=setting.how,
        model=_mean(setting.without([])),
        circuit=_mean(setting.only(circuit)),
        rest=_mean(setting.without(circuit)),
        nothing=_mean(setting.only([])),
    )


def incompleteness(
    setting: Ablations, circuit: Sequence[Part] | Part, subsets: Iterable[Sequence[Part]]
) -> Float[Tensor, "subset"]:
    r"""How far circuit and model are apart once both lost the same: $|F(C \setminus K) - F(M \setminus K)|$.

    Args:
        setting, circuit: as for `circuit_score`.
        subsets: each a set K of the circuit's parts; `random_subsets` draws some.

    Raises:
        ValueError: when there is no subset, or one is not of the circuit.
    """
    found = []
    for subset in subsets:
        left = _less(circuit, subset)
        found.append(abs(_mean(setting.only(left)) - _mean(setting.without(subset))))
    if not found:
        raise ValueError("completeness is tested on at least one subset of the circuit, got none")
    return torch.tensor(found, dtype=torch.float64)


def minimality(
    setting: Ablations, circuit: Sequence[Part] | Part, *, gone: Sequence[Part] | Part = ()
) -> dict[Part, float]:
    r"""What each part of a circuit adds: $F(C \setminus K) - F(C \setminus (K \cup \{v\}))$.

    A part with 0 may be left out, or has another one that stands in for it: then it counts once that one is
    among the gone.

    Args:
        setting, circuit: as for `circuit_score`.
        gone: the set K, parts of the circuit that are ablated already.

    Returns:
        For each part of the circuit that is not gone, the fall of the mean target.

    Raises:
        ValueError: when one of those gone is not of the circuit.
    """
    left = _less(circuit, gone)
    whole = _mean(setting.only(left))
    return {each: whole - _mean(setting.only(_less(left, [each]))) for each in left}


def random_subsets(
    circuit: Sequence[Part] | Part, count: int, generator: torch.Generator
) -> list[list[Part]]:
    """Draw sets of a circuit's parts, each part in or out with equal chance.

    >>> parts = [Component("a"), Component("b"), Component("c")]
    >>> drawn = random_subsets(parts, 100, torch.Generator().manual_seed(0))
    >>> sorted({len(each) for each in drawn})
    [0, 1, 2, 3]
    """
    circuit = listed("parts", circuit, *_KINDS)
    chosen = torch.rand(count, len(circuit), generator=generator) < 0.5
    return [
        [part for part, is_in in zip(circuit, row, strict=True) if is_in] for row in chosen.tolist()
    ]


def _less(circuit: Sequence[Part] | Part, gone: Sequence[Part] | Part) -> list[Part]:
    parts, others = (listed("parts", each, *_KINDS) for each in (circuit, gone))
    if strange := set(others) - set(parts):
        raise ValueError(f"{next(iter(strange)).label} is no part of the circuit")
    return [each for each in parts if each not in set(others)]


def _mean(target: Tensor) -> float:
    return float(target.double().mean())
