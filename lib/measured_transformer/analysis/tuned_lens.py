r"""A tuned lens for sequences without known answers, trained in minutes.

The maps are those of `lens.TunedLens`: one affine map for each depth, fitted so that what the final norm and
the unembedding read of the translated state is what the model itself will say. `lens.fit_tuned_lens` begins
each map as the logit lens; here it begins with the map that least squares gives in closed form wherever that
reads better, and the depths are trained one after another on a sample of positions, so that a model with a
large vocabulary needs memory for the logits of one depth alone.

A lens is fitted to the model, not to the truth: of an untrained model it reads what that model says, which is
nothing about the text. So the control for what a lens finds is a lens on the same model with untrained weights.

Source: Belrose et al. (2023), "Eliciting Latent Predictions from Transformers with the Tuned Lens".
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from measured_transformer.analysis.lens import Reader, TunedLens
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.states import of_positions
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.places import Places
from measured_transformer.training.seeding import make_generator


@takes_text("tokens")
def train_tuned_lens(
    model: Reader,
    tokens: Int[Tensor, "batch position"],
    *,
    seed: int,
    places: int = 4096,
    held: float = 0.2,
    steps: int = 100,
    size: int = 256,
    rate: float = 1e-3,
) -> TunedLens:
    """Fit a map for each depth to what the model itself will say, by the KL divergence from it.

    Adam, with a rate that falls in a straight line to zero. Of the logit lens, least squares and the trained
    map the one is taken that reads best on half of the held-out positions; the other half measures it.

    Args:
        model: with a head, in evaluation mode; is not changed.
        tokens: sequences without padding; some 64 of them, of different text, do for a small model.
        seed: of the positions that are drawn.
        places: how many positions are kept, of all sequences together.
        held: the share of them that no map is fitted on. One half of it chooses, and on the other half the
            `gap` of the lens is measured, before (the logit lens) and after.
        steps: of each depth; with 0 the maps are those of least squares.
        size: positions a step.
        rate: the first learning rate.

    Raises:
        ValueError: when the model has no head, places, size or rate are not positive, steps are negative, or
            held does not leave positions on both sides.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> tokens = torch.tensor([[3, 1, 4, 2], [0, 0, 1, 2], [4, 3, 3, 1]])
    >>> lens = train_tuned_lens(reversal_model(vocab=5, length=4), tokens, seed=0, steps=5)
    >>> lens.weight.shape, lens.gap[1][-1].item()
    (torch.Size([2, 14, 14]), 0.0)
    """
    if model.config.head == "none":
        raise ValueError(
            "a lens reads what the model would say, and this model has no head to say it with"
        )
    if places < 1 or size < 1 or not rate > 0 or steps < 0:
        raise ValueError(
            "expected positive places, size and rate and no negative steps, got "
            f"{places}, {size}, {rate} and {steps}"
        )
    draws = make_generator(seed, "tuned lens on tokens")
    states = _sample(model, tokens, places, draws)
    half = round(held * states.shape[1] / 2)
    if not 0 < 2 * half < states.shape[1]:
        raise ValueError(
            f"held={held} of {states.shape[1]} positions leaves none to fit on, to choose by or to measure on"
        )
    judging, choosing, fitted = states[:, :half], states[:, half : 2 * half], states[:, 2 * half :]
    width = states.shape[-1]
    nothing = (states.new_zeros(width, width), states.new_zeros(width))
    maps, before, after = [], [], []
    for depth in range(len(states) - 1):
        found = _Fit(model, fitted[depth], fitted[-1], choosing[depth], choosing[-1])
        maps.append(found.train(steps, size, rate, draws))
        before.append(_gap(model, judging[depth], judging[-1], nothing))
        after.append(_gap(model, judging[depth], judging[-1], maps[-1]))
    weights, biases = zip(*maps, nothing, strict=True)
    gaps = [torch.tensor([*gap, 0.0], dtype=torch.float64).numpy() for gap in (before, after)]
    return TunedLens(torch.stack(weights), torch.stack(biases), (gaps[0], gaps[1]))


@takes_text("tokens")
@torch.no_grad()
def tuned_logits(
    model: Reader,
    lens: TunedLens,
    tokens: Int[Tensor, "batch position"],
    *,
    positions: Places | None = None,
    keep: Callable[[Tensor], Tensor] | None = None,
) -> Shaped[Tensor, "depth *kept"]:
    """What the lens reads at each depth; at the last one the model's own logits.

    Args:
        model: the one that the lens was fitted to.
        lens: from `train_tuned_lens` or `lens.fit_tuned_lens`.
        tokens: any sequences.
        positions, keep: as for `lens.lens_logits`.

    Returns:
        (depth batch position vocab), or (depth ...) of what `keep` gives.

    Raises:
        ValueError: when the lens is for another number of layers or another width, or a position lies outside.
    """
    shape = (len(model.blocks) + 1, model.config.d_model)
    if tuple(lens.bias.shape) != shape:
        raise ValueError(
            f"this lens is for {lens.bias.shape[0] - 1} layers of width {lens.bias.shape[1]}, and the model "
            f"has {shape[0] - 1} of width {shape[1]}"
        )
    translated = lens.translated(of_positions(ledger(model, tokens).blocks, positions))
    read = (model.unembed(each) for each in translated)
    return torch.stack([logits if keep is None else keep(logits) for logits in read])


def _sample(
    model: Reader, tokens: Tensor, places: int, draws: torch.Generator
) -> Float[Tensor, "depth place d_model"]:
    """States of positions drawn from all sequences; few sequences at a time are held whole."""
    n = tokens.numel()
    order = torch.randperm(n, generator=draws)[:places]
    found, per = [], 8
    for start in range(0, len(tokens), per):
        states = ledger(model, tokens[start : start + per]).blocks.flatten(1, 2)
        first = start * tokens.shape[1]
        here = (order >= first) & (order < first + states.shape[1])
        found.append(states[:, (order[here] - first).to(states.device)])
    together = torch.cat(found, 1)
    mixed = torch.randperm(together.shape[1], generator=draws).to(together.device)
    return together[:, mixed]


_Map = tuple[Tensor, Tensor]
"""Weight and bias of one depth."""


def _kl(model: Reader, x: Tensor, final: Tensor, translate: _Map) -> Float[Tensor, "place"]:
    """The divergence of what the model says in its final states from what is read of translated ones."""
    weight, bias = translate
    with torch.no_grad():
        wanted = model.unembed(final[None])[0].log_softmax(-1)
    read = model.unembed((x + x @ weight + bias)[None])[0].log_softmax(-1)
    return (wanted.exp() * (wanted - read)).sum(-1)


@torch.no_grad()
def _gap(model: Reader, x: Tensor, final: Tensor, translate: _Map) -> float:
    """The mean divergence, computed for some places at a time."""
    parts = zip(x.split(256), final.split(256), strict=True)
    return sum(float(_kl(model, *part, translate).sum()) for part in parts) / len(x)


class _Fit:
    """The map of one depth: least squares first, then steps on the KL divergence."""

    def __init__(
        self, model: Reader, states: Tensor, final: Tensor, held: Tensor, held_final: Tensor
    ) -> None:
        self.model, self.states, self.final = model, states, final
        self.held, self.held_final = held, held_final
        width = states.shape[-1]
        self.map: _Map = (states.new_zeros(width, width), states.new_zeros(width))
        self.best = _gap(model, held, held_final, self.map)
        self.keep(least_squares(states, final - states))

    def keep(self, candidate: _Map) -> None:
        """Take a map where it reads better than the one so far."""
        gap = _gap(self.model, self.held, self.held_final, candidate)
        if gap < self.best:
            self.map, self.best = candidate, gap

    @torch.enable_grad()
    def train(self, steps: int, size: int, rate: float, draws: torch.Generator) -> _Map:
        """The better of the first map and the one after these steps."""
        if not steps:
            return self.map
        weight, bias = (part.clone().requires_grad_() for part in self.map)
        updates = torch.optim.Adam([weight, bias], lr=rate)
        falling = torch.optim.lr_scheduler.LinearLR(updates, 1.0, 0.0, total_iters=steps)
        for _ in range(steps):
            rows = torch.randint(len(self.states), (size,), generator=draws).to(weight.device)
            loss = _kl(self.model, self.states[rows], self.final[rows], (weight, bias)).mean()
            # Not `backward`: the model's own weights shall get no gradients.
            weight.grad, bias.grad = torch.autograd.grad(loss, [weight, bias])
            updates.step()
            falling.step()
        self.keep((weight.detach(), bias.detach()))
        return self.map


@torch.no_grad()
def least_squares(
    x: Float[Tensor, "place d_model"], y: Float[Tensor, "place d_model"], *, ridge: float = 1e-3
) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model"]]:
    """The affine map from x to y with the least squared error, in double precision.

    Args:
        x, y: rows that belong together.
        ridge: what squared weights cost, as a share of the mean variance of x.
    """
    a, b = x.double(), y.double()
    a_mean, b_mean = a.mean(0), b.mean(0)
    a, b = a - a_mean, b - b_mean
    moments = a.T @ a
    cost = ridge * moments.diagonal().mean().clamp(min=1e-12)
    eye = torch.eye(len(moments), dtype=a.dtype, device=a.device)
    weight = torch.linalg.solve(moments + cost * eye, a.T @ b)
    return weight.to(x.dtype), (b_mean - a_mean @ weight).to(x.dtype)
