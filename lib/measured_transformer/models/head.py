"""A stack with a head: one sequence in, for each position what the head reads from its final state."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from measured_transformer.models.config import Config
from measured_transformer.models.stack import Stack, initialise
from measured_transformer.parts.heads import MaskedTokenLayer, Pooler
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.tap import Tap


class HeadedStack(Stack):
    """What `Decoder` and `Encoder` have in common.

    Taps: those of `Stack`, and `logits` (batch position vocab).
    """

    def __init__(self, config: Config, *, causal: bool) -> None:
        super().__init__(config, causal=causal)
        self.head_layer: MaskedTokenLayer | None = None
        self.pooler = Pooler(config.d_model) if config.pooler else None
        self.unembedding: nn.Linear | None = None
        if config.head == "mlm":
            self.head_layer = MaskedTokenLayer(
                config.d_model, activation=config.activation, eps=config.norm_eps
            )
        if config.head != "none":
            self.unembedding = Linear(config.d_model, config.vocab, bias=config.head_bias)
        self.logits = Tap()
        initialise(self, config)
        if config.tie_embeddings and self.unembedding is not None:
            self.unembedding.weight = self.token_embedding.weight

    def read(self, x: Float[Tensor, "batch position d_model"]) -> Tensor:
        """Logits that the model reads from a state of the stream: final norm, head, unembedding.

        With `config.head == "none"` the final state itself.
        """
        state = self.finish(x)
        if self.unembedding is None:
            return state
        if self.head_layer is not None:
            state = self.head_layer(state)
        return self.logits(self.unembedding(scaled(state, self.config.logit_scale)))


def scaled(state: Tensor, factor: float) -> Tensor:
    """The state times the factor; the state itself when that is one."""
    return state if factor == 1 else state * factor
