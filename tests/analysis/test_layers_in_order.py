"""Statistics of layers against closed forms, and on models whose circuit is known."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.grammar_probes import (
    PRONOUNS,
    agreement_examples,
    agreement_learnt,
    carrying_model,
    pronoun_examples,
    pronouns_learnt,
    word_kinds,
)
from measured_transformer.analysis.handmade import composed_model, heads_model
from measured_transformer.analysis.layers import (
    attention_by_layer,
    centre_of_gravity,
    gains,
    gini,
    lens,
    locality,
    mean_distance,
    null_distances,
    patterns_of,
    previous_mass,
    random_attention,
    relative_entropy,
    rise_without,
    slope,
    thirds,
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


def test_random_attention_has_the_locality_it_is_given():
    profile = torch.tensor([0.1, 0.6, 0.2, 0.05, 0.05], dtype=torch.float64)
    drawn = random_attention(profile, (4000, 2), generator())
    assert drawn.shape == (4000, 2, 5, 5)
    assert torch.equal(drawn.sum(-1), torch.ones(4000, 2, 5, dtype=torch.float64))
    last = drawn[:, :, 4].mean((0, 1)).flip(0)
    torch.testing.assert_close(last, profile, atol=0.02, rtol=0)
    assert bool((drawn.triu(1) == 0).all())
    seen = locality([even(5).expand(2, 3, 5, 5)])
    expected = [np.mean([1 / (i + 1) for i in range(max(1, o), 5)]) for o in range(5)]
    assert seen.tolist() == pytest.approx(expected)


def test_the_null_has_no_slope_however_steep_the_layers():
    steep = [one_hot(24, back).expand(100, 4, 24, 24) for back in (1, 3, 5, 7, 9, 11)]
    assert slope(np.array([mean_distance(p) for p in steep])) > 1
    slopes = [slope(null_distances(steep, generator(seed))) for seed in range(20)]
    assert abs(np.mean(slopes)) < 0.01
    assert max(map(abs, slopes)) < 0.06
    pooled = np.mean([mean_distance(p) for p in steep])
    drawn = random_attention(locality(steep), (100, 4), generator())
    assert mean_distance(drawn) == pytest.approx(pooled, rel=0.35)


def test_slope_is_that_of_the_fitted_line():
    values = np.random.default_rng(0).random(6)
    assert slope(values) == pytest.approx(np.polyfit(np.arange(6), values, 1)[0])
    assert slope(np.full(6, 3.0)) == pytest.approx(0)


def test_thirds_and_their_error():
    assert thirds(np.arange(6.0)) == (0.5, 2.5, 4.5)
    with pytest.raises(ValueError, match="three divides"):
        thirds(np.arange(4.0))


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


def test_only_the_layer_that_does_something_is_missed():
    """In the hand-made pair both layers are needed; a layer that writes nothing costs nothing."""
    model = composed_model("v", vocab=9, length=8)
    whole = torch.randint(9, (60, 9), generator=generator())
    tokens = whole[:, 2:]
    batch = Batch(tokens, whole[:, :-2], torch.arange(7).expand_as(tokens) > 1)
    model.unembedding.weight.data.mul_(8)  # hand-made logits are between 0 and 1
    missed = rise_without(model, batch, some(60, 7, 1))
    assert missed.min() > 1
    lazy = carrying_model("word", vocab=9, length=8)
    assert rise_without(lazy, some(), some(seed=1))[0] == 0


def test_a_constant_is_not_missed():
    model = random_model(1)
    for name, parameter in model.named_parameters():
        if "attention.output.weight" in name or "feedforward.down.weight" in name:
            parameter.data.zero_()
        if "feedforward.down.bias" in name:
            parameter.data.fill_(1.0)  # the block writes the same at every place
    assert rise_without(model, some(), some(seed=1)) == pytest.approx([0], abs=1e-12)


def test_the_lens_ends_with_the_model_and_waits_for_the_block_that_writes():
    model = random_model()
    batch = some()
    found = lens(model, batch, torch.arange(9))
    assert found.agreement.shape == (4,)
    assert found.agreement[-1] == found.kinds[-1] == 1
    assert np.array_equal(found.kinds, found.agreement)  # each word its own kind
    logits = model(batch.inputs).detach()
    own = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    assert found.loss[-1] == pytest.approx(float(own))
    pair = composed_model("v", vocab=9, length=8)
    early = lens(pair, batch, torch.arange(9) // 3)
    assert early.agreement[:2].max() < 0.4  # what the logits read is written in the second block
    assert early.agreement[2] == 1
    assert early.kinds[1] > early.agreement[1]


def test_patterns_come_layer_by_layer():
    model = random_model()
    found = patterns_of(model, some())
    assert [tuple(p.shape) for p in found] == [(30, 2, 7, 7)] * 3
    assert not torch.allclose(found[0], found[1])


def test_carrying_models_carry():
    with pytest.raises(ValueError, match="'word' or a 'class'"):
        carrying_model("letter", vocab=4, length=4)


class Knowing(Decoder):
    """Says what it is told to say."""

    def __init__(self, said: torch.Tensor) -> None:
        super().__init__(Config(vocab=len(VOCABULARY), d_model=4, n_layers=1, n_heads=1))
        self.said = said

    def forward(self, tokens, **_):
        return self.said.expand(*tokens.shape, -1) if self.said.ndim == 1 else self.said


def test_what_is_learnt_by_one_who_knows_and_one_who_does_not():
    task = Grammar(length=30, attractor=0.7, reference=0.9)
    batch = task.batch(generator(), 300)
    size = len(VOCABULARY)
    knows = Knowing(60.0 * torch.nn.functional.one_hot(batch.targets, size))
    assert agreement_learnt(knows, batch) == pytest.approx(1)
    assert pronouns_learnt(knows, batch) == pytest.approx(1)
    always = Knowing(torch.tensor([float(w in ("sleep", "they")) * 60 for w in VOCABULARY]))
    assert 0.4 < agreement_learnt(always, batch) < 0.6  # half of the subjects are plural
    plural = pronouns_learnt(always, batch)
    assert plural > 0.5  # "they" has a noun to mean whenever one of the two is plural
    even = Knowing(torch.zeros(size))
    assert agreement_learnt(even, batch) < 0.6
    assert 0.25 <= pronouns_learnt(even, batch) <= 0.5  # one or two of four


def test_kinds_part_the_numbers_of_nouns():
    kinds = word_kinds(Grammar(length=40).batch(generator(), 400))
    of = {word: int(kind) for word, kind in zip(VOCABULARY, kinds, strict=True)}
    assert of["king"] == of["robot"] != of["kings"] == of["robots"]
    assert len({of["king"], of["sees"], of["see"], of["near"], of["."], of["old"], of["they"]}) == 7
    assert min(of.values()) > 0
