"""Instruments on texts find what they find on the tokens of these texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from measured_transformer import Config, Decoder, EncoderDecoder, TextFile
from measured_transformer.analysis import (
    ablation,
    attribution,
    attribution_graph,
    attribution_patching,
    faithfulness,
    interchange,
    lens,
    patching,
    path_patching,
    references,
    residual,
    steering,
    transcoders,
    tuned_lens,
)
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution import answer_logit
from measured_transformer.analysis.edges import Edge, edges, meet, sublayers
from measured_transformer.analysis.texts import as_batch, as_pairs, as_row, as_rows
from measured_transformer.internals.tokens import as_model, as_prompts, as_tokens, naming
from torch import Tensor

MODEL = (
    Decoder(
        Config(vocab=256, d_model=16, n_layers=2, n_heads=2, positions="rotary", activation="relu")
    )
    .double()
    .eval()
)
FIRST, SECOND = "The cat", "The dog"


def encode(text: str) -> list[int]:
    return list(text.encode())


@dataclass
class Language:
    """A model with its tokenizer."""

    model: Any
    encode: Callable[[str], Any] = encode


LANGUAGE = Language(MODEL)
TOKENS, OTHER = (torch.tensor([encode(text)]) for text in (FIRST, SECOND))
TARGET = answer_logit(-1, torch.tensor([32]))
HEAD = Component("blocks.0.attention.mixed", 1)
LAST = Component("blocks.1.residual_post")
EDGE = Edge(HEAD, Component("blocks.1.attention.keys", 0))
ALIGNED = interchange.Aligned((HEAD,), positions=[-1])
STEERING = steering.SteeringVector(LAST, torch.arange(16, dtype=torch.float64))
FEATURES = [transcoders.neurons_as_features(block.feedforward) for block in MODEL.blocks]
LENS = tuned_lens.train_tuned_lens(MODEL, TOKENS, seed=0, held=0.4, steps=0)
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "lens_logits": lambda m, a, b: lens.lens_logits(m, a),
    "attention_weights": lambda m, a, b: attribution.attention_weights(m, a),
    "weighted_norms": lambda m, a, b: attribution.weighted_norms(m, a),
    "embedded": lambda m, a, b: attribution.embedded(m, a),
    "gradients": lambda m, a, b: attribution.gradients(m, a, TARGET),
    "gradient_times_input": lambda m, a, b: attribution.gradient_times_input(m, a, TARGET),
    "integrated_gradients": lambda m, a, b: attribution.integrated_gradients(
        m, tokens=a, target=TARGET, steps=5
    ),
    "completeness_gap": lambda m, a, b: attribution.completeness_gap(
        m, a, TARGET, torch.zeros(1, 7, dtype=torch.float64)
    ),
    "attention_times_gradient": lambda m, a, b: attribution.attention_times_gradient(m, a, TARGET),
    "occlusion": lambda m, a, b: attribution.occlusion(m, a, TARGET, how="resample", reference=b),
    "direct_logits": lambda m, a, b: attribution.direct_logits(m, a).logits,
    "patched": lambda m, a, b: patching.patched(m, a, b, [HEAD], TARGET),
    "restored_tokens": lambda m, a, b: patching.restored_tokens(m, a, b, TARGET),
    "path_patched": lambda m, a, b: patching.path_patched(m, a, b, HEAD, [LAST], TARGET),
    "ledger": lambda m, a, b: residual.ledger(m, a).states,
    "mean_difference": lambda m, a, b: steering.mean_difference(m, a, b, LAST).vector,
    "shuffled_controls": lambda m, a, b: (
        steering.shuffled_controls(m, a, b, STEERING, 1, torch.Generator().manual_seed(1))[0].vector
    ),
    "attribution_patched": lambda m, a, b: attribution_patching.attribution_patched(
        m, a, b, [HEAD], TARGET
    )[HEAD],
    "compare_patching": lambda m, a, b: (
        attribution_patching.compare_patching(m, a, b, [HEAD], TARGET).patched
    ),
    "edges_replaced": lambda m, a, b: path_patching.edges_replaced(
        m, a, [EDGE], references.seen_on(m, b, [HEAD]).values
    ),
    "edge_patched": lambda m, a, b: path_patching.edge_patched(m, a, b, [EDGE], TARGET),
    "patched_along": lambda m, a, b: path_patching.patched_along(m, a, b, [EDGE], TARGET),
    "interchanged": lambda m, a, b: interchange.interchanged(m, a, [(ALIGNED, b)]),
    "interchange_accuracy": lambda m, a, b: (
        interchange.interchange_accuracy(m, a, [(ALIGNED, b)], torch.tensor([32])).answers
    ),
    "ablations": lambda m, a, b: faithfulness.ablations(m, a, TARGET, "mean", reference=b).only([]),
    "seen_on": lambda m, a, b: references.seen_on(m, a, [HEAD]).values[HEAD.tap],
    "replacements": lambda m, a, b: references.replacements(m, a, [HEAD], "mean", reference=b)[
        HEAD.tap
    ],
    "network_pairs": lambda m, a, b: transcoders.network_pairs(m, a)[1],
    "fit_transcoders": lambda m, a, b: (
        transcoders.fit_transcoders(m, a, 4, seed=0, steps=2)[0].encoder
    ),
    "network_errors": lambda m, a, b: transcoders.network_errors(m, FEATURES[::-1], a),
    "train_tuned_lens": lambda m, a, b: (
        tuned_lens.train_tuned_lens(m, a, seed=0, held=0.4, steps=1).weight
    ),
    "tuned_logits": lambda m, a, b: tuned_lens.tuned_logits(m, LENS, a),
}
# Of one sequence, which has no axis for texts.
ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "freeze": lambda m, a: attribution_graph.freeze(m, a).logits,
    "attribution_graph": lambda m, a: (
        attribution_graph.attribution_graph(m, FEATURES, a, logits=[32]).edges
    ),
}
BATCHES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "depths": lambda m, a, b: lens.depths(m, a),
    "logit_lens": lambda m, a, b: torch.tensor(lens.logit_lens(m, a).loss),
    "effects": lambda m, a, b: torch.tensor(
        ablation.effects(m, ablation.heads(m), a, how="mean", reference=b, metric=ablation.loss)
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_text_is_its_tokens(name: str):
    call = CALLS[name]
    expected = call(MODEL, TOKENS, OTHER)
    assert isinstance(expected, Tensor)
    assert expected.abs().sum() > 0
    for model, a, b in (
        (LANGUAGE, FIRST, SECOND),
        (LANGUAGE, [FIRST], [SECOND]),
        (LANGUAGE, TOKENS, OTHER),
    ):
        assert torch.equal(call(model, a, b), expected)


@pytest.mark.parametrize("name", ROWS)
def test_a_sequence_may_be_one_text(name: str):
    call = ROWS[name]
    expected = call(MODEL, TOKENS[0])
    assert expected.abs().sum() > 0
    for model, a in ((LANGUAGE, FIRST), (LANGUAGE, [FIRST]), (LANGUAGE, TOKENS[0])):
        assert torch.equal(call(model, a), expected)
    with pytest.raises(ValueError, match="expected one text, got 2"):
        call(LANGUAGE, [FIRST, SECOND])


def test_prompts_for_steering_may_differ_in_length():
    texts, rows = (
        ["The cat sat", "Thou"],
        [torch.tensor(encode(t)) for t in ("The cat sat", "Thou")],
    )
    found = steering.mean_difference(LANGUAGE, texts, FIRST, LAST)
    assert torch.equal(found.vector, steering.mean_difference(MODEL, rows, TOKENS, LAST).vector)


def test_the_effect_of_a_dose_is_read_on_texts():
    doses = [0.0, 2.0]
    expected = steering.dose_response(
        MODEL, STEERING, doses, TOKENS, TARGET, as_batch(LANGUAGE, SECOND)
    )
    found = steering.dose_response(LANGUAGE, STEERING, doses, FIRST, TARGET, SECOND)
    assert found.rows() == expected.rows()
    assert found.rows()[0] != found.rows()[1]


def test_a_model_with_its_tokenizer_is_steered_and_replaced_in():
    assert edges(LANGUAGE) == edges(MODEL)
    assert sublayers(LANGUAGE) == sublayers(MODEL)
    assert meet(LANGUAGE, HEAD, HEAD)
    values = references.seen_on(LANGUAGE, SECOND, [HEAD]).values
    plain = MODEL(TOKENS)
    for block in (
        steering.steer(LANGUAGE, STEERING, 2.0),
        references.replaced(LANGUAGE, [HEAD], values),
        transcoders.replaced(LANGUAGE, FEATURES[::-1]),
    ):
        with block:
            assert not torch.allclose(MODEL(TOKENS), plain)
        assert torch.equal(MODEL(TOKENS), plain)


def test_tokens_stay_what_they_are_in_every_form():
    rows = [torch.tensor([1, 2]), torch.tensor([3])]
    assert as_row(LANGUAGE, TOKENS[0]) is not None
    assert as_rows(LANGUAGE, rows) is rows
    [(kept, tokens), (_, cut)] = as_pairs(LANGUAGE, [(ALIGNED, TOKENS), (ALIGNED, FIRST)])
    assert kept is ALIGNED
    assert tokens is TOKENS
    assert torch.equal(cut, TOKENS)


@pytest.mark.parametrize("name", BATCHES)
def test_each_token_of_a_text_is_predicted(name: str):
    call = BATCHES[name]
    batches = [as_batch(LANGUAGE, text) for text in (FIRST, SECOND)]
    assert torch.equal(batches[0].inputs, TOKENS[:, :-1])
    assert torch.equal(batches[0].targets, TOKENS[:, 1:])
    assert bool(batches[0].scored.all())
    expected = call(MODEL, *batches)
    assert expected.abs().sum() > 0
    assert torch.equal(call(LANGUAGE, FIRST, SECOND), expected)
    assert torch.equal(call(LANGUAGE, *batches), expected)


def test_an_ablation_takes_a_text_as_its_reference():
    components = ablation.heads(LANGUAGE) + ablation.feedforwards(LANGUAGE)
    assert components == ablation.heads(MODEL) + ablation.feedforwards(MODEL)
    tokens = TOKENS[:, :-1]
    with ablation.ablated(LANGUAGE, components, "mean", reference=SECOND):
        changed = MODEL(tokens)
    with ablation.ablated(MODEL, components, "mean", reference=as_batch(LANGUAGE, SECOND)):
        assert torch.equal(MODEL(tokens), changed)
    assert not torch.equal(MODEL(tokens), changed)


def test_several_texts_are_rows():
    tokens = as_tokens(LANGUAGE, [FIRST, SECOND])
    assert torch.equal(tokens, torch.cat((TOKENS, OTHER)))
    assert lens.lens_logits(LANGUAGE, [FIRST, SECOND]).shape == (3, 2, 7, 256)


def test_what_is_no_text_is_handed_back():
    for given in (TOKENS, [1, 2], None, 3, [], [[1], [2]]):
        assert as_tokens(LANGUAGE, given) is given
        assert as_batch(LANGUAGE, given) is given
    assert as_model(MODEL) is MODEL
    assert as_model(LANGUAGE) is MODEL
    both = EncoderDecoder(Config(vocab=9))
    assert as_model(both) is both, "its encode is not of texts"


def test_prompts_may_differ_in_length():
    texts = ["The cat sat", "Thou", ""]
    assert as_prompts(LANGUAGE, texts) == [encode(text) for text in texts]
    assert as_prompts(LANGUAGE, FIRST) == [encode(FIRST)]
    prompts = [[1, 2], [3]]
    assert as_prompts(LANGUAGE, prompts) is prompts


def test_tokens_may_come_as_a_tensor_of_one_row():
    language = Language(MODEL, lambda text: torch.tensor([encode(text)]))
    assert torch.equal(as_tokens(language, FIRST), TOKENS)
    assert as_prompts(language, [FIRST, "A"]) == [encode(FIRST), [65]]


class Inner(Decoder):
    """A model that is a module itself and shares the parts of another, as language models do."""

    def __init__(self, model: Decoder) -> None:
        torch.nn.Module.__init__(self)
        vars(self).update(vars(model))
        self.kept = [model]

    @property
    def model(self) -> Decoder:
        return self.kept[0]

    def encode(self, text: str) -> Tensor:
        return torch.tensor([encode(text)])


def test_a_module_may_come_with_its_tokenizer():
    language = Inner(MODEL)
    assert as_model(language) is MODEL
    assert torch.equal(lens.lens_logits(language, FIRST), lens.lens_logits(MODEL, TOKENS))


def test_a_tokenizer_of_the_package_tokenizers_gives_an_encoding():
    language = Language(MODEL, lambda text: SimpleNamespace(ids=encode(text)))
    assert torch.equal(as_tokens(language, FIRST), TOKENS)


def test_a_text_needs_a_tokenizer():
    with pytest.raises(ValueError, match="got the text 'The cat', and a Decoder has no tokenizer"):
        lens.lens_logits(MODEL, FIRST)
    with pytest.raises(ValueError, match="a Decoder has no tokenizer"):
        ablation.effects(MODEL, [HEAD], FIRST)


def test_texts_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match=r"expected texts with equally many tokens.*got 7, 4"):
        lens.lens_logits(LANGUAGE, [FIRST, "Thou"[:4]])
    with pytest.raises(ValueError, match="and at least one, got 0"):
        lens.lens_logits(LANGUAGE, "")
    with pytest.raises(ValueError, match="expected at least 2 tokens"):
        lens.logit_lens(LANGUAGE, "T")


def test_the_signature_and_the_words_of_an_instrument_stay():
    import inspect

    assert list(inspect.signature(lens.lens_logits).parameters) == [
        "model",
        "tokens",
        "positions",
        "keep",
    ]
    assert "logit lens at each depth" in inspect.getdoc(lens.lens_logits)
    assert lens.lens_logits.__qualname__ == "lens_logits"
    with pytest.raises(TypeError, match="missing a required argument: 'tokens'"):
        lens.lens_logits(MODEL)


def test_no_gradients_are_kept_where_none_were_kept_before():
    assert not lens.lens_logits(LANGUAGE, FIRST).requires_grad
    assert np.isfinite(lens.logit_lens(LANGUAGE, FIRST).loss).all()


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (TextFile(__file__), "A"),
        (SimpleNamespace(string=lambda n: f"<{n}>"), "<65>"),
        (SimpleNamespace(tokenizer=SimpleNamespace(string=lambda n: f"<{n}>")), "<65>"),
        (SimpleNamespace(id_to_token=lambda n: "ĠA"), " A"),
        (SimpleNamespace(convert_ids_to_tokens=lambda n: "\u2581A"), " A"),
        (SimpleNamespace(id_to_token=lambda n: None), "#65"),
    ],
)
def test_tokens_are_named_by_any_tokenizer(tokenizer: Any, expected: str):
    assert naming(tokenizer)(65) == expected


def test_what_is_no_tokenizer_names_nothing():
    with pytest.raises(ValueError, match=r"expected a tokenizer with id_to_token, .* got int"):
        naming(3)
