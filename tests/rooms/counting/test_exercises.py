"""Right answers of other forms than the page's solution, which the exercises on counting accept as well."""

import math
from fractions import Fraction

import pytest
import torch
from measured_book.exercises import check


@pytest.mark.parametrize(
    "equal_width",
    [
        lambda d, m: 2 * m // 3,
        lambda d, m: math.ceil(2 * m / 3),
        lambda d, m: round(2 * m / 3),
        lambda d, m: 2 * m / 3,
        lambda d, m: Fraction(2 * m, 3),
        lambda d, m: torch.tensor(2 * m / 3),
    ],
)
def test_two_thirds_may_be_rounded_up_down_or_not_at_all(equal_width):
    result = check("counting.equal_width", equal_width)
    assert result.passed, result
