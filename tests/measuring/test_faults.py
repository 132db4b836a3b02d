"""The faults that the nightly tests put into a copy of the library can be put there."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_settings import FAULTS

LIBRARY = Path(__file__).parents[2] / "lib/measured_transformer"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_line_that_a_fault_changes_stands_there_once(fault: str) -> None:
    file, old, new = FAULTS[fault]
    assert (LIBRARY / file).read_text("utf-8").count(old) == 1
    assert old != new
