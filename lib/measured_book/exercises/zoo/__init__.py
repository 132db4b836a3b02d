"""The bug zoo: real mistakes of Transformer implementations, and tests that catch them.

A student writes tests of the library, ordinary functions that `assert`. The zoo runs them on the library as it
is, where all must pass, and then once for every bug, with the library mistaken in one place. A bug is caught
when a test fails. Good tests say what must hold for *every* right implementation (no position depends on a
later one; a sequence gives the same alone and in a padded batch), and catch what their author never thought of.

>>> import torch
>>> from measured_transformer import Config, Decoder
>>> from measured_book.exercises.zoo import grade
>>> def test_nobody_sees_ahead():
...     model = Decoder(Config(vocab=10, d_model=16, n_heads=2)).eval()
...     tokens = torch.randint(10, (2, 6))
...     changed = tokens.clone()
...     changed[:, -1] = (tokens[:, -1] + 1) % 10
...     assert torch.allclose(model(tokens)[:, :-1], model(changed)[:, :-1], atol=1e-5)
>>> found = grade([test_nobody_sees_ahead], wing="attention")
>>> "one step ahead" in found.caught, "no scale" in found.caught
(True, False)

For a file of tests, each bug in a process and with a time limit of its own::

    python -m measured_book.exercises.zoo my_tests.py --wing attention
"""

from measured_book.exercises.zoo.bugs import WINGS, bugs_of
from measured_book.exercises.zoo.grading import Grade, grade, grade_file
from measured_book.exercises.zoo.infection import infected

__all__ = ["WINGS", "Grade", "bugs_of", "grade", "grade_file", "infected"]
