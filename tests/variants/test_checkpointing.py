"""Blocks that run again keep less and give the same gradients."""

from __future__ import annotations

import pytest
import torch
from measured_transformer.inference.generate import generate
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.block import Block
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.loop import train
from measured_transformer.variants.checkpointing import (
    Checkpointed,
    CheckpointedBlock,
    counting_saved,
    saved_bytes,
)

CONFIG = Config(vocab=9, d_model=16, n_layers=4, n_heads=2, dropout=0.3)
TOKENS = torch.randint(9, (3, 10), generator=torch.Generator().manual_seed(0))


def gradients(kind, prepare=None):
    torch.manual_seed(0)
    model = kind(CONFIG).double()
    if prepare is not None:
        prepare(model)
    torch.manual_seed(1)
    loss = model(TOKENS).logsumexp(-1).square().mean()
    return torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_gradients_are_the_same_with_dropout(kind, every):
    for a, b in zip(gradients(kind), gradients(kind, Checkpointed(every)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_other_dropout_in_the_second_run_gives_other_gradients():
    plain, other = gradients(Decoder), gradients(Decoder, Checkpointed(same_dropout=False))
    assert max(float((a - b).abs().max()) for a, b in zip(plain, other, strict=True)) > 1e-3


def test_a_block_keeps_its_input_alone():
    """The further bytes of each further block are those of one state of the stream."""

    def kept(layers, prepare=None):
        torch.manual_seed(0)
        model = Decoder(CONFIG.replace(n_layers=layers, dropout=0.0))
        if prepare is not None:
            prepare(model)
        return saved_bytes(model, TOKENS)

    state = TOKENS.numel() * 16 * 4
    assert kept(5, Checkpointed()) - kept(4, Checkpointed()) == state
    assert kept(5) - kept(4) > 10 * state
    assert kept(4, Checkpointed(2)) < kept(4)


def test_each_memory_counts_once_and_weights_not_at_all():
    x = torch.ones(5, requires_grad=True)
    with counting_saved() as held:
        y = x.exp()
        (y * y).sum()
    assert sorted(held.values()) == [20]


def test_training_and_writing_go_on_as_before():
    task = Lag(vocab=8, length=12)
    config = Config(vocab=8, d_model=16, n_layers=2, n_heads=2)
    how = {"steps": 5, "learning_rate": 1e-2, "seed": 0, "batch_size": 8}
    plain = train(config, task, **how)
    again = train(config, task, prepare=Checkpointed(), **how)
    torch.testing.assert_close(torch.as_tensor(plain.losses), torch.as_tensor(again.losses))
    written = [
        generate(run.model, [[1, 2, 3]], max_new_tokens=5).tokens[0] for run in (plain, again)
    ]
    assert torch.equal(*written)
    assert all(type(block) is CheckpointedBlock for block in again.model.blocks)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Checkpointed(0)
    with pytest.raises(ValueError, match="EncoderDecoder"):
        Checkpointed()(EncoderDecoder(CONFIG))
    model = Decoder(CONFIG)
    Checkpointed(3)(model)
    assert [type(block) is Block for block in model.blocks] == [False, True, True, False]
