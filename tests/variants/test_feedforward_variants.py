"""Preparations: without networks attention alone writes; given bits are linear up to the first sublayer."""

import pytest
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.bit_pairs import BitPairs
from measured_transformer.training.loop import make_model, train
from measured_transformer.variants.feedforward import FixedEmbeddings, bit_vectors, without_network

CONFIG = Config(vocab=16, d_model=12, n_heads=2, n_layers=2, positions="none")


def model(config=CONFIG, source=False):
    return make_model(config, causal=False, source=source, seed=0)


def trainable(prepared):
    return sum(p.numel() for p in prepared.parameters() if p.requires_grad)


def test_without_networks_nothing_but_attention_writes():
    prepared = model()
    FixedEmbeddings(network=False)(prepared)
    with capture(prepared, "*.residual_mid", "*.residual_post") as seen:
        prepared(torch.arange(8)[None])
    for i in range(2):
        mid, post = seen[f"blocks.{i}.residual_mid"], seen[f"blocks.{i}.residual_post"]
        assert torch.equal(mid, post)
    assert not any("feedforward" in name for name, _ in prepared.named_parameters())


def test_with_networks_and_a_learned_table_nothing_changes():
    prepared, fresh = model(), model()
    FixedEmbeddings()(prepared)
    assert all(
        torch.equal(a, b) for a, b in zip(prepared.parameters(), fresh.parameters(), strict=True)
    )


def test_given_bits_are_linear_behind_the_first_norm_and_stay_fixed():
    task = BitPairs(bits=4, length=3)
    run = train(CONFIG, task, steps=3, learning_rate=0.01, seed=0, prepare=FixedEmbeddings(bits=4))
    vectors = run.model.token_embedding.weight
    assert torch.equal(vectors, bit_vectors(4, CONFIG))
    assert vectors.norm(dim=1) == pytest.approx(torch.ones(16).numpy(), abs=1e-5)
    fresh = model()
    FixedEmbeddings(bits=4)(fresh)
    behind = fresh.blocks[0].attention_norm(fresh.embedding_scale * vectors).double()
    signs = task.signs().double()
    fit = torch.linalg.lstsq(signs, behind).solution
    assert (signs @ fit - behind).abs().max() < 1e-5
    assert torch.linalg.matrix_rank(vectors) == 4


@pytest.mark.parametrize("width", [16, 32])
def test_what_replaces_the_network_has_as_many_parameters(width):
    config = Config(vocab=24, d_model=width, n_heads=4, n_layers=1)
    whole = trainable(model(config))
    for other in without_network(config).values():
        alone = model(other)
        FixedEmbeddings(network=False)(alone)
        assert abs(trainable(alone) / whole - 1) < 0.06


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="vocabulary of 8"):
        bit_vectors(3, CONFIG)
    with pytest.raises(ValueError, match="wider than 4"):
        bit_vectors(4, CONFIG.replace(d_model=4))
    with pytest.raises(ValueError, match="0 for none"):
        FixedEmbeddings(bits=-1)
    with pytest.raises(ValueError, match="EncoderDecoder"):
        FixedEmbeddings(network=False)(model(source=True))
    for config in (CONFIG.replace(d_ff=12), CONFIG.replace(activation="swiglu")):
        with pytest.raises(ValueError, match="without a gate"):
            without_network(config)
