"""Claims stand in the order of their sources."""

from __future__ import annotations

import pytest
from bookpress.sphinx.outcomes import base_of, order


def test_ids_stand_in_the_order_of_the_sources() -> None:
    ids = ["IW-1.1", "DA-4.12b", "DA-4.2", "DA-10.1", "CS-9.1", "DA-4.12a", "EX-1.1", "DD-1.1"]
    ordered = [
        "CS-9.1",
        "DA-4.2",
        "DA-4.12a",
        "DA-4.12b",
        "DA-10.1",
        "DD-1.1",
        "EX-1.1",
        "IW-1.1",
    ]
    assert sorted(ids, key=order) == ordered
    with pytest.raises(ValueError, match=r"expected an id.*got 'XX 1'"):
        order("XX 1")
    assert [base_of(claim_id) for claim_id in ("DA-4.12b", "DA-4.2")] == ["DA-4.12", "DA-4.2"]
