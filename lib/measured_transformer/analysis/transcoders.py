r"""Transcoders: a feed-forward network rewritten as a sum of few features out of many.

A sparse autoencoder takes a state apart; a transcoder takes a *network* apart. It reads what the network reads
and is fitted to write what the network writes, $y \approx b + \sum_f a_f d_f$ with
$a_f = \operatorname{relu}(e_f \cdot x + c_f)$, so each feature has a direction that it reads and one that it
writes. What it gets wrong is the *error*: with it the rewritten model is the model itself (`replaced`).

Source: Dunefsky, Chlenski and Nanda (2024), "Transcoders Find Interpretable LLM Feature Circuits".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.autoencoders import cosine_after_warmup
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.capture import capture, watching
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.modules import Site
from measured_transformer.models.stack import Stack
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.training.seeding import make_generator


@dataclass(frozen=True)
class Transcoder:
    """A feed-forward network as a sum of features.

    Attributes:
        encoder, encoder_bias: what each feature reads, a row each, and what it adds to it.
        decoder, decoder_bias: what each feature writes, a row each, and what is written without any.
        k: how many features may speak at a position; None for as many as are positive.
    """

    encoder: Float[Tensor, "latent d_model"]
    encoder_bias: Float[Tensor, "latent"]
    decoder: Float[Tensor, "latent d_model"]
    decoder_bias: Float[Tensor, "d_model"]
    k: int | None = None

    def pre_activations(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch latent"]:
        """What each feature reads from the network's input, before the ReLU."""
        return x @ self.encoder.T + self.encoder_bias

    def encode(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch latent"]:
        """The activation of each feature."""
        z = self.pre_activations(x).relu()
        if self.k is None:
            return z
        top = z.topk(self.k, dim=-1)
        return torch.zeros_like(z).scatter(-1, top.indices, top.values)

    def decode(self, z: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch d_model"]:
        """What features with these activations write."""
        return z @ self.decoder + self.decoder_bias

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """What stands for the network's output."""
        return self.decode(self.encode(x))


def neurons_as_features(network: FeedForward) -> Transcoder:
    """The transcoder that a network of ReLU neurons is: a feature for each neuron, and no error.

    The baseline for any fitted transcoder: features have to be fewer or clearer than these.

    Raises:
        ValueError: when the activation is another one, or it is another kind of network.

    >>> network = FeedForward(4, 8)
    >>> x = torch.randn(1, 3, 4)
    >>> bool(torch.allclose(neurons_as_features(network)(x), network(x), atol=1e-6))
    True
    """
    if not isinstance(network, FeedForward):
        raise ValueError(f"expected a FeedForward, got a {type(network).__name__}")
    if network.activation != "relu":
        raise ValueError(
            f"only neurons with a ReLU are features as they are, got activation={network.activation!r}; fit a "
            "transcoder"
        )
    up, down = network.up, network.down
    up_bias = up.weight.new_zeros(up.out_features) if up.bias is None else up.bias
    down_bias = down.weight.new_zeros(down.out_features) if down.bias is None else down.bias
    return Transcoder(
        up.weight.detach(), up_bias.detach(), down.weight.detach().T, down_bias.detach()
    )


# Fitting ------------------------------------------------------------------------------------------


@takes_text("tokens")
@torch.no_grad()
def network_pairs(
    model: Stack, tokens: Int[Tensor, "batch position"]
) -> tuple[
    Float[Tensor, "layer batch position d_model"], Float[Tensor, "layer batch position d_model"]
]:
    """What the feed-forward network of each layer reads, and what it writes."""
    with reading_networks(model) as inputs, capture(model, "blocks.*.feedforward.out") as outputs:
        model(tokens)
    return torch.stack(list(inputs.values())), torch.stack(list(outputs.values()))


@contextmanager
def reading_networks(model: Stack) -> Iterator[dict[int, Tensor]]:
    """Collect what the feed-forward network of each layer reads while the block runs, in the graph."""
    inputs: dict[int, Tensor] = {}
    with ExitStack() as stack:
        for i, block in enumerate(model.blocks):
            site = Site(
                f"blocks.{i}.feedforward", block.get_submodule("feedforward"), model, "input"
            )
            stack.enter_context(watching(site, partial(inputs.__setitem__, i)))
        yield inputs


@torch.enable_grad()
def fit_transcoder(
    inputs: Float[Tensor, "place d_model"],
    outputs: Float[Tensor, "place d_model"],
    latents: int,
    generator: torch.Generator,
    *,
    k: int | None = None,
    penalty: float = 0.0,
    steps: int = 500,
    size: int = 256,
    learning_rate: float = 1e-2,
) -> Transcoder:
    """Fit a transcoder with Adam, a warm-up of a tenth of the steps and a cosine.

    What is made small is the squared error, as a share of the outputs' variance, plus the penalty times the
    length of all that the features write.

    Args:
        inputs, outputs: what the network reads and writes, a row each.
        latents: number of features.
        generator: of the initial directions and the batches.
        k: keep the k largest features of each place (TopK).
        penalty: what the length of what a feature writes costs (L1).
        steps: number of batches.
        size: places a batch.
        learning_rate: at its highest.

    Raises:
        ValueError: when latents, steps, size or the learning rate are not positive, or k does not lie between
            one and the latents.
    """
    if latents < 1 or steps < 1 or size < 1 or not learning_rate > 0:
        raise ValueError(
            "expected positive latents, steps, size and learning_rate, got "
            f"{latents}, {steps}, {size} and {learning_rate}"
        )
    if k is not None and not 1 <= k <= latents:
        raise ValueError(f"k must lie between 1 and {latents} latents, got {k}")
    drawn = torch.randn(latents, inputs.shape[1], generator=generator, dtype=inputs.dtype)
    encoder, centre = F.normalize(drawn, dim=1), inputs.mean(0)
    spread = (outputs - outputs.mean(0)).square().sum(1).mean().clamp(min=1e-12)
    written = torch.randn(latents, outputs.shape[1], generator=generator, dtype=outputs.dtype)
    weights = (
        encoder,
        -encoder @ centre,
        0.1 * spread.sqrt() * F.normalize(written, dim=1),
        outputs.mean(0),
    )
    for weight in weights:
        weight.requires_grad_()
    sparse, updates = Transcoder(*weights, k), torch.optim.Adam(weights)
    for step in range(steps):
        rows = torch.randint(len(inputs), (size,), generator=generator)
        z = sparse.encode(inputs[rows])
        wrong = (outputs[rows] - sparse.decode(z)).square().sum(1).mean()
        lengths = (z * sparse.decoder.norm(dim=1)).sum(1).mean()
        loss = wrong / spread + penalty * lengths / spread.sqrt()
        updates.zero_grad()
        loss.backward()
        share = cosine_after_warmup(step, steps, max(1, steps // 10))
        updates.param_groups[0]["lr"] = learning_rate * share
        updates.step()
    reads, read_bias, writes, write_bias = (weight.detach() for weight in weights)
    return Transcoder(reads, read_bias, writes, write_bias, k)


@takes_text("tokens")
def fit_transcoders(
    model: Stack,
    tokens: Int[Tensor, "batch position"],
    latents: int,
    *,
    seed: int,
    k: int | None = None,
    penalty: float = 0.0,
    steps: int = 500,
    size: int = 256,
    learning_rate: float = 1e-2,
) -> tuple[Transcoder, ...]:
    """A transcoder for the network of each layer, fitted on these sequences; see `fit_transcoder`.

    Args:
        model: is not changed; in evaluation mode.
        tokens: the sequences; judge the transcoders on others.
        latents, k, penalty, steps, size, learning_rate: of each transcoder.
        seed: of the initial directions and the batches.

    Raises:
        ValueError: see `fit_transcoder`.
    """
    return tuple(
        fit_transcoder(
            x.flatten(0, 1),
            y.flatten(0, 1),
            latents,
            make_generator(seed, f"transcoder {i}"),
            k=k,
            penalty=penalty,
            steps=steps,
            size=size,
            learning_rate=learning_rate,
        )
        for i, (x, y) in enumerate(zip(*network_pairs(model, tokens), strict=True))
    )


# Rewriting a model --------------------------------------------------------------------------------


@takes_text("tokens")
@torch.no_grad()
def network_errors(
    model: Stack, transcoders: Sequence[Transcoder], tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "layer batch position d_model"]:
    """What the networks write on these sequences, less what their transcoders write in their place.

    Raises:
        ValueError: when there is not one transcoder a layer.
    """
    check_transcoders(model, transcoders)
    inputs, outputs = network_pairs(model, tokens)
    return torch.stack(
        [y - rewritten(x) for rewritten, x, y in zip(transcoders, inputs, outputs, strict=True)]
    )


@takes_text()
@contextmanager
def replaced(
    model: Stack,
    transcoders: Sequence[Transcoder],
    errors: Float[Tensor, "layer batch position d_model"] | None = None,
) -> Iterator[None]:
    """Let transcoders stand for the networks while the block runs.

    Args:
        model: any model with blocks.
        transcoders: one for each layer.
        errors: added to what the transcoders write. With those that `network_errors` finds on the same
            sequences the rewritten model is the model itself, as long as nothing else is changed.

    Raises:
        ValueError: when there is not one transcoder a layer.

    >>> from measured_transformer.models.config import Config
    >>> from measured_transformer.models.decoder import Decoder
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=2, n_heads=2))
    >>> tokens = torch.tensor([[1, 2, 3]])
    >>> features = fit_transcoders(model, tokens, 8, seed=0, k=2, steps=5)
    >>> with replaced(model, features, network_errors(model, features, tokens)):
    ...     rewritten = model(tokens)
    >>> bool(torch.allclose(rewritten, model(tokens), atol=1e-5))
    True
    """
    check_transcoders(model, transcoders)
    with ExitStack() as stack:
        inputs = stack.enter_context(reading_networks(model))
        for i, rewritten in enumerate(transcoders):

            def write(value: Tensor, i: int = i, rewritten: Transcoder = rewritten) -> Tensor:
                written = rewritten(inputs[i])
                return written if errors is None else written + errors[i]

            stack.enter_context(intervene(model, {f"blocks.{i}.feedforward.out": write}))
        yield


def check_transcoders(model: Stack, transcoders: Sequence[Transcoder]) -> None:
    """Raise an error where there is not one transcoder a layer.

    Raises:
        ValueError: when there are more or fewer.
    """
    if len(transcoders) != len(model.blocks):
        raise ValueError(
            f"expected a transcoder for each of {len(model.blocks)} layers, got {len(transcoders)}"
        )
