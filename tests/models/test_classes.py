"""An encoder that answers with classes: of each position, of the sequence, or beside the logits."""

from __future__ import annotations

import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder, capture
from measured_transformer.analysis.lens import lens_logits
from measured_transformer.parts.heads import MaskedTokenLayer, Pooler

SIZES = {"vocab": 11, "d_model": 16, "n_layers": 2, "n_heads": 4}
TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def made(**changes):
    torch.manual_seed(0)
    return Encoder(Config(**SIZES, **changes)).eval()


def test_classes_of_each_position():
    model = made(head="tokens", labels=5)
    assert model.unembedding is None
    with capture(model) as seen:
        logits = model(TOKENS)
    assert logits.shape == (2, 3, 5)
    assert torch.equal(seen["logits"], logits)
    assert torch.equal(model.classifier(seen["final_state"]), logits)


@pytest.mark.parametrize(
    ("activation", "function"),
    [("tanh", torch.tanh), ("relu", torch.relu), ("gelu", torch.nn.functional.gelu)],
)
def test_classes_of_the_sequence_are_read_from_its_first_position(activation, function):
    model = made(head="sequence", labels=3, pooler=True, pooler_activation=activation)
    with capture(model) as seen:
        logits = model(TOKENS)
    pooled = function(model.pooler.dense(seen["final_state"][:, 0]))
    torch.testing.assert_close(logits, model.classifier(pooled))
    assert torch.equal(seen["pooler.out"], model.pool(seen["final_state"]))
    assert logits.shape == (2, 3)


def test_classes_beside_the_logits_leave_the_logits_as_they_are():
    alone = made(head="mlm", pooler=True)
    both = made(head="mlm", pooler=True, labels=2)
    both.load_state_dict(alone.state_dict(), strict=False)
    assert torch.equal(alone(TOKENS), both(TOKENS))
    with capture(both, "final_state") as seen:
        both(TOKENS)
    assert both.classify(seen["final_state"]).shape == (2, 2)
    with pytest.raises(ValueError, match="this model has no classes"):
        alone.classify(seen["final_state"])


def test_the_layer_before_logits_has_its_own_function_and_no_bias():
    model = made(head="mlm", activation="relu", head_activation="gelu", head_layer_bias=False)
    assert [name for name, _ in model.head_layer.named_parameters()] == [
        "dense.weight",
        "norm.weight",
    ]
    x = torch.randn(1, 2, 16)
    expected = model.head_layer.norm(torch.nn.functional.gelu(model.head_layer.dense(x)))
    assert torch.equal(model.head_layer(x), expected)
    assert MaskedTokenLayer(4).dense.bias is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "tokens"}, "head='tokens' needs a number of labels"),
        ({"head": "sequence", "labels": 2}, "classes of a sequence are read by a pooler"),
        ({"head": "mlm", "labels": 2}, "classes of a sequence are read by a pooler"),
        ({"labels": 2}, "labels are for the heads"),
        (
            {"head": "tokens", "labels": 2, "tie_embeddings": True},
            "head='tokens' has no unembedding",
        ),
        ({"head": "tokens", "labels": 2, "head_bias": True}, "head='tokens' has no unembedding"),
        ({"labels": -1}, "labels must be 0 or a positive whole number"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**SIZES, **changes)


def test_unknown_functions_are_refused(unhooked):
    with pytest.raises(ValueError, match="pooler_activation must be one of tanh, relu, gelu"):
        Config(**SIZES, pooler_activation="silu")
    with pytest.raises(ValueError, match="activation must be one of tanh, relu, gelu; got 'silu'"):
        Pooler(4, activation="silu")
    with pytest.raises(ValueError, match="head_activation must be one of None, relu"):
        Config(**SIZES, head_activation="mish")


@pytest.mark.parametrize("kind", [Decoder, EncoderDecoder])
def test_classes_are_for_encoders(kind):
    with pytest.raises(ValueError, match=r"classes are for Encoder, got config\.labels=2"):
        kind(Config(**SIZES, head="tokens", labels=2))


def test_a_lens_needs_logits_over_tokens():
    with pytest.raises(ValueError, match=r"no head to read with \(config\.head='tokens'\)"):
        lens_logits(made(head="tokens", labels=2), TOKENS)
