r"""Gates on what heads read: a head may write little without a token to rest on.

With a head's mean of values $m$ and the state $x$ that its token's query is made of, the head passes on
$\sigma(w \cdot x)\, m$ in the place of $m$. The weights of its softmax sum to one as before.

Source: Qiu et al. (2025), "Gated Attention for Large Language Models": the gate after the weighted mean, with
one number a head.

>>> from measured_transformer.models.config import Config
>>> from measured_transformer.models.decoder import Decoder
>>> model = Decoder(Config(vocab=4, d_model=8, n_heads=2, n_layers=1))
>>> gate_heads(model)
>>> model.blocks[0].attention.mixed.gate.weight.shape  # one row a head
torch.Size([2, 8])
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model


class HeadGates(Tap):
    """Stands in the place of an attention's tap `mixed`, and multiplies what passes by the gates.

    A map of the stream gives each head its gate at each token, between 0 and 1; at first all are a half.

    Taps: `opened` (batch head query), the gates; its watchers see the heads' means after their gates.
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        """Make the map, without a bias and with weights of zero."""
        super().__init__()
        like = attention.query.weight
        self.gate = Linear(like.shape[1], attention.n_heads, bias=False).to(like)
        nn.init.zeros_(self.gate.weight)
        self.opened = Tap()
        self._asking: Tensor | None = None

    def ask(self, x: Float[Tensor, "batch query d_model"]) -> None:
        """Take what the gates of the next mixture are computed from."""
        self._asking = x

    def __call__(
        self, value: Float[Tensor, "batch head query d_head"]
    ) -> Float[Tensor, "batch head query d_head"]:
        """Multiply each head's mean by its gate.

        Raises:
            ValueError: when nobody has said what is asked with.
        """
        if self._asking is None:
            raise ValueError("expected a state to compute the gates from, got none")
        gates = self.opened(self.gate(self._asking).sigmoid().transpose(1, 2))
        self._asking = None
        gated: Tensor = super().__call__(gates[..., None] * value)
        return gated


def _ask(attention: nn.Module, args: Any) -> None:
    gates: Any = attention.mixed
    gates.ask(args[0])


def gate_heads(model: Model) -> None:
    """Preparation for training: each head of each attention sublayer gets a gate on what it passes on.

    Raises:
        ValueError: when the heads have gates.
    """
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            if isinstance(module.mixed, HeadGates):
                raise ValueError("expected heads without gates, got a model whose heads have them")
            module.mixed = HeadGates(module)
            module.register_forward_pre_hook(_ask)
