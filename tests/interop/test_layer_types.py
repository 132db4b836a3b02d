"""Windows and the like, layer by layer."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from measured_transformer.interop.family import MisfitError
from measured_transformer.interop.layer_types import (
    FULL,
    SLIDING,
    by_layer,
    layer_types,
    windows,
    write_types,
)
from measured_transformer.models.config import Config, Layer

rows = st.lists(
    st.tuples(
        st.sampled_from([None, 4]), st.sampled_from([100.0, 900.0]), st.sampled_from([True, False])
    ),
    min_size=1,
    max_size=7,
)


@given(rows)
def test_each_layer_has_what_it_was_given(found: list[tuple[int | None, float, bool]]):
    assume(any(turns for _, _, turns in found))
    config = Config(
        vocab=5,
        n_layers=len(found),
        **by_layer(
            window=[one[0] for one in found],
            rotary_base=[one[1] for one in found],
            positions=["rotary" if one[2] else "none" for one in found],
        ),
    )
    for i, (window, base, turns) in enumerate(found):
        layer = config.of_layer(i)
        assert (layer.window, layer.rotary_base) == (window, base)
        assert layer.positions == ("rotary" if turns else "none")
    kinds, window = write_types(config)
    assert windows(kinds, window) == [one[0] for one in found]


def test_layers_are_told_once_a_period():
    found = by_layer(window=[4, 4, None, 4, 4, None, 4])
    assert found == {"window": None, "layers": (Layer(window=4), Layer(window=4), Layer())}


@pytest.mark.parametrize(
    ("given_types", "message"),
    [
        ([FULL], "layer_types must name one kind for each of the 2 layers, got"),
        (FULL, "layer_types must name one kind for each of the 2 layers, got 'full_attention'"),
        ([FULL, "chunked_attention"], "has 'chunked_attention' in layer_types"),
    ],
)
def test_other_layers_are_refused(given_types: object, message: str):
    with pytest.raises(ValueError, match=message):
        layer_types({"layer_types": given_types}, [FULL, FULL])


def test_a_layer_that_slides_needs_a_window():
    with pytest.raises(ValueError, match="needs a sliding_window; got sliding_window=None"):
        windows([FULL, SLIDING], None)


def test_windows_of_two_sizes_are_not_written():
    config = Config(vocab=5, layers=(Layer(window=4), Layer(window=8)))
    with pytest.raises(MisfitError, match="all windows must have one size, are 4, 8"):
        write_types(config)
