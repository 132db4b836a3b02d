"""What is put in comes from the exchanged sentence, and its effect is that of patching in the library."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.rooms.estimated_patches import figures, measure
from measured_book.rooms.estimated_patches.measure import BLOCKS, PARTS, drawn
from measured_book.smollm2.indirect_objects import FORMS, asked
from measured_book.smollm2.model import is_installed, smollm2
from measured_transformer.analysis.attribution_patching import compare_patching
from measured_transformer.analysis.patching import patched

RESULT = load_result("estimated_patches", "estimated")
needs_model = pytest.mark.skipif(not is_installed(), reason="the model is not installed")


@needs_model
def test_sentences_differ_in_the_name_that_comes_again_alone() -> None:
    prompts = asked(10, "judging", 1)[0]
    source, last = measure.exchanged(prompts)
    rows = torch.arange(len(source))
    assert ((source != prompts.tokens).sum(1) == 1).all()
    assert (prompts.tokens[rows, last] == prompts.wrong).all()
    assert (source[rows, last] == prompts.right).all()
    assert (source == prompts.right[:, None]).sum(1).eq(2).all()


@needs_model
def test_a_draw_has_prompts_of_two_forms_and_all_forms_have_their_turn() -> None:
    seen = {tuple(drawn(seed)[0].form.tolist()) for seed in range(len(FORMS["judging"]))}
    assert all(len(set(forms)) == measure.ROWS for forms in seen)
    assert {form for forms in seen for form in forms} == set(range(len(FORMS["judging"])))


@needs_model
def test_effects_are_those_of_the_librarys_patching() -> None:
    model, (prompts, heads) = smollm2().model, drawn(3)
    source, last = measure.exchanged(prompts)
    few = torch.tensor([27, 28, 29])
    found = measure.effects(prompts, heads)[:, few]
    before = measure.gaps_of(model(prompts.tokens), prompts)
    for i, part in enumerate(PARTS):
        for j, block in enumerate(few.tolist()):
            one = measure.component_of(part, block, int(heads[block]))
            for row in range(len(source)):
                mine = measure.Asked(
                    *(getattr(prompts, name)[[row]] for name in prompts.__dataclass_fields__)
                )
                wanted = patched(
                    model, prompts.tokens[[row]], source[[row]], one,
                    lambda logits, mine=mine: measure.gaps_of(logits, mine),
                    positions=int(last[row]) if part == "stream" else None,
                ) - before[[row]]  # fmt: skip
                torch.testing.assert_close(found[i, j, [row]], wanted, atol=2e-4, rtol=1e-3)


@needs_model
def test_estimates_are_those_of_the_library_where_each_part_is_put_in() -> None:
    model, (prompts, heads) = smollm2().model, drawn(3)
    source, last = measure.exchanged(prompts)
    found = measure.estimates(prompts, heads, points=1)[:, 20, 0]
    first = measure.Asked(*(getattr(prompts, name)[:1] for name in prompts.__dataclass_fields__))
    for i, part in enumerate(PARTS):
        wanted = compare_patching(
            model, prompts.tokens[:1], source[:1], measure.component_of(part, 20, int(heads[20])),
            lambda logits: measure.gaps_of(logits, first),
            positions=int(last[0]) if part == "stream" else None,
        ).estimated[0, 0]  # fmt: skip
        torch.testing.assert_close(found[i], wanted, atol=2e-4, rtol=1e-3)


def test_agreement_tells_a_shape_from_a_size() -> None:
    right = torch.tensor([[[1.0, -1.0], [2.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]]])
    guessed = torch.stack([2 * right[0], right[1]])
    correlations, fits = measure.agreement(right, guessed)
    assert correlations == pytest.approx([1, 1])
    assert fits == pytest.approx([0, 1])


def test_each_block_has_a_mark_for_each_way_and_the_line_of_agreement() -> None:
    panels = figures.plot_estimated(RESULT).figure.axes
    assert [len(panel.lines) for panel in panels] == [len(RESULT.points) + 1] * len(PARTS)
    dots = panels[0].lines[0].get_xdata()
    assert len(dots) == RESULT.sizes["seed"] * len(BLOCKS)


def test_kept_correlations_are_correlations() -> None:
    assert (abs(RESULT.correlation) <= 1).all()
    assert (RESULT.fit <= 1).all()
