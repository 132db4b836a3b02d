"""Our instruments that intervene, beside the same done with the hooks of TransformerLens by hand.

TransformerLens has no function for most of these; its users write them with hooks, and so do we here. It has no
tuned lens, transcoders or attribution graphs, and neither has Captum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from measured_transformer.analysis.ablation import Component, feedforwards, heads
from measured_transformer.analysis.attribution_patching import attribution_patched
from measured_transformer.analysis.edges import Edge
from measured_transformer.analysis.faithfulness import ablations
from measured_transformer.analysis.interchange import Aligned, interchanged
from measured_transformer.analysis.path_patching import edge_patched
from measured_transformer.analysis.steering import mean_difference, steer
from torch import Tensor

from comparisons.hooked import hooked, is_silent
from comparisons.row import Row, apart
from comparisons.subjects import Subject

DOSE, SEED = 2.0, 1
HOWS = ("zero", "mean", "resample")
RECEIVERS = {"queries": "q", "keys": "k", "values": "v"}

MakeRow = Callable[..., Row]


def rows(subject: Subject) -> Iterator[Row]:
    """Every instrument on one model."""
    theirs = hooked(subject.model, length=subject.tokens.shape[1])
    theirs.set_use_split_qkv_input(True)

    def row(quantity: str, ours: str, there: str, difference: float) -> Row:
        name = "TransformerLens"
        return Row(name, subject.name, quantity, ours, there, same=True, difference=difference)

    yield _estimated(subject, theirs, row)
    with torch.no_grad():
        yield from _steered(subject, theirs, row)
        yield _paths(subject, theirs, row)
        yield from _exchanged(subject, theirs, row)
        yield from _circuits(subject, theirs, row)


def _steered(subject: Subject, theirs: Any, row: MakeRow) -> Iterator[Row]:
    """A direction, and the logits of a run to which it is added."""
    model, tokens, name = subject.model, subject.tokens, "blocks.0.hook_resid_post"
    vector = mean_difference(model, subject.other, tokens, Component("blocks.0.residual_post"))
    means = [
        theirs.run_with_cache(each)[1][name][:, -1].mean(0) for each in (subject.other, tokens)
    ]
    added = means[0] - means[1]
    yield row(
        "a steering vector", "mean_difference", "caches, subtracted", apart(vector.vector, added)
    )
    expected = theirs.run_with_hooks(
        tokens, fwd_hooks=[(name, lambda value, hook: value + DOSE * added)]
    )
    with steer(model, vector, DOSE):
        found = model(tokens)
    yield row("logits under steering", "steer", "a hook that adds", apart(found, expected))


def _estimated(subject: Subject, theirs: Any, row: MakeRow) -> Row:
    """Patching to first order: differences of values times gradients, for each head and network."""
    model, tokens, other = subject.model, subject.tokens, subject.other
    slopes: dict[str, Tensor] = {}
    values: dict[str, Tensor] = {}

    def keep(into: dict[str, Tensor]) -> Callable[..., None]:
        def hook(value: Tensor, hook: Any) -> None:
            into[hook.name] = value.detach()

        return hook

    networks = [] if is_silent(model) else feedforwards(model)
    parts = [*heads(model), *networks]
    names = sorted({_hook_of(part)[0] for part in parts})
    forward = [(name, keep(values)) for name in names]
    with theirs.hooks(fwd_hooks=forward, bwd_hooks=[(name, keep(slopes)) for name in names]):
        subject.target(theirs(tokens)).sum().backward()
    own = dict(values)
    theirs.zero_grad()
    with theirs.hooks(fwd_hooks=forward), torch.no_grad():
        theirs(other)
    expected = []
    for part in parts:
        name, head = _hook_of(part)
        change = (values[name] - own[name]) * slopes[name]
        expected.append((change if head is None else change[:, :, head]).sum(-1))
    found = attribution_patched(model, tokens, other, parts, subject.target)
    return row(
        "attribution patching of heads and networks",
        "attribution_patched",
        "caches of values and gradients",
        apart(torch.stack([found[part] for part in parts]), torch.stack(expected)),
    )


def _hook_of(part: Component) -> tuple[str, int | None]:
    """Their name of a head's or a network's output, and the head."""
    own = ".".join(part.tap.split(".")[:2])
    return f"{own}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}", part.head


def _paths(subject: Subject, theirs: Any, row: MakeRow) -> Row:
    """What a head of the first block writes, changed on its way to one input of a head in the last."""
    model, tokens, other = subject.model, subject.tokens, subject.other
    _, own = theirs.run_with_cache(tokens)
    _, new = theirs.run_with_cache(other)
    last = model.config.n_layers - 1
    name = "blocks.0.attn.hook_result"
    change = new[name][:, :, 1] - own[name][:, :, 1]
    sender = Component("blocks.0.attention.mixed", 1)
    worst = 0.0
    for kind, letter in RECEIVERS.items():
        receiver = Component(f"blocks.{last}.attention.{kind}", 0)
        found = edge_patched(model, tokens, other, [Edge(sender, receiver)], subject.target)

        def add(value: Tensor, hook: Any) -> Tensor:
            value = value.clone()
            value[:, :, 0] += change
            return value

        hooks = [(f"blocks.{last}.hook_{letter}_input", add)]
        expected = subject.target(theirs.run_with_hooks(tokens, fwd_hooks=hooks))
        worst = max(worst, apart(found, expected))
    return row(
        "path patching, from a head to queries, keys or values of another",
        "edge_patched",
        "a hook on one input of a head",
        worst,
    )


def _exchanged(subject: Subject, theirs: Any, row: MakeRow) -> Iterator[Row]:
    """An interchange intervention: some directions of the stream at one position, from another run."""
    model, tokens, other, name = (
        subject.model,
        subject.tokens,
        subject.other,
        "blocks.0.hook_resid_post",
    )
    width = model.config.d_model
    draws = torch.randn(width, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    subspace = torch.linalg.qr(draws).Q
    _, source = theirs.run_with_cache(other)
    for what, directions in (
        ("", torch.eye(width, dtype=torch.float64)),
        (" in a subspace", subspace),
    ):
        projection = directions @ directions.T

        def exchange(value: Tensor, hook: Any, projection: Tensor = projection) -> Tensor:
            value = value.clone()
            value[:, 2] += (source[name][:, 2] - value[:, 2]) @ projection
            return value

        expected = theirs.run_with_hooks(tokens, fwd_hooks=[(name, exchange)])
        part = Component("blocks.0.residual_post")
        variable = Aligned([part], positions=2, subspace=directions if what else None)
        yield row(
            f"interchange intervention{what}",
            "interchanged",
            "a hook that exchanges",
            apart(interchanged(model, tokens, [(variable, other)]), expected),
        )


def _circuits(subject: Subject, theirs: Any, row: MakeRow) -> Iterator[Row]:
    """The target of a circuit alone, and of the model without it, with all else ablated in three ways."""
    model, tokens, other = subject.model, subject.tokens, subject.other
    everything = [*heads(model), *([] if is_silent(model) else feedforwards(model))]
    circuit = [everything[0], everything[-1]]
    chosen = torch.randint(
        len(other), (len(tokens),), generator=torch.Generator().manual_seed(SEED)
    )
    _, cache = theirs.run_with_cache(other)
    instead: Mapping[str, Callable[[Tensor], Tensor]] = {
        "zero": torch.zeros_like,
        "mean": lambda value: value.mean(0, keepdim=True).expand_as(value),
        "resample": lambda value: value[chosen],
    }
    alone, without = "faithfulness: a circuit alone", "completeness: the model without a circuit"
    worst = dict.fromkeys((alone, without), 0.0)
    rest = [part for part in everything if part not in circuit]
    for how in HOWS:
        given = ablations(
            model,
            tokens,
            subject.target,
            how,
            parts=everything,
            reference=other,
            generator=torch.Generator().manual_seed(SEED),
        )
        for what, gone, found in (
            (alone, rest, given.only(circuit)),
            (without, circuit, given.without(circuit)),
        ):
            hooks = _ablating(gone, cache, instead[how])
            expected = subject.target(theirs.run_with_hooks(tokens, fwd_hooks=hooks))
            worst[what] = max(worst[what], apart(found, expected))
    for what, difference in worst.items():
        yield row(what, "ablations: zero, mean, resample", "hooks on all that goes", difference)


def _ablating(
    gone: list[Component], cache: Any, instead: Callable[[Tensor], Tensor]
) -> list[tuple[str, Callable[..., Tensor]]]:
    """Hooks that replace what these heads and networks give by what is made of a cache."""

    def replacing(head: int | None) -> Callable[..., Tensor]:
        def hook(value: Tensor, hook: Any) -> Tensor:
            new = instead(cache[hook.name])
            if head is None:
                return new
            value = value.clone()
            value[:, :, head] = new[:, :, head]
            return value

        return hook

    return [(name, replacing(head)) for name, head in map(_hook_of, gone)]
