"""Statistics of layers against closed forms, and on models whose circuit is known."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.grammar_probes import (
    PRONOUNS,
    agreement_examples,
    pronoun_examples,
)
from measured_transformer.analysis.handmade import heads_model
from measured_transformer.analysis.layers import (
    attention_by_layer,
    centre_of_gravity,
    gains,
    gini,
    mean_distance,
    patterns_of,
    previous_mass,
    relative_entropy,
    slope,
)
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.grammar import NOUNS, VOCABULARY, Grammar
from measured_transformer.tasks.task import Batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def even(n: int) -> torch.Tensor:
    return torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]


def one_hot(n: int, back: int) -> torch.Tensor:
    place = torch.arange(n)
    return torch.nn.functional.one_hot((place - back).clamp_min(0), n).float()


@pytest.mark.parametrize("n", [2, 5, 24])
def test_even_attention_has_its_closed_forms(n):
    pattern = even(n).expand(3, 2, n, n)
    assert mean_distance(pattern) == pytest.approx(n / 4)  # the mean of i / 2 for i = 1 .. n - 1
    harmonic = sum(1 / (i + 1) for i in range(1, n)) / (n - 1)
    assert previous_mass(pattern) == pytest.approx(harmonic)
    assert relative_entropy(pattern) == pytest.approx(1)
    assert gini(pattern) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("back", [0, 1, 3])
def test_a_single_key_has_its_closed_forms(back):
    n = 12
    pattern = one_hot(n, back)[None]
    assert mean_distance(pattern) == pytest.approx(sum(min(back, i) for i in range(1, n)) / (n - 1))
    assert relative_entropy(pattern) == pytest.approx(0)
    assert gini(pattern) == pytest.approx(1)
    assert previous_mass(pattern) == pytest.approx({0: 0, 1: 1, 3: 1 / (n - 1)}[back])


def test_gini_is_half_the_relative_mean_difference():
    """The definition over pairs: |a_i - a_j| summed over all, times m / (m - 1), over twice the sum."""
    weights = torch.rand(6, 9, 9, generator=generator()).tril()
    pattern = weights / weights.sum(-1, keepdim=True)
    expected = []
    for matrix in pattern.double():
        for q in range(1, 9):
            row = matrix[q, : q + 1]
            m = q + 1
            pairs = float((row[:, None] - row).abs().sum()) / (2 * m)
            expected.append(pairs * m / (m - 1))
    assert gini(pattern) == pytest.approx(np.mean(expected))


def test_entropy_of_a_shared_row():
    row = torch.zeros(16)
    row[:4] = 0.25
    pattern = one_hot(16, 0)
    pattern[15] = row
    assert relative_entropy(pattern) == pytest.approx(math.log(4) / math.log(16) / 15)


def test_layers_of_a_hand_made_model():
    model = heads_model(["previous", "first"], vocab=5, length=8, causal=True)
    tokens = torch.randint(5, (10, 8), generator=generator())
    found = attention_by_layer(model, Batch(tokens, tokens, tokens >= 0))
    first = sum(range(1, 8)) / 7
    assert found["distance"] == pytest.approx([(1 + first) / 2])
    assert found["adjacent"] == pytest.approx([(1 + 1 / 7) / 2])
    assert found["gini"] == pytest.approx([1])


def test_slope_is_that_of_the_fitted_line():
    values = np.random.default_rng(0).random(6)
    assert slope(values) == pytest.approx(np.polyfit(np.arange(6), values, 1)[0])
    assert slope(np.full(6, 3.0)) == pytest.approx(0)


def test_centre_of_gravity_lies_where_the_gain_is():
    for block in range(6):
        scores = np.where(np.arange(7) > block, 0.4, 0.0)
        assert centre_of_gravity(scores) == pytest.approx((block + 0.5) / 6)
    assert centre_of_gravity(np.linspace(0, 1, 7)) == pytest.approx(0.5)
    forgotten = np.array([0.0, 0.8, 0.1, 0.1, 0.8])  # what comes back is no gain
    assert gains(forgotten).tolist() == [0.8, 0.0, 0.0, 0.0]
    assert centre_of_gravity(forgotten) == pytest.approx(0.125)
    with pytest.raises(ValueError, match="gains"):
        centre_of_gravity(np.array([0.5, 0.4, 0.3]))


def test_examples_are_what_a_reader_would_mark():
    """Against a reading of the words that knows the sentences' shapes and not their annotation."""
    task = Grammar(length=30, attractor=0.7, reference=0.9)
    batch = task.batch(generator(), 200)
    agreement, pronoun = agreement_examples(batch), pronoun_examples(batch)
    prepositions = {"near", "behind", "beside", "above", "under"}
    nouns = {n: p for p, own in NOUNS.items() for n in own} | {
        n + "s": "they" for own in NOUNS.values() for n in own
    }
    marked, meant = [], []
    for row, tokens in enumerate(batch.inputs.tolist()):
        subject, between = None, None
        for i, token in enumerate(tokens):
            word = VOCABULARY[token]
            if word == ".":
                subject = between = None
            elif word in nouns and subject is None:
                subject = word
            elif word in prepositions:
                between = i
            elif between is not None and i == between + 3:  # preposition, determiner, place, verb
                marked.append((row, i - 1, int(nouns[subject] == "they"), subject))
                between = None
            if word in ("because", "while", "and"):
                meant.append((row, i, PRONOUNS.index(nouns[subject]), subject))
    for found, expected in ((agreement, marked), (pronoun, meant)):
        assert len(expected) > 100
        came = zip(
            found.rows.tolist(),
            found.places.tolist(),
            found.labels.tolist(),
            (VOCABULARY[t] for t in found.types.tolist()),
            strict=True,
        )
        assert sorted(came) == sorted(expected)
    assert (agreement.n_labels, pronoun.n_labels) == (2, 4)


def random_model(n_layers: int = 3) -> Decoder:
    torch.manual_seed(0)
    return Decoder(Config(vocab=9, d_model=16, n_layers=n_layers, n_heads=2)).double().eval()


def some(n: int = 30, length: int = 7, seed: int = 0) -> Batch:
    tokens = torch.randint(9, (n, length + 1), generator=generator(seed))
    return Batch(tokens[:, :-1], tokens[:, 1:], torch.ones(n, length, dtype=torch.bool))


def test_patterns_come_layer_by_layer():
    model = random_model()
    found = patterns_of(model, some())
    assert [tuple(p.shape) for p in found] == [(30, 2, 7, 7)] * 3
    assert not torch.allclose(found[0], found[1])
