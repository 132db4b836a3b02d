"""Indirect objects in SmolLM2: whom a sentence names next, which heads bring it, and what a circuit is worth.

Heads are found, and a circuit chosen, on forms and names that judge nothing; the circuit is judged on others. A
seed is a draw of names, places and things.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.ablation import heads as heads_in
from measured_transformer.analysis.faithfulness import Ablations
from measured_transformer.analysis.references import seen_on
from measured_transformer.internals.capture import capture
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.repeats.routes import LEVELS, effects, routes, strongest
from measured_book.smollm2.controls import Head
from measured_book.smollm2.indirect_objects import Asked, asked
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.prompts import gap

BLOCKS, HEADS = tuple(range(1, 31)), tuple(range(1, 10))
EACH = 1
"""Prompts of each form and order of the names: eight that choose and eight that judge."""
RECEIVERS = 5
"""Heads of each kind of path that the next kind leads to."""
SIZES = (15, 45)
"""Heads of a circuit: a third of them from each kind of path."""
REFERENCE, ELSEWHERE = 3, 1000
"""Reference prompts of each form and order, and what is added to the seed that they are drawn from."""
NAMES = ("two", "three")
"""The subject that is named again is one of two people; or a third one, so that neither is to be expected."""
LOOKED = ("right", "wrong")
MOVERS = 3
"""Heads that do most for the right name straight on the answer; it is asked where they look."""
OF = ("circuit", "random")
KEPT = ("only", "without")


@measurement(
    seeds=10,
    coords={
        "level": LEVELS,
        "block": BLOCKS,
        "head": HEADS,
        "names": NAMES,
        "to": LOOKED,
        "size": SIZES,
        "of": OF,
        "kept": KEPT,
    },
    tolerance={
        "gap": 0.1,
        "ahead": 0.13,
        "effect": 0.05,
        "depth": 2.0,
        "weight": 0.05,
        "circuit": 0.2,
        "nothing": 0.2,
    },
    pretrained=NEEDS,
)
@torch.no_grad()
def objects(seed: int) -> dict[str, Any]:
    """Whether the right name is ahead, what heads do for it along three paths, and what a circuit keeps."""
    two, three = asked(seed, "judging", EACH)
    gaps = [gaps_after(last_logits(one.tokens), one) for one in (two, three)]
    effect = found_by_paths(seed)
    most = (-effect[0].flatten()).topk(MOVERS).indices.tolist()
    setting, chance = setting_of(seed), make_generator(seed, "random circuits")

    def kept(heads: Sequence[Head]) -> list[float]:
        parts = components(heads)
        return [float(run(parts).double().mean()) for run in (setting.only, setting.without)]

    circuits = [
        [head for some in strongest(effect, size // len(LEVELS)) for head in some] for size in SIZES
    ]
    return {
        "gap": ("names", [float(one.mean()) for one in gaps]),
        "ahead": ("names", [float((one > 0).float().mean()) for one in gaps]),
        "effect": (("level", "block", "head"), effect),
        "depth": (
            "level",
            [
                float(np.mean([block + 1 for block, _ in heads]))
                for heads in strongest(effect, RECEIVERS)
            ],
        ),
        "weight": ("to", looks_at(two, [divmod(place, len(HEADS)) for place in most])),
        "circuit": (
            ("size", "of", "kept"),
            [[kept(one), kept(alike(one, chance))] for one in circuits],
        ),
        "nothing": float(setting.only([]).double().mean()),
    }


def last_logits(tokens: Int[Tensor, "prompt position"]) -> Float[Tensor, "prompt 1 vocab"]:
    """The logits behind the last position."""
    model = smollm2().model
    return model.unembed(model.stream(tokens)[:, -1:])


def gaps_after(
    logits: Float[Tensor, "prompt position vocab"], prompts: Asked
) -> Float[Tensor, "prompt"]:
    """The logit of the right name less that of the wrong one, at the last position."""
    return gap(logits[:, -1], prompts.right, prompts.wrong)


def found_by_paths(seed: int, which: str = "choosing") -> Float[Tensor, "level block head"]:
    """The effects of all heads on the prompts that choose."""
    prompts, others = asked(seed, which, EACH)
    return effects(routes(prompts.tokens, others.tokens, prompts.right, prompts.wrong), RECEIVERS)


def looks_at(prompts: Asked, heads: Sequence[Head]) -> list[float]:
    """The mean weight that heads give from the last position to the right name and to the wrong one."""
    rows = torch.arange(len(prompts.tokens))
    names = [f"blocks.{block}.attention.pattern" for block, _ in heads]
    with capture(smollm2().model, *set(names)) as seen:
        smollm2().model.stream(prompts.tokens)
    last = torch.stack(
        [seen[name][:, head, -1] for name, (_, head) in zip(names, heads, strict=True)]
    )
    twice = (prompts.tokens == prompts.wrong[:, None]).to(last)
    return [
        float(last[:, rows, prompts.at(prompts.right)].mean()),
        float((last * twice).sum(-1).mean()),
    ]


def setting_of(seed: int, which: str = "judging") -> Ablations:
    """The prompts that judge, with what stands in for a head: its mean over prompts with three names.

    Means are taken position by position over prompts of the same form.
    """
    model = smollm2().model
    prompts = asked(seed, which, EACH)[0]
    _, reference = asked(seed + ELSEWHERE, which, REFERENCE)
    parts = tuple(heads_in(model))
    seen = seen_on(model, reference.tokens, parts).values
    forms = reference.form.unique()
    values = {
        tap: torch.stack([value[reference.form == form].mean(0) for form in forms])[prompts.form]
        for tap, value in seen.items()
    }
    return Ablations(
        model, prompts.tokens, lambda logits: gaps_after(logits, prompts), parts, "mean", values
    )


def alike(circuit: Sequence[Head], generator: torch.Generator) -> list[Head]:
    """As many heads of each block as a circuit has there, drawn at random from all of the block."""
    found = []
    for block in sorted({block for block, _ in circuit}):
        count = sum(one == block for one, _ in circuit)
        drawn = torch.randperm(len(HEADS), generator=generator)[:count]
        found += [(block, head) for head in drawn.tolist()]
    return found


def components(heads: Sequence[Head]) -> list[Component]:
    """The heads as the library names them."""
    return [Component(f"blocks.{block}.attention.mixed", head) for block, head in heads]
