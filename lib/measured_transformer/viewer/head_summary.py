"""Summarises what one head attends to, in numbers and a sentence.

A head's row of weights says where one query looks; its *places* are positions that mean the same for every
query: its own, the one before, the first, the mirrored one. The summary averages the weight on each place
over the queries, and the entropy of their rows.

>>> import numpy as np
>>> before = np.eye(9, k=-1)
>>> before[0, 0] = 1.0                                   # nothing stands before the first token
>>> summarise_head(before, allowed=np.tri(9)).sentence
'Mostly the previous token, 1.00 of the weight. Also on the first token 0.12. Entropy 0.00 of at most \
1.60 nats, as if spread over 1.0 tokens.'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

EVEN = 0.95
"""Share of the highest possible entropy from which a head counts as spreading evenly."""
MOSTLY = 0.5
"""Average weight on a place from which a head counts as looking mostly there."""
RATHER = 0.25
"""Average weight on a place from which a head counts as looking there more than elsewhere."""
NAMED = 0.1
"""Average weight from which a further place is worth a word."""
_ENOUGH = 2 / 3  # of the queries must have a place for it to describe the head


@dataclass(frozen=True)
class HeadSummary:
    """The attention of one head on one example, averaged over queries with more than one key.

    Attributes:
        shares: place -> mean weight on it, over the queries that have such a place; places that fewer than
            two thirds of the queries have are left out.
        place: the place with the largest share; "" when there is none.
        entropy: mean entropy of the rows, in nats.
        highest_entropy: what it would be if every query spread its weight evenly over what it may see.
        busiest: the key that receives most weight on average.
        busiest_weight: how much that is.
        sentence: all of that in words.
    """

    shares: Mapping[str, float]
    place: str
    entropy: float
    highest_entropy: float
    busiest: int
    busiest_weight: float
    sentence: str


def summarise_head(
    pattern: ArrayLike,
    *,
    allowed: ArrayLike | None = None,
    keys: Sequence[str] | None = None,
    cross: bool = False,
) -> HeadSummary:
    """Describe one head on one example.

    Queries that may look at one token only say nothing about a head and are left out.

    Args:
        pattern: weights, shape (query, key), each row summing to one.
        allowed: True where a query may look, shape (query, key); everywhere unless given.
        keys: the words of the keys, to name the busiest one; its number unless given.
        cross: queries and keys are different sequences, so that no token is its own or the previous one.

    Raises:
        ValueError: the pattern is no matrix, or `allowed` or `keys` do not fit it.
    """
    weights: NDArray[np.float64] = np.asarray(pattern, dtype=float)
    if weights.ndim != 2:
        raise ValueError(f"expected a pattern of shape (query, key), got shape {weights.shape}")
    free = np.ones(weights.shape, bool) if allowed is None else np.asarray(allowed, dtype=bool)
    if free.shape != weights.shape:
        raise ValueError(f"expected `allowed` of shape {weights.shape}, got {free.shape}")
    if keys is not None and len(keys) != weights.shape[1]:
        raise ValueError(f"expected {weights.shape[1]} keys, one a column, got {len(keys)}")
    choosing = np.flatnonzero(free.sum(axis=1) >= 2)
    if choosing.size == 0:
        words = "No query may look at more than one token, so there is nothing to choose."
        return HeadSummary(MappingProxyType({}), "", 0.0, 0.0, 0, 0.0, words)
    rows = weights[choosing]
    logs = np.log(rows, where=rows > 0, out=np.zeros_like(rows))
    entropy = abs(float(-(rows * logs).sum(axis=1).mean()))
    highest = float(np.log(free[choosing].sum(axis=1)).mean())
    shares = _shares(weights, free, choosing, cross)
    place = max(shares, key=lambda name: shares[name], default="")
    received = rows.mean(axis=0)
    busiest = int(received.argmax())
    name = f"key {busiest}" if keys is None else f"\u201c{keys[busiest]}\u201d"
    sentence = _sentence(shares, place, entropy, highest, name, float(received[busiest]))
    return HeadSummary(
        shares=MappingProxyType(shares),
        place=place,
        entropy=entropy,
        highest_entropy=highest,
        busiest=busiest,
        busiest_weight=float(received[busiest]),
        sentence=sentence,
    )


def _shares(
    weights: NDArray[np.float64],
    free: NDArray[np.bool_],
    choosing: NDArray[np.intp],
    cross: bool,
) -> dict[str, float]:
    """Return place -> mean weight, in the order in which the places are named."""
    last = weights.shape[1] - 1
    same = "the same position" if cross else "the own position"
    places = {same: choosing}
    if not cross:
        places |= {"the previous token": choosing - 1, "the next token": choosing + 1}
    places |= {
        "the first token": np.where(choosing == 0, -1, 0) if not cross else 0 * choosing,
        "the last token": np.where(choosing == last, -1, last)
        if not cross
        else last + 0 * choosing,
        "the mirrored position": last - choosing,
    }
    shares = {}
    for name, columns in places.items():
        inside = (columns >= 0) & (columns <= last)
        queries, columns = choosing[inside], columns[inside]
        seen = free[queries, columns]
        if seen.sum() >= max(1.0, _ENOUGH * choosing.size):
            shares[name] = float(weights[queries[seen], columns[seen]].mean())
    return shares


def _sentence(
    shares: Mapping[str, float],
    place: str,
    entropy: float,
    highest: float,
    busiest: str,
    received: float,
) -> str:
    share = shares.get(place, 0.0)
    others = [name for name, value in shares.items() if value >= NAMED]
    if entropy >= EVEN * highest:
        head, others = "Almost evenly over all that may be seen.", []
    elif share >= RATHER:
        head = (
            f"{'Mostly' if share >= MOSTLY else 'Most often'} {place}, {share:.2f} of the weight."
        )
        others.remove(place)
    else:
        head = f"No place stands out; {busiest} receives most, {received:.2f} on average."
    listed = ", ".join(f"{name} {shares[name]:.2f}" for name in others)
    also = f" Also on {listed}." if listed else ""
    return (
        f"{head}{also} Entropy {entropy:.2f} of at most {highest:.2f} nats, "
        f"as if spread over {np.exp(entropy):.1f} tokens."
    )
