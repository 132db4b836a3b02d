"""A choice of positions, heads, rows or layers means the same wherever it is made."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.ablation import Component, ablated
from measured_transformer.analysis.attribution import answer_logit, flow
from measured_transformer.analysis.circuits import compositions, head_circuits, module_circuits
from measured_transformer.analysis.fact_edits import changes_for, finish, look_inside, trace
from measured_transformer.analysis.patching import patched
from measured_transformer.internals.at import at
from measured_transformer.internals.places import select, select_one
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.task import Batch
from measured_transformer.viewer.attention import attention_viewer

MASK = [True, False, False, True]
SAME = [  # choices among four, each with what it means
    *[(form(MASK), [0, 3]) for form in (list, tuple, np.array, torch.tensor)],
    *[(form([False] * 4), []) for form in (list, np.array, torch.tensor)],
    *[(form(-1), [3]) for form in (int, np.int64, np.int32, np.array, torch.tensor)],
    *[(form([2, -4]), [2, 0]) for form in (list, tuple, np.array, torch.tensor)],
    ([np.int64(1), torch.tensor(2)], [1, 2]),
    (range(1, 3), [1, 2]),
    (slice(None), [0, 1, 2, 3]),
    (slice(None, None, -2), [3, 1]),
    (slice(5, None), []),
    (slice(np.int64(1), None), [1, 2, 3]),
    (None, [0, 1, 2, 3]),
    ([], []),
    (np.array([0, 1], dtype=np.uint8), [0, 1]),
]
WRONG = [
    4,
    -5,
    np.int64(4),
    torch.tensor(-5),
    [0, 4],
    True,
    np.True_,
    torch.tensor(True),
    [True, False],
    [True] * 5,
    [True, 1, 0, 0],
    torch.tensor([True]),
    1.0,
    [0.5],
    np.array([0.0]),
    torch.zeros(4),
    "01",
    ["0"],
    [[0, 1]],
    np.eye(4, dtype=bool),
    slice(0.5, None),
    slice(None, None, 0),
]


def made(**changes):
    torch.manual_seed(0)
    config = Config(vocab=9, d_model=16, n_layers=2, n_heads=4, d_ff=20).replace(**changes)
    return Decoder(config).double().eval()


@pytest.mark.parametrize(("which", "numbers"), SAME, ids=lambda x: repr(x))
def test_every_form_of_a_choice_means_its_numbers(which, numbers):
    found = select("heads", which, 4)
    assert found.dtype == torch.int64
    assert found.tolist() == numbers


@pytest.mark.parametrize("which", WRONG, ids=lambda x: repr(x))
@pytest.mark.parametrize("name", ["heads", "rows"])
def test_what_means_nothing_is_refused_by_name_in_one_sentence(unhooked, which, name):
    with pytest.raises(ValueError, match=name) as error:
        select(name, which, 4)
    assert "\n" not in str(error.value).replace("\n ", "")
    if not isinstance(which, slice):
        with pytest.raises(ValueError, match=name):
            select_one(name, which, 4)


@pytest.mark.parametrize("which", [[0], MASK, slice(1), "0", None, np.array([1, 2])])
def test_one_place_is_one_number(unhooked, which):
    with pytest.raises(ValueError, match="layer"):
        select_one("layer", which, 4)


@pytest.mark.parametrize(("which", "numbers"), SAME, ids=lambda x: repr(x))
@pytest.mark.parametrize("axis", ["rows", "heads", "positions"])
def test_at_takes_every_form_along_every_axis(axis, which, numbers):
    value = torch.ones(4, 4, 4, 1)
    dims = [d for d in range(3) if d != ("rows", "heads", "positions").index(axis)]
    zero = (at(0.0, **{axis: which})(value)[..., 0] == 0).all(dims)
    assert zero.nonzero().flatten().tolist() == sorted(numbers)


@pytest.mark.parametrize("which", WRONG, ids=lambda x: repr(x))
@pytest.mark.parametrize("axis", ["rows", "heads", "positions"])
def test_at_refuses_on_every_axis(unhooked, axis, which):
    with pytest.raises(ValueError, match=axis):
        at(0.0, **{axis: which})(torch.ones(4, 4, 4, 1))


@pytest.mark.parametrize(("which", "numbers"), SAME, ids=lambda x: repr(x))
def test_patching_takes_every_form(which, numbers):
    model, target = made(), answer_logit(-1, torch.tensor([1, 2]))
    clean, other = torch.randint(9, (2, 2, 4), generator=torch.Generator().manual_seed(1))
    parts = [Component("blocks.0.attention.mixed", 1)]
    found = patched(model, clean, other, parts, target, positions=which)
    assert torch.equal(found, patched(model, clean, other, parts, target, positions=numbers))
    if not numbers:
        torch.testing.assert_close(found, target(model(clean)))


@pytest.mark.parametrize("which", WRONG, ids=lambda x: repr(x))
def test_patching_refuses(unhooked, which):
    tokens, target = torch.zeros(2, 4, dtype=torch.int64), answer_logit(-1, torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="positions"):
        patched(made(), tokens, tokens, [Component("embedding")], target, positions=which)


# Single heads, layers, positions: every instrument that takes one ---------------------------------

MODEL = made()
SHARED = made(n_kv_heads=2)
TOKENS = torch.randint(9, (3, 4), generator=torch.Generator().manual_seed(0))
ANSWERS = torch.tensor([1, 2, 3])
BATCH = Batch(TOKENS, TOKENS, torch.ones_like(TOKENS, dtype=torch.bool))
EVEN = torch.full((1, 1, 4, 4), 0.25)


def silenced(model, tap, head, how="mean"):
    with ablated(model, [Component(tap, head)], how, reference=BATCH):
        return model(TOKENS)


def put(model, tap, head):
    target = answer_logit(-1, ANSWERS)
    return patched(model, TOKENS, TOKENS.roll(1, 0), [Component(tap, head)], target)


def added(position):
    inside = look_inside(MODEL, TOKENS)
    return changes_for(MODEL, inside, ANSWERS, block=0, position=position, steps=1)


def viewed(head):
    return attention_viewer(EVEN.expand(2, 4, 4, 4), list("abcd"), start=(0, 1, head))


ONE = {  # how many there are, and the instrument as a function of the number
    "answer_logit": (4, lambda i: answer_logit(i, ANSWERS)(MODEL(TOKENS))),
    "flow": (4, lambda i: flow(EVEN, i)),
    "head": (4, lambda i: head_circuits(MODEL, 0, i)[1].form.left),
    "layer": (2, lambda i: head_circuits(MODEL, i, 0)[1].form.left),
    "module": (4, lambda i: module_circuits(MODEL.blocks[0].attention, i)[1].form.left),
    "ablated": (4, lambda i: silenced(MODEL, "blocks.0.attention.mixed", i)),
    "zero": (4, lambda i: silenced(MODEL, "blocks.0.attention.mixed", i, "zero")),
    "ablated key": (2, lambda i: silenced(SHARED, "blocks.0.attention.keys", i)),
    "patched": (4, lambda i: put(MODEL, "blocks.0.attention.mixed", i)),
    "patched key": (2, lambda i: put(SHARED, "blocks.0.attention.keys", i)),
    "block": (2, lambda i: finish(MODEL, look_inside(MODEL, TOKENS).after[0], i)),
    "position": (4, added),
    "subject": (4, lambda i: trace(MODEL, TOKENS, ANSWERS, subject=i, seed=0, draws=1).spoilt),
    "viewer": (4, lambda i: viewed(i)._repr_html_()),
}


@pytest.mark.parametrize("name", ONE)
def test_one_number_in_every_form(unhooked, name):
    size, instrument = ONE[name]
    for number in range(size):
        wanted = instrument(number)
        for form in (np.int64(number), torch.tensor(number), number - size):
            found = instrument(form)
            assert found == wanted if isinstance(wanted, str) else torch.equal(found, wanted)
    first, last = instrument(0), instrument(size - 1)
    if name != "flow":  # of even weights every query has the same
        assert first != last if isinstance(first, str) else not torch.equal(first, last)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("wrong", ["size", "below", True, 0.5])
def test_one_number_that_is_not_there(unhooked, name, wrong):
    size, instrument = ONE[name]
    number = (
        {"size": size, "below": -size - 1}.get(wrong, wrong) if isinstance(wrong, str) else wrong
    )
    with pytest.raises(ValueError, match=r"must lie in|whole number|by number or|counted from"):
        instrument(number)


def test_layers_are_compared_by_number_however_they_are_told(unhooked):
    wanted = compositions(MODEL, 0, 1)
    assert torch.equal(compositions(MODEL, np.int64(-2), -1).q, wanted.q)
    with pytest.raises(ValueError, match="earlier < later"):
        compositions(MODEL, 1, -2)
