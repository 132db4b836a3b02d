"""Scores of induction heads on patterns by hand."""

import pytest
import torch
from measured_transformer.analysis.induction import prefix_matching_score, previous_token_score


def test_the_previous_token_score_is_the_weight_on_the_token_before():
    pattern = torch.eye(5).roll(-1, 1)[None, None].expand(2, 3, 5, 5)
    assert previous_token_score(pattern).tolist() == [1.0] * 3
    assert previous_token_score(torch.eye(5)[None, None]).tolist() == [0.0]


def test_prefix_matching_counts_every_earlier_copy_and_no_other_query():
    tokens = torch.tensor([[7, 7, 3, 7, 5]])
    pattern = torch.zeros(1, 2, 5, 5)
    pattern[0, 0, 1, 1] = 1  # behind the first 7 stands the second
    pattern[0, 0, 3, [1, 2]] = 0.5
    pattern[0, 0, 4] = 0.2  # 5 is new: this row counts for nothing
    pattern[0, 1, 3, 3] = 1
    assert prefix_matching_score(pattern, tokens).tolist() == [1, 0]
    with pytest.raises(ValueError, match="no token comes twice"):
        prefix_matching_score(pattern, torch.arange(5)[None])
