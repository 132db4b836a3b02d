"""Examples, interventions and lenses on models and states whose content is known."""

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.probes_and_lenses import measure
from measured_book.rooms.probes_and_lenses.measure import (
    SENTENCE_CONFIG,
    SENTENCES,
    STATES,
    TAPS,
    Case,
    erasing,
    kl,
    through,
    verbs,
    within,
)
from measured_transformer.analysis.erasure import leace
from measured_transformer.analysis.lens import depths
from measured_transformer.tasks.grammar import VOCABULARY
from measured_transformer.training.loop import make_model

RESULTS = load_results("probes_and_lenses")


def tiny_model():
    config = SENTENCE_CONFIG.replace(n_layers=len(STATES) - 1, d_model=16, d_ff=16, n_heads=2)
    return make_model(config, causal=True, seed=0).eval()


def test_verbs_are_asked_for_behind_a_place_and_have_both_numbers() -> None:
    found = verbs(0, "probes", 60)
    rows, places = found.where
    assert len(rows.unique()) == len(found.batch.inputs)  # sequences without a verb are left out
    for row, place, subject, last in zip(
        rows.tolist(), places.tolist(), found.labels["subject"].tolist(), found.labels["place"].tolist(),
        strict=True,
    ):  # fmt: skip
        verb = VOCABULARY[int(found.batch.targets[row, place])]
        assert (not verb.endswith("s")) == bool(subject)
        word = VOCABULARY[int(found.batch.inputs[row, place])]
        assert word.endswith("s") == bool(last)
    assert torch.equal(found.types["place"], found.batch.inputs[found.where])


def test_agreement_is_right_where_the_verbs_of_the_subject_are_likelier() -> None:
    found = verbs(1, "evaluation", 40)
    sure = torch.full((*found.batch.inputs.shape, SENTENCES.vocab), -20.0)
    sure.scatter_(-1, found.batch.targets[..., None], 0.0)
    assert found.right(sure) == 1
    turned = torch.full_like(sure, -20.0)
    other = {0: VOCABULARY.index("wait"), 1: VOCABULARY.index("waits")}
    for row, place, label in zip(*found.where, found.labels["subject"], strict=True):
        turned[row, place, other[int(label)]] = 0.0
    assert found.right(turned) == 0


@pytest.mark.parametrize("state", STATES)
def test_an_eraser_acts_on_the_state_that_is_named_and_on_no_other_word(state: int) -> None:
    model, found = tiny_model(), verbs(0, "probes", 40)
    states = depths(model, found.batch)
    case_states = states[state][found.where]
    erase = leace(case_states, found.labels["subject"], n_labels=2)
    logits = within(state, model, erase, found.where, found.batch)
    with torch.no_grad():
        whole = model(found.batch.inputs)
    row = int(found.where[0][0])
    first = int(found.where[1][found.where[0] == row].min())
    torch.testing.assert_close(logits[row, :first], whole[row, :first])
    assert not torch.allclose(logits[row, first], whole[row, first])
    if state == STATES[-1]:  # what is left is read by the norm and the unembedding alone
        with torch.no_grad():
            read = model.unembed(erase(case_states)[:, None])[:, 0]
        torch.testing.assert_close(logits[found.where], read, atol=1e-5, rtol=1e-4)
    assert len(TAPS) == len(STATES)


def _plain_case() -> Case:
    draws = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (200,), generator=draws)
    states = torch.randn(200, 5, generator=draws)
    states[:, 0] += 6 * labels
    return Case(states[:100], labels[:100], states[100:], labels[100:], 2)


def test_a_case_is_read_and_erased() -> None:
    case = _plain_case()
    assert case.read() > 0.95
    assert case.erased(case.eraser("leace")).read() < 0.7
    assert case.erased(case.eraser("drawn", 3)).read() > 0.9
    kept, far = erasing(case, lambda erase: case.erased(erase).read(), 0)
    assert kept.shape == far.shape == (3,)
    assert kept[0] < 0.7 < kept[2]
    assert far[0] > far[2]


def test_a_lens_at_the_last_state_is_the_model() -> None:
    model = tiny_model()
    batch = SENTENCES.batch(torch.Generator().manual_seed(0), 8)
    with torch.no_grad():
        read = through(model, depths(model, batch))
        final = model(batch.inputs).log_softmax(-1)
    torch.testing.assert_close(read[-1], final, atol=1e-5, rtol=1e-4)
    assert kl(final, read[-1]).abs().max() < 1e-5
    expected = torch.nn.functional.kl_div(read[0], final, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(kl(final, read[0]), expected)


def test_what_a_linear_probe_has_left_after_leace_is_chance() -> None:
    for what in measure.WHATS:
        left = RESULTS["sentences"].left.sel(what=what)
        assert float((left - RESULTS["sentences"].chance.sel(what=what)).max()) < 0.02
    assert float(RESULTS["positions"].left.max()) < 0.2


def test_fresh_sentences_are_other_seeds_of_the_same_measurement(monkeypatch) -> None:
    asked = []
    names = ("accuracy", "control", "bits", "control_bits", "kept")

    def sentences(seed, runs):
        asked.append((seed, runs))
        return dict.fromkeys(names, seed)

    monkeypatch.setattr(measure, "sentences", sentences)
    found = measure.sentences_afresh(3, {})
    assert asked == [(4003, {})]
    assert found == dict.fromkeys(names[:-1], 4003)
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    (job,) = measure.sentences_afresh.trainings(3).values()
    assert job.seed == 4003
