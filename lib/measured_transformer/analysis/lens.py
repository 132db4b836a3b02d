r"""Reads predictions from the residual stream before the last block.

Three readers, from the strictest to the most willing. The *logit lens* (nostalgebraist, 2020) puts the stream
through the final norm and the unembedding, as if the remaining blocks were not there. The *tuned lens*
(Belrose et al., 2023, "Eliciting Latent Predictions from Transformers with the Tuned Lens") first lets a
linear map, one for each depth, translate the stream into the language of the last one. A *probe* reads a
property that it is trained for, whether the model wants to say it or not.

Depth l is the stream after l blocks: 0 is the embedding, L what the model itself reads.
Lenses take a model with its tokenizer and texts as well, see `texts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.states import of_positions
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.places import Places
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator

Rows = Int[Tensor, "row"] | slice
Reader = Decoder | Encoder
"""A model whose final norm and unembedding can read any state of its stream."""


@dataclass(frozen=True)
class EarlyReading:
    """The predictions read from the stream at each depth.

    Attributes:
        loss: cross-entropy with the right answers, in nats per scored position.
        accuracy: share of scored positions at which the most likely answer is right.
    """

    loss: Float[ndarray, "depth"]
    accuracy: Float[ndarray, "depth"]


@takes_text(batches=["batch"])
@torch.no_grad()
def depths(model: Reader, batch: Batch) -> Float[Tensor, "depth batch position d_model"]:
    """The residual stream after 0, 1, ... and all blocks."""
    return ledger(model, batch.inputs).blocks


@takes_text(batches=["batch"])
@torch.no_grad()
def logit_lens(model: Reader, batch: Batch) -> EarlyReading:
    """Read the stream at each depth through the final norm and the unembedding.

    The last reading is the model's own.

    Raises:
        ValueError: when the model has no head.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> from measured_transformer.tasks.reversal import Reversal
    >>> batch = Reversal(5, 4).batch(torch.Generator().manual_seed(0), 50)
    >>> logit_lens(reversal_model(vocab=5, length=4), batch).accuracy[-1].item()
    1.0
    """
    return _read(model, depths(model, batch), batch)


@takes_text("tokens")
@torch.no_grad()
def lens_logits(
    model: Reader,
    tokens: Int[Tensor, "batch position"],
    *,
    positions: Places | None = None,
    keep: Callable[[Tensor], Tensor] | None = None,
) -> Shaped[Tensor, "depth *kept"]:
    """The logit lens at each depth, for sequences without known answers.

    The last ones are the model's own. Of BERT's head the layer before the unembedding is part of the reading.

    Args:
        model: with a head; of an encoder-decoder its `interop.sides.TargetSide`.
        tokens: what it reads.
        positions: which are read; all when None.
        keep: what to keep of the logits (batch position vocab) of each depth, such as those of some tokens.
            The logits of one depth alone are then there at once, which a large vocabulary asks for.

    Returns:
        (depth batch position vocab), or (depth ...) of what `keep` gives.

    Raises:
        ValueError: when the model has no head, or a position lies outside.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> lens_logits(reversal_model(vocab=5, length=4), torch.tensor([[3, 1, 4, 2]]))[-1, 0].argmax(-1)
    tensor([2, 4, 1, 3])
    """
    _check_head(model)
    states = of_positions(ledger(model, tokens).blocks, positions)
    read = (model.unembed(each) for each in states)
    return torch.stack([logits if keep is None else keep(logits) for logits in read])


def _check_head(model: Reader) -> None:
    """Raise an error for a model without an unembedding."""
    if not model.config.predicts_tokens:
        raise ValueError(
            "a lens reads the stream as the model itself would, and this model has no head to read with "
            f"(config.head={model.config.head!r}): ask a probe what its states hold (analysis.readers, "
            "analysis.probing), or measure on the final state what changes (analysis.attribution, "
            "analysis.patching)"
        )


# A map for each depth -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TunedLens:
    """A linear map for each depth, applied before the final norm: x to x + x W + b.

    At the last depth W and b are zero: there the lens is the model's own reading.

    Attributes:
        weight: W of each depth, (depth, d_model, d_model).
        bias: b of each depth.
        gap: mean KL divergence from the model's own prediction to what is read, at each depth, on the
            positions that the maps were fitted on, before and after the fit; in nats.
    """

    weight: Float[Tensor, "depth d_model d_model"]
    bias: Float[Tensor, "depth d_model"]
    gap: tuple[Float[ndarray, "depth"], Float[ndarray, "depth"]]

    def translated(
        self, states: Float[Tensor, "depth batch position d_model"]
    ) -> Float[Tensor, "depth batch position d_model"]:
        """The states in the language of the last one."""
        moved = torch.einsum("lbpd,lde->lbpe", states, self.weight)
        return states + moved + self.bias[:, None, None]

    def read(self, model: Reader, batch: Batch) -> EarlyReading:
        """Read the stream of other sequences through these maps, the final norm and the unembedding.

        Raises:
            ValueError: when the model has no head.
        """
        with torch.no_grad():
            return _read(model, self.translated(depths(model, batch)), batch)


def fit_tuned_lens(
    model: Reader,
    batch: Batch,
    *,
    seed: int,
    steps: int = 300,
    size: int = 1024,
    rate: float = 3e-3,
    at_once: int | None = None,
) -> TunedLens:
    """Fit a map for each depth, so that its reading approaches the model's own prediction.

    What is made small is the mean KL divergence of the prediction from what is read, over scored positions,
    by Adam with a rate that falls in a straight line to zero. The maps begin at zero, so the lens begins as the
    logit lens. The right answers are not used.

    Args:
        model: is not changed.
        batch: sequences to fit on; score the lens on others.
        seed: of the positions that each step draws.
        steps: number of steps.
        size: positions a step.
        rate: the first learning rate.
        at_once: how many depths have their logits there at once, those of `size` positions each; all depths and
            all positions when None. Few take less memory, as a large vocabulary asks for; the maps are the same
            up to rounding. See `tuned_lens.train_tuned_lens` for a fit that takes less time, too.

    Raises:
        ValueError: when steps, size, rate or `at_once` are not positive, or the model has no head.
    """
    _check_head(model)
    if steps < 1 or size < 1 or not rate > 0:
        raise ValueError(f"expected positive steps, size and rate, got {steps}, {size} and {rate}")
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once must be a positive number of depths, got {at_once}")
    states = depths(model, batch)[:, batch.scored].detach()  # depth, position, d_model
    last = len(states) - 1
    final = None
    if at_once is None:
        with torch.no_grad():
            final = model.unembed(states[-1:])[0].log_softmax(-1)
    width = states.shape[-1]
    weight = torch.zeros(last, width, width, dtype=states.dtype, requires_grad=True)
    bias = torch.zeros(last, width, dtype=states.dtype, requires_grad=True)
    together = [slice(i, i + (at_once or last)) for i in range(0, last, at_once or last)]

    def predicted(rows: Rows) -> Float[Tensor, "row vocab"]:
        if final is not None:
            return final[rows]
        with torch.no_grad():
            found: Tensor = model.unembed(states[-1:, rows])[0].log_softmax(-1)
        return found

    def gaps(
        rows: Rows, wanted: Tensor, depths: slice, weight: Tensor, bias: Tensor
    ) -> Float[Tensor, "depth"]:
        some = states[:-1, rows][depths]
        log_read = model.unembed(some + some @ weight + bias[:, None]).log_softmax(-1)
        return (wanted.exp() * (wanted - log_read)).sum(-1).mean(-1)

    @torch.no_grad()
    def all_gaps() -> Float[Tensor, "depth"]:
        count = states.shape[1]
        per = count if at_once is None else size
        total = torch.zeros(last, dtype=states.dtype, device=states.device)
        for start in range(0, count, per):
            rows = slice(start, min(start + per, count)) if per < count else slice(None)
            wanted = predicted(rows)
            found = [gaps(rows, wanted, one, weight[one], bias[one]) for one in together]
            share = 1.0 if per >= count else len(wanted) / count
            total = total + share * torch.cat(found)
        return total

    def gradients(rows: Rows) -> tuple[Tensor, Tensor]:
        wanted, found = predicted(rows), []
        for one in together:
            own = [part.detach()[one].requires_grad_() for part in (weight, bias)]
            # Not `backward`: the model's own weights shall get no gradients.
            found.append(torch.autograd.grad(gaps(rows, wanted, one, *own).sum(), own))
        of_weight, of_bias = (torch.cat(each) for each in zip(*found, strict=True))
        return of_weight, of_bias

    before = all_gaps()
    updates = torch.optim.Adam([weight, bias], lr=rate)
    falling = torch.optim.lr_scheduler.LinearLR(updates, 1.0, 0.0, total_iters=steps)
    draws = make_generator(seed, "tuned lens")
    for _ in range(steps):
        rows = torch.randint(states.shape[1], (size,), generator=draws)
        updates.zero_grad()
        weight.grad, bias.grad = gradients(rows)
        updates.step()
        falling.step()
    after = all_gaps()
    return TunedLens(
        F.pad(weight.detach(), (0, 0, 0, 0, 0, 1)),
        F.pad(bias.detach(), (0, 0, 0, 1)),
        (_numpy(F.pad(before, (0, 1))), _numpy(F.pad(after, (0, 1)))),
    )


def _read(model: Reader, states: Tensor, batch: Batch) -> EarlyReading:
    _check_head(model)
    losses, accuracies = [], []
    for each in states:  # the logits of one depth at a time
        read = model.unembed(each)
        losses.append(float(cross_entropy(read, batch.targets, batch.scored)))
        right = (read.argmax(-1) == batch.targets)[batch.scored]
        accuracies.append(float(right.double().mean()))
    return EarlyReading(np.array(losses), np.array(accuracies))


def largest_rise(losses: Float[ndarray, "*seed depth"]) -> Float[ndarray, "*seed"]:
    """The largest rise of a loss from one depth to the next; negative when it always falls.

    >>> largest_rise(np.array([2.0, 1.5, 1.75, 0.5])).item()
    0.25
    >>> largest_rise(np.array([2.0, 1.5, 1.25])).item()
    -0.25
    """
    return np.asarray(np.diff(losses, axis=-1).max(-1))


def rise_chosen_apart(
    chosen_on: Float[ndarray, "*seed depth"], measured_on: Float[ndarray, "*seed depth"]
) -> Float[ndarray, "*seed"]:
    """The rise on one set of sequences at the step where it is largest on another set.

    The largest of several noisy numbers is too large on average; this one is not.

    >>> rise_chosen_apart(np.array([2.0, 1.0, 1.5]), np.array([2.0, 1.0, 1.25])).item()
    0.25
    """
    place = np.diff(chosen_on, axis=-1).argmax(-1)
    steps = np.diff(measured_on, axis=-1)
    return np.asarray(np.take_along_axis(steps, np.expand_dims(place, -1), -1)[..., 0])


# Probes ---------------------------------------------------------------------------------------------


def probe_accuracies(
    states: Float[Tensor, "state batch position d_model"],
    labels: Int[Tensor, "batch position"],
    fitted: Bool[Tensor, "batch"],
    *,
    n_labels: int,
    penalty: float = 1e-4,
    steps: int = 40,
) -> Float[ndarray, "state"]:
    """The accuracy of a linear probe for a label at each state of the stream, on held-out sequences.

    The probe is a multinomial logistic regression on standardised entries, fitted by L-BFGS. It is the stricter
    test of what is *lost*: least squares onto one-hot labels, as in `probing`, may fail to read the middle one
    of several labels that lie on a line although they are told apart by a linear map.

    Args:
        states: such as those of a `residual.Ledger`.
        labels: what is to be read, at each position, from 0 to `n_labels` - 1.
        fitted: True for the sequences that probes are fitted on.
        n_labels: number of labels.
        penalty: how much the sum of squared weights costs.
        steps: most iterations of L-BFGS.

    Raises:
        ValueError: when a label lies outside, or no sequence is left to fit on or to score.
    """
    low, high = int(labels.min()), int(labels.max())
    if not 0 <= low <= high < n_labels:
        raise ValueError(f"expected labels from 0 to {n_labels - 1}, got {low} to {high}")
    if not bool(fitted.any()) or bool(fitted.all()):
        raise ValueError("probes need sequences to be fitted on and others to be scored on")
    found = []
    for each in states.detach():
        x, held = each[fitted].flatten(0, 1), each[~fitted].flatten(0, 1)
        y, right = labels[fitted].flatten(), labels[~fitted].flatten()
        centre, scale = x.mean(0), x.std(0, correction=0).clamp_min(1e-6)
        x, held = (x - centre) / scale, (held - centre) / scale
        weight = _logistic(x, y, n_labels, penalty, steps)
        scores = held @ weight[:-1] + weight[-1]
        found.append(float((scores.argmax(-1) == right).double().mean()))
    return np.array(found)


def _logistic(
    x: Float[Tensor, "example d_model"],
    y: Int[Tensor, "example"],
    n_labels: int,
    penalty: float,
    steps: int,
) -> Float[Tensor, "entry label"]:
    """Weights of a multinomial logistic regression; the last row is the bias."""
    weight = torch.zeros(x.shape[1] + 1, n_labels, dtype=x.dtype, requires_grad=True)
    fit = torch.optim.LBFGS(
        [weight], max_iter=steps, history_size=10, line_search_fn="strong_wolfe"
    )

    def cost() -> Tensor:
        fit.zero_grad()
        value = F.cross_entropy(x @ weight[:-1] + weight[-1], y)
        value = value + penalty * weight[:-1].square().sum()
        weight.grad = torch.autograd.grad(value, weight)[0]
        return value

    fit.step(cost)
    return weight.detach()


def _numpy(x: Tensor) -> ndarray:
    return x.detach().double().cpu().numpy()
