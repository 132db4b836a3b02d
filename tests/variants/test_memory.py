"""What a decoder reads of its source: all states, one vector, or nothing."""

import pytest
import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.training.loop import train
from measured_transformer.training.stacked import train_stacked
from measured_transformer.variants.memory import Memory

CONFIG = Config(vocab=9, d_model=8, n_heads=2, n_layers=1)
SOURCE = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
REAL = torch.tensor([[True] * 4, [True, True, False, False]])


def model_with(kind):
    model = EncoderDecoder(CONFIG).eval()
    whole = model.encode(SOURCE, padding_mask=REAL)
    Memory(kind)(model)
    return model, whole, model.encode(SOURCE, padding_mask=REAL)


def test_all_changes_nothing():
    _, whole, memory = model_with("all")
    assert torch.equal(whole, memory)


def test_the_mean_and_the_last_leave_padding_out():
    _, whole, memory = model_with("mean")
    torch.testing.assert_close(memory[0, 2], whole[0].mean(0))
    torch.testing.assert_close(memory[1, 3], whole[1, :2].mean(0))
    _, whole, memory = model_with("last")
    torch.testing.assert_close(memory[0, 0], whole[0, 3])
    torch.testing.assert_close(memory[1, 3], whole[1, 1])


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_without_a_padding_mask_all_tokens_are_real(kind):
    model, _, _ = model_with(kind)
    alone = model.encode(SOURCE[:1])
    torch.testing.assert_close(alone, model.encode(SOURCE, padding_mask=REAL)[:1])


def test_with_nothing_every_source_is_alike():
    model, _, memory = model_with("none")
    assert not memory.any()
    target = torch.tensor([[1, 2]])
    assert torch.equal(model(SOURCE[:1], target), model(SOURCE[:1].flip(1), target))


@pytest.mark.parametrize("kind", ["mean", "last", "none"])
def test_weights_of_cross_attention_do_not_matter_for_one_vector(kind):
    model, _, _ = model_with(kind)
    target = torch.tensor([[1, 2, 3]])
    before = model(SOURCE[:1], target)
    with torch.no_grad():
        model.decoder.blocks[0].cross_attention.query.weight.mul_(-3)
    torch.testing.assert_close(model(SOURCE[:1], target), before)


@pytest.mark.parametrize("kind", ["mean", "last", "none"])
def test_runs_stack(kind):
    task = NoisyTranslation(symbols=5, length=6, pad_share=0.4)
    config = Config(vocab=task.vocab, d_model=8, n_heads=2, n_layers=1)
    options = {"steps": 3, "learning_rate": 1e-3, "batch_size": 4, "prepare": Memory(kind)}
    alone = train(config, task, seed=1, **options)
    stacked = train_stacked(config, task, [0, 1], **options)[1]
    assert abs(alone.losses - stacked.losses).max() < 1e-5
    assert type(stacked.model) is type(alone.model) is not EncoderDecoder


def test_other_kinds_and_models_are_refused(unhooked):
    with pytest.raises(ValueError, match="all, mean, last, none, got 'first'"):
        Memory("first")
    with pytest.raises(ValueError, match="expected an EncoderDecoder, got a Decoder"):
        Memory("mean")(Decoder(CONFIG))
