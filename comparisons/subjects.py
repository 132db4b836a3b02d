"""The models that both sides look at, and what they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from measured_book.rooms.induction.measure import (
    BATCH,
    STEPS,
    STRINGS,
    config_of,
    options_of,
    rate_of,
)
from measured_transformer import Config, Decoder
from measured_transformer.analysis.attribution import Target, answer_logit
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import train
from torch import Tensor

SEED = 0


@dataclass(frozen=True)
class Subject:
    """One model and its tokens.

    Attributes:
        name: what the table calls it.
        model: in float64.
        tokens: what it is asked about, (example, position).
        other: as many other sequences.
        answers: the token whose logit is explained, at the last position.
        batch: where it was trained on repeating strings, some of those.
    """

    name: str
    model: Decoder
    tokens: Tensor
    other: Tensor
    answers: Tensor
    batch: Batch | None = None

    @property
    def target(self) -> Target:
        """The logit that is explained."""
        return answer_logit(-1, self.answers)


def drawn() -> Subject:
    """A model in the form of GPT-2, every weight, bias and norm drawn at random."""
    config = Config(
        vocab=31,
        d_model=24,
        n_layers=3,
        n_heads=4,
        max_length=16,
        positions="learned",
        activation="gelu_tanh",
        initialisation="gpt2",
    )
    model = Decoder(config).double().eval()
    draws = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=draws, dtype=torch.float64)
            if weight.ndim == 1:
                weight.copy_(float("norm.weight" in name) + 0.2 * noise)
            else:
                weight.copy_(noise * min(weight.shape) ** -0.5)
    tokens, other = torch.randint(31, (2, 4, 9), generator=draws)
    return Subject("GPT-2's form, random", model, tokens, other, tokens[:, 0])


def trained(arm: str) -> Subject:
    """A model of the chapter on induction: 'attention only' or 'whole blocks', trained here, in seconds."""
    options: dict[str, Any] = {**options_of(arm), "batch_size": BATCH}
    run = train(
        config_of(arm), STRINGS, steps=STEPS, learning_rate=rate_of(arm), seed=SEED, **options
    )
    model = run.model.double().eval()
    assert isinstance(model, Decoder)
    batch = STRINGS.batch(torch.Generator().manual_seed(SEED), 64)
    first, second = batch.inputs[:4], batch.inputs[4:8]
    return Subject(f"induction, {arm}", model, first, second, batch.targets[:4, -1], batch)
