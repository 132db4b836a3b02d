"""Examines one sequence: patterns, what heads write, predictions at each depth, and the effect of each head.

It is what a workbench shows (`measured_transformer.viewer.workbench`), as arrays.

>>> from measured_transformer import Config, Decoder
>>> model = Decoder(Config(vocab=10, d_model=16, n_layers=2, n_heads=4)).eval()
>>> found = examine(model, torch.tensor([3, 1, 4, 1, 5]))
>>> found.pattern.shape, found.lens_chances.shape, found.without["zero"].loss.shape
((2, 4, 5, 5), (3, 5, 5), (2, 4, 5))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.analysis.sums import held_norm, require_sum
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.block import Block

Reader = Decoder | Encoder
"""A model of one stream."""
Instead = Literal["mean", "zero"]
"""What stands in for a head that is switched off: its mean mixture of values, or zeros."""
NAMED = 3
"""How many of the tokens that a head raises most, and lowers most, are named."""


@dataclass(frozen=True)
class Without:
    """The effect of switching off one head, for each head and position.

    Attributes:
        loss: nats by which the target costs more without the head; NaN where there is no target.
        divergence: KL divergence from the prediction to that without the head, in nats; None without logits.
        token: the most likely token without the head; None without logits.
        chance: its probability; None without logits.
        target_chance: probability of the target; NaN where there is none.
        shift: how far the final state moves, in lengths of the state itself.
    """

    loss: Float[ndarray, "layer head position"]
    divergence: Float[ndarray, "layer head position"] | None
    token: Int[ndarray, "layer head position"] | None
    chance: Float[ndarray, "layer head position"] | None
    target_chance: Float[ndarray, "layer head position"]
    shift: Float[ndarray, "layer head position"]

    @property
    def effect(self) -> Float[ndarray, "layer head"]:
        """One number a head: mean change of the loss; of the divergence, or the shift, where there is none."""
        if not np.isnan(self.loss).all():
            return np.asarray(np.nanmean(self.loss, -1))
        return (self.shift if self.divergence is None else self.divergence).mean(-1)


@dataclass(frozen=True)
class Examination:
    """One sequence inside one model. Depth l is the stream after l blocks.

    Attributes:
        tokens: the sequence.
        targets: the right answer at each position; -1 where there is none.
        pattern: attention weights.
        size: length of what each head writes at each position.
        stream: length of the stream at each depth.
        writes: length of what attention and the feed-forward network of each block write.
        lens_tokens: most likely tokens at each depth, by the logit lens; None without logits.
        lens_chances: their probabilities.
        lens_target: probability of the target at each depth; NaN where there is none.
        direct_tokens: tokens whose logits a head raises most, then those that it lowers most, in order. None
            where logits are no sum of what heads write: with post-norm, BERT's head, or without logits, and
            where something that no tap shows changes what a branch writes.
        direct_logits: by how much, compared with the mean of all tokens, the final norm's scale held.
        direct_target: the same of the target; NaN where there is none.
        without: what is different with one head switched off, by what stands in for it.
    """

    tokens: Int[ndarray, "position"]
    targets: Int[ndarray, "position"]
    pattern: Float[ndarray, "layer head query key"]
    size: Float[ndarray, "layer head position"]
    stream: Float[ndarray, "depth position"]
    writes: Float[ndarray, "layer two position"]
    lens_tokens: Int[ndarray, "depth position top"] | None
    lens_chances: Float[ndarray, "depth position top"] | None
    lens_target: Float[ndarray, "depth position"] | None
    direct_tokens: Int[ndarray, "layer head position named"] | None
    direct_logits: Float[ndarray, "layer head position named"] | None
    direct_target: Float[ndarray, "layer head position"] | None
    without: Mapping[str, Without]


@torch.no_grad()
def mean_mixtures(
    model: Reader, sequences: Sequence[Int[Tensor, "..."]]
) -> Float[Tensor, "layer head d_head"]:
    """The mean mixture of each head over all positions of these sequences.

    Raises:
        ValueError: when there are none.
    """
    if not sequences:
        raise ValueError("expected at least one sequence to take the mean over, got none")
    total, count = torch.zeros(()), 0
    for tokens in sequences:
        with capture(model, "blocks.*.attention.mixed") as seen:
            model(tokens[None])
        total = total + torch.stack([each[0].sum(1) for each in seen.values()])
        count += len(tokens)
    return total / count


@torch.no_grad()
def examine(
    model: Reader,
    tokens: Int[Tensor, "position"],
    *,
    targets: Int[Tensor, "..."] | None = None,
    means: Float[Tensor, "layer head d_head"] | None = None,
    top: int = 5,
) -> Examination:
    """Examine one sequence.

    Args:
        model: is not changed, and looked at in evaluation mode.
        tokens: the sequence.
        targets: right answers, -1 where there is none. When not given, of a `Decoder` the next tokens, and of
            an `Encoder` none.
        means: what stands in for each head that is switched off, from `mean_mixtures`; over this sequence when
            not given.
        top: how many tokens a lens names.

    Raises:
        ValueError: when tokens, targets or `top` do not fit the model.
    """
    n, config = len(tokens), model.config
    if targets is None:
        targets = torch.full_like(tokens, -1)
        if model.causal:
            targets[:-1] = tokens[1:]
    if targets.shape != tokens.shape or int(targets.max()) >= config.vocab:
        raise ValueError(
            f"expected a target below {config.vocab} for each of {n} tokens, or -1 where there is none, got "
            f"{targets.tolist()!s:.80}"
        )
    if not 1 <= top <= config.vocab:
        raise ValueError(f"expected top from 1 to the {config.vocab} tokens, got {top}")
    training = model.training
    model.eval()
    try:
        if means is None:
            means = mean_mixtures(model, [tokens])
        return _examined(model, tokens, targets, means, top)
    finally:
        model.train(training)


def _examined(
    model: Reader, tokens: Tensor, targets: Tensor, means: Tensor, top: int
) -> Examination:
    speaks = model.unembedding is not None
    names = ["embedding", "*.attention.pattern", "*.attention.head_outputs", "*.residual_post"]
    names += ["*.attention.out", "*.feedforward.out", "final_state"]
    if linear := _logits_are_a_sum(model):
        names += ["final_norm.scale"] if hasattr(model.final_norm, "scale") else []
    with capture(model, *names) as seen:
        logits = model(tokens[None])[0]
    blocks = [f"blocks.{i}" for i in range(len(model.blocks))]
    states = torch.stack([seen["embedding"][0], *(seen[f"{b}.residual_post"][0] for b in blocks)])
    heads = torch.stack([seen[f"{b}.attention.head_outputs"][0] for b in blocks])
    writes = [
        torch.stack(
            [seen[f"{b}.{part}.out"][0].norm(dim=-1) for part in ("attention", "feedforward")]
        )
        for b in blocks
    ]
    lens_tokens = lens_chances = lens_target = None
    if speaks:
        chances = (
            torch.stack([model.unembed(state[None])[0] for state in states]).double().softmax(-1)
        )
        most = chances.topk(top)
        lens_tokens, lens_chances = most.indices.cpu().numpy(), _numpy(most.values)
        lens_target = _of_targets(chances, targets)
    direct_tokens = direct_logits = direct_target = None
    if linear and _adds_up(model, heads, seen, logits):
        direct_tokens, direct_logits, direct_target = _direct(model, heads, seen, targets)
    values: dict[str, Tensor | float] = {"mean": means, "zero": 0.0}
    whole = (logits.double(), seen["final_state"][0].double(), targets)
    return Examination(
        tokens.cpu().numpy(),
        targets.cpu().numpy(),
        _numpy(torch.stack([seen[f"{b}.attention.pattern"][0] for b in blocks])),
        _numpy(heads.norm(dim=-1)),
        _numpy(states.norm(dim=-1)),
        _numpy(torch.stack(writes)),
        lens_tokens,
        lens_chances,
        lens_target,
        direct_tokens,
        direct_logits,
        direct_target,
        {how: _without(model, tokens, values[how], *whole) for how in get_args(Instead)},
    )


# What heads write, in logits ------------------------------------------------------------------------


def _logits_are_a_sum(model: Reader) -> bool:
    config = model.config
    linear = config.head == "linear" and config.logit_cap is None
    return config.placement == "pre" and config.residual and linear


def _scale(seen: Mapping[str, Tensor]) -> Tensor | None:
    return seen["final_norm.scale"][0] if "final_norm.scale" in seen else None


def _adds_up(model: Reader, heads: Tensor, seen: Mapping[str, Tensor], logits: Tensor) -> bool:
    """Return whether embedding, heads, biases and networks are all that the logits are made of."""
    blocks = list(enumerate(cast("list[Block]", list(model.blocks))))
    biases = [block.attention.output.bias for _, block in blocks]
    networks = [seen[f"blocks.{i}.feedforward.out"][0] for i, _ in blocks]
    written = heads.sum((0, 1)) + sum(networks) + sum(one for one in biases if one is not None)
    state = seen["embedding"][0] + model.config.residual_scale * written
    unembedding = cast(nn.Linear, model.unembedding)
    try:
        through, constant = held_norm(model.final_norm, _scale(seen))
        state = through(state) if constant is None else through(state) + constant
        # The scale of a norm is single precision where weights are half: so is then the state.
        weight, bias = (
            None if one is None else one.to(state.dtype)
            for one in (unembedding.weight, unembedding.bias)
        )
        assert weight is not None
        read = [F.linear(model.config.logit_scale * state, weight, bias)]
        require_sum(read, logits, what="the logits", model=model)
    except ValueError:
        return False
    return True


def _direct(
    model: Reader, heads: Tensor, seen: Mapping[str, Tensor], targets: Tensor
) -> tuple[ndarray, ndarray, ndarray]:
    """The direct contribution of each head to the logits: the tokens it moves most, and the target."""
    named = min(NAMED, model.config.vocab)
    through, _ = held_norm(model.final_norm, _scale(seen))
    unembedding = cast(nn.Linear, model.unembedding).weight * model.config.logit_scale
    tokens, logits, of_target = [], [], []
    for write in heads:  # a layer at a time: with a large vocabulary all of them would not fit
        write = through(model.config.residual_scale * write)
        each = (write @ unembedding.T.to(write.dtype)).double()
        each = each - each.mean(-1, keepdim=True)
        up, down = each.topk(named), each.topk(named, largest=False)
        tokens.append(torch.cat((up.indices, down.indices), -1))
        logits.append(torch.cat((up.values, down.values), -1))
        of_target.append(_of_targets(each, targets))
    return torch.stack(tokens).cpu().numpy(), _numpy(torch.stack(logits)), np.stack(of_target)


# Without a head -------------------------------------------------------------------------------------


def _without(
    model: Reader,
    tokens: Tensor,
    value: Tensor | float,
    logits: Tensor,
    state: Tensor,
    targets: Tensor,
) -> Without:
    """Ablate all heads of a layer in one pass: row h is the sequence without head h."""
    speaks, n_heads = model.unembedding is not None, model.config.n_heads
    rows = torch.arange(n_heads)
    before = logits.log_softmax(-1)
    found: dict[str, list[ndarray]] = {name: [] for name in Without.__annotations__}
    for layer in range(len(model.blocks)):
        instead = value if isinstance(value, float) else value[layer][:, None]

        def off(mixed: Tensor, instead: Tensor | float = instead) -> Tensor:
            mixed[rows, rows] = torch.as_tensor(instead).to(mixed)
            return mixed

        change: dict[str, Change] = {f"blocks.{layer}.attention.mixed": off}
        with intervene(model, change), capture(model, "final_state") as seen:
            changed = model(tokens.expand(n_heads, -1)).double()
        moved = (seen["final_state"].double() - state).norm(dim=-1) / state.norm(dim=-1)
        found["shift"].append(_numpy(moved))
        if not speaks:
            nothing = np.full(moved.shape, np.nan)
            found["loss"].append(nothing)
            found["target_chance"].append(nothing)
            continue
        after = changed.log_softmax(-1)
        most = after.max(-1)
        found["loss"].append(_of_targets(before.expand_as(after) - after, targets))
        found["divergence"].append(_numpy((before.exp() * (before - after)).sum(-1)))
        found["token"].append(most.indices.cpu().numpy())
        found["chance"].append(_numpy(most.values.exp()))
        found["target_chance"].append(_of_targets(after.exp(), targets))
    stacked = {name: np.stack(each) if each else None for name, each in found.items()}
    return Without(**stacked)  # type: ignore[arg-type]


def _of_targets(values: Float[Tensor, "*batch position vocab"], targets: Tensor) -> ndarray:
    """The entry of each position's target, NaN where there is none."""
    places = targets.clamp_min(0).expand(values.shape[:-1])[..., None]
    return _numpy(values.gather(-1, places)[..., 0].masked_fill(targets < 0, torch.nan))


def _numpy(values: Tensor) -> ndarray:
    return values.detach().double().cpu().numpy()
