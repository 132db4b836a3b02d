"""Layers in order: rows by hand, layers without an order, and models that are known."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.layers.measure import (
    CONFIG,
    IN_THIRDS,
    LAYERS,
    agreement_learnt,
    carrying_model,
    evened,
    first_mass,
    lens,
    locality,
    null_distances,
    pronouns_learnt,
    random_attention,
    rise_when_even,
    rise_without,
    rise_without_all,
    row_statistics,
    thirds,
    word_kinds,
)
from measured_book.rooms.layers.reading import centres, climb, falls
from measured_transformer.analysis.handmade import composed_model
from measured_transformer.analysis.layers import (
    mean_distance,
    slope,
)
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.grammar import VOCABULARY, Grammar
from measured_transformer.tasks.task import Batch
from xarray import DataArray, Dataset

RESULTS = load_results("layers")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def even(n: int) -> torch.Tensor:
    return torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]


def one_hot(n: int, back: int) -> torch.Tensor:
    place = torch.arange(n)
    return torch.nn.functional.one_hot((place - back).clamp_min(0), n).float()


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


def test_thirds_and_their_error():
    assert thirds(np.arange(6.0)) == (0.5, 2.5, 4.5)
    with pytest.raises(ValueError, match="three divides"):
        thirds(np.arange(4.0))


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


def test_rows_by_hand():
    shared = row_statistics([0.0, 0.5, 0.0, 0.0, 0.0, 0.5, 0.0])
    assert shared["distance"] == pytest.approx(3)
    assert shared["entropy"] == pytest.approx(np.log(2) / np.log(7), abs=1e-5)
    flat = row_statistics([1 / 7] * 7)
    assert flat["distance"] == pytest.approx(3)
    assert flat["entropy"] == pytest.approx(1)
    assert flat["gini"] == pytest.approx(0, abs=1e-6)


def test_weight_on_the_first_token():
    assert first_mass(one_hot(5, 4)) == 1
    assert first_mass(even(4)) == pytest.approx(np.mean([1 / 2, 1 / 3, 1 / 4]))


def test_an_even_pattern_looks_a_quarter_back():
    pattern = one_hot(24, 1).expand(3, 2, 24, 24)
    flat = evened(pattern)
    assert flat.shape == pattern.shape
    torch.testing.assert_close(flat[1, 1], even(24))
    assert mean_distance(flat) == pytest.approx(6)


def test_a_head_is_missed_only_where_it_was_not_even():
    """Of the hand-made pair both layers look somewhere; an untrained head with zero queries looks evenly."""
    model = random_model(2)
    batch = some()
    heads = [rise_when_even(model, batch, [0], h) for h in range(2)]
    assert rise_when_even(model, batch, [0]) != pytest.approx(0, abs=1e-6)
    assert all(abs(rise) < abs(rise_when_even(model, batch, [0])) + 0.1 for rise in heads)
    for name, parameter in model.named_parameters():
        if "attention.query" in name:
            parameter.data.zero_()
    assert rise_when_even(model, batch, [0, 1]) == pytest.approx(0, abs=1e-9)
    pair = composed_model("v", vocab=9, length=8)
    pair.unembedding.weight.data.mul_(8)
    whole = torch.randint(9, (60, 9), generator=generator())
    asked = Batch(whole[:, 2:], whole[:, :-2], torch.arange(7).expand(60, 7) > 1)
    assert min(rise_when_even(pair, asked, [i]) for i in range(2)) > 0.3


def test_groups_of_layers_are_taken_away_together():
    model = random_model(3)
    batch, other = some(), some(seed=1)
    alone = rise_without(model, batch, other)
    found = rise_without_all(model, batch, other, [[0], [1], [2], [0, 1, 2]])
    assert found[:3] == pytest.approx(alone)
    assert found[3] != pytest.approx(alone.sum(), abs=1e-6)


def test_a_climb_is_along_the_whole_stack():
    values = DataArray(
        [[np.arange(12.0), np.zeros(12)]], dims=("seed", "kind", "layer"),
        coords={"layer": list(LAYERS)},
    )  # fmt: skip
    looking = Dataset({"distance": values, "entropy": values})
    assert climb(looking, of="distance").values.tolist() == [[pytest.approx(11), 0]]
    assert falls(looking).values.tolist() == [[5.5 - 9.5, 0]]


def test_centres_are_those_of_selectivity():
    gained = np.zeros(13)
    gained[6:] = 0.4  # all in layer 6
    accuracy = DataArray([[0.5 + gained]], dims=("seed", "what", "state"))
    found = centres(Dataset({"accuracy": accuracy, "control": xr_half(accuracy)}))
    assert found.values.tolist() == [[pytest.approx(5.5 / 12)]]


def xr_half(like: DataArray) -> DataArray:
    return like.copy(data=np.full(like.shape, 0.5))


def test_thirds_are_those_of_the_stack():
    assert sum(IN_THIRDS, ()) == tuple(range(CONFIG.n_layers))
    assert [len(one) for one in IN_THIRDS] == [4, 4, 4]


def test_the_model_of_the_last_state_is_the_model():
    doing = RESULTS["doing"]
    last = doing.isel(state=-1)
    assert float(last.words.min()) == float(last.word_kinds.min()) == 1
    looking = RESULTS["looking"]
    assert abs(float(looking.distance.sel(kind="untrained").mean()) - 6) < 0.5
