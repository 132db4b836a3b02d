r"""The feed-forward network as keys and values, neuron by neuron.

Neuron $i$ has a *key* $k_i$, with which it reads the token, and a *value* $v_i$, which it writes:
$\text{FFN}(x) = \sum_i g(x \cdot k_i + b_i)\, v_i + b_2$; with a gate it is
$\sum_i g(x \cdot k^g_i + b^g_i)\,(x \cdot k_i + b_i)\, v_i + b_2$. The view is that of Geva et al. (2021),
"Transformer Feed-Forward Layers Are Key-Value Memories"; that values promote tokens is that of Geva et al.
(2022), "Transformer Feed-Forward Layers Build Predictions by Promoting Concepts in the Vocabulary Space".
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.parts.feedforward import Activation, FeedForward, activation_function
from measured_transformer.training.seeding import make_generator, seeded


@dataclass(frozen=True)
class Memory:
    """A feed-forward network as a list of neurons.

    Attributes:
        keys: what each neuron reads with, a row each.
        key_biases: what it adds to that.
        values: what each neuron writes, a row each.
        bias: what is written in any case.
        activation: the function between.
        gate_keys, gate_biases: of a gated network, what each gate reads with; None without a gate.
    """

    keys: Float[Tensor, "d_ff d_model"]
    key_biases: Float[Tensor, "d_ff"]
    values: Float[Tensor, "d_ff d_model"]
    bias: Float[Tensor, "d_model"]
    activation: Activation
    gate_keys: Float[Tensor, "d_ff d_model"] | None = None
    gate_biases: Float[Tensor, "d_ff"] | None = None

    def neuron(self, x: Float[Tensor, "*batch d_model"], i: int) -> Float[Tensor, "*batch"]:
        """The activation of neuron `i`."""
        bend = activation_function(self.activation)
        read = (x * self.keys[i]).sum(-1) + self.key_biases[i]
        if self.gate_keys is None or self.gate_biases is None:
            return bend(read)
        return bend((x * self.gate_keys[i]).sum(-1) + self.gate_biases[i]) * read

    def write(self, x: Float[Tensor, "*batch d_model"], i: int) -> Float[Tensor, "*batch d_model"]:
        """The output of neuron `i`: its activation times its value."""
        return self.neuron(x, i)[..., None] * self.values[i]

    def __call__(
        self, x: Float[Tensor, "*batch d_model"], *, without: int | None = None
    ) -> Float[Tensor, "*batch d_model"]:
        """The sum of all neurons' outputs, in order, and the bias; one neuron may be left out."""
        total = self.bias.expand_as(x).clone()
        for i in range(len(self.keys)):
            if i != without:
                total = total + self.write(x, i)
        return total


@torch.no_grad()
def as_memory(network: FeedForward) -> Memory:
    """The same network as a list of neurons.

    PyTorch stores the transpose of each matrix, so keys are rows of the first stored weight and values columns
    of the second. Where the network has no biases they are zero.

    Raises:
        ValueError: when it is another kind of network, such as a mixture of experts.
    """
    if not isinstance(network, FeedForward):
        raise ValueError(f"expected a FeedForward, got a {type(network).__name__}")

    def bias(layer: torch.nn.Linear) -> Tensor:
        return torch.zeros_like(layer.weight[:, 0]) if layer.bias is None else layer.bias.detach()

    gate = network.gate
    return Memory(
        keys=network.up.weight.detach(),
        key_biases=bias(network.up),
        values=network.down.weight.detach().T,
        bias=bias(network.down),
        activation=network.activation,
        gate_keys=None if gate is None else gate.weight.detach(),
        gate_biases=None if gate is None else bias(gate),
    )


@torch.no_grad()
def sum_error(
    seed: int, *, activation: Activation = "relu", bias: bool = False, leave_one_out: bool = False
) -> float:
    """Largest difference between a drawn network and the sum over its neurons, in float64.

    Args:
        seed: of sizes, weights and inputs.
        activation: of the network, gated or not.
        bias: whether it has biases; they are drawn too.
        leave_one_out: whether the neuron that writes most is left out of the sum, which must show.
    """
    sizes, draws = random.Random(seed), make_generator(seed, "keys and values")
    d_model, d_ff = sizes.randint(2, 12), sizes.randint(8, 32)  # of fewer, all might be silent
    with seeded(seed):
        network = FeedForward(d_model, d_ff, activation=activation, bias=bias).double()
    for parameter in network.parameters():
        if parameter.ndim == 1:
            parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
    x = torch.randn(3, 5, d_model, generator=draws, dtype=torch.float64)
    memory = as_memory(network)
    most = max(range(d_ff), key=lambda i: float(memory.write(x, i).abs().max()))
    return float((memory(x, without=most if leave_one_out else None) - network(x)).abs().max())
