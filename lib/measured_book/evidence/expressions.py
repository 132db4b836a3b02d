r"""A small language for what is read from results: beside a rule in ``claims.toml``, and in the text of a page.

An expression names a variable of a result, chooses along its axes, computes, and reduces::

    border.steps[placement=pre, depth=12]|log|best(rate)
    log(final.steps[schedule=root]) - log(final.steps[schedule=constant])
    annealing.loss[schedule=(linear, stairs)]|skip(at, 4)|mean(schedule, at)

Values keep the names of their axes (they are `xarray.DataArray`), so that arithmetic pairs them by name: the
difference of two arms has one value a seed. The grammar, loosest first::

    expression  one comparison, then any number of "|" steps: a function applied to all that stands before it
    step        name, or name(argument, ...)
    comparison  sum, or sum < sum; also <=, >, >=, ==, != : true or false for each value
    sum         products joined by + and -
    product     powers joined by * and /
    power       a signed value, or one ** another
    value       a number, (expression), name(argument, ...), or a path; each may be followed by [choices]
    path        result.variable; the name of a value that the room declares; CS-1.3.effect, a claim's statistic;
                LIMIT or TASK.bag_loss, a constant of the room's measure.py, or a number that one gives
    choices     axis=label, axis=(label, label), axis=low..high (both ends included), axis!=label,
                axis<number; also <=, >, >=

``x|f(a)`` and ``f(x, a)`` are the same; in a table of a page, where ``|`` ends a cell, only the second will do.
What an argument is (words such as the name of an axis, a number, or an expression of its own) depends on the
function: all of them stand in `evidence.functions`. A label that holds one of ``, ] ) "`` is put in double
quotes: ``race.loss[shape="exponential, 5"]``.

Nothing here runs code that an expression contains: it is parsed, and only the functions of the table and
the numbers that a room declares are called.

>>> from xarray import DataArray, Dataset
>>> steps = DataArray([[10.0, 40.0], [20.0, 60.0]], {"seed": [0, 1], "arm": ["pre", "post"]})
>>> scope = Scope({"race": Dataset({"steps": steps})})
>>> scope.evaluate("race.steps[arm=post] / race.steps[arm=pre]").values.tolist()
[4.0, 3.0]
>>> float(scope.evaluate("race.steps|log|mean(seed)|max|exp"))
48.98979485566356
>>> scope.evaluate("race.steps[arm=past]")
Traceback (most recent call last):
    ...
measured_book.evidence.grammar.ExpressionError: race.steps has no arm 'past'; the nearest is post
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.evidence.functions import FUNCTIONS, Function
from measured_book.evidence.grammar import (
    Call,
    Choice,
    ExpressionError,
    Node,
    Number,
    Operation,
    Path,
    Selection,
    in_words,
    nearest,
    parse,
    unquoted,
)

__all__ = ["ExpressionError", "Scope", "names_in"]

_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


# Meaning ------------------------------------------------------------------------------------------


@dataclass
class Scope:
    """What an expression may name.

    Attributes:
        results: by the names of their measurements.
        declared: expressions by the names that the room gives them.
        numbers: functions of the words between parentheses, by name: what the room computes in Python.
        statistics: of claims, such as ``CS-1.3.effect``.
        arguments: name of a number -> names of the words that it asks for.
        constants: names in capitals, and what they stand for: numbers, or objects that give numbers as
            attributes or as methods without arguments, such as ``TASK.bag_loss``.
        written_at: file and line of the declared expressions, by name, for errors.
    """

    results: Mapping[str, Dataset]
    declared: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    statistics: Callable[[str], Any] | None = None
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    written_at: Mapping[str, str] = field(default_factory=dict)
    _known: dict[str, DataArray] = field(default_factory=dict)
    _under_way: list[str] = field(default_factory=list)

    def evaluate(self, text: str) -> DataArray:
        """The values of an expression, with named axes.

        Raises:
            ExpressionError: it breaks the grammar, or names a result, variable, axis, label or function that is
                not there.
        """
        return _array(self._value(parse(text)), text)

    def _value(self, node: Node) -> Any:
        match node:
            case Number():
                return node.value
            case Path():
                return self._path(node)
            case Selection():
                values = _array(self._value(node.of), in_words(node.of))
                for choice in node.choices:
                    values = _chosen(values, choice, in_words(node.of))
                return values
            case Operation():
                return self._operation(node)
            case Call():
                return self._call(node)

    def _path(self, path: Path) -> Any:
        if path.statistic:
            if self.statistics is None:
                raise ExpressionError(f"expected values of results, got {path}, a claim's")
            return self.statistics(path.name)
        if path.is_constant:
            return self._constant(path)
        if path.variable:
            if path.name not in self.results:
                raise ExpressionError(
                    f"no result {path.name!r}; {nearest(path.name, self.results)}"
                )
            found = self.results[path.name]
            if path.variable in found.sizes and path.variable not in found.data_vars:
                return found[path.variable]
            if path.variable not in found.data_vars:
                raise ExpressionError(
                    f"{path.name} has no variable {path.variable!r}; "
                    f"{nearest(path.variable, found.data_vars)}"
                )
            return found[path.variable]
        return self._named(path.name)

    def _constant(self, path: Path) -> Any:
        if path.name not in self.constants:
            known = [name for name in self.constants if name.isupper()]
            raise ExpressionError(f"no constant {path.name!r}; {nearest(path.name, known)}")
        found = self.constants[path.name]
        if not path.variable:
            return found
        known = [name for name in dir(found) if not name.startswith("_")]
        if path.variable not in known:
            raise ExpressionError(
                f"{path.name} has no {path.variable!r}; {nearest(path.variable, known)}"
            )
        value = getattr(found, path.variable)
        if not callable(value):
            return value
        needed = [
            name
            for name, one in inspect.signature(value).parameters.items()
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        ]
        if needed:
            raise ExpressionError(
                f"expected a number or a method without arguments from {path}, got a method of "
                f"{', '.join(needed)}"
            )
        return value()

    def _named(self, name: str) -> Any:
        if name in self.declared:
            if name not in self._known:
                if name in self._under_way:
                    ring = " -> ".join([*self._under_way, name])
                    raise ExpressionError(f"{name} is declared by itself: {ring}")
                self._under_way.append(name)
                try:
                    self._known[name] = self.evaluate(self.declared[name])
                except ExpressionError as error:
                    if name not in self.written_at:
                        raise
                    raise ExpressionError(f"{name} ({self.written_at[name]}): {error}") from None
                finally:
                    self._under_way.pop()
            return self._known[name]
        if name in self.numbers and not self.arguments.get(name):
            return self._number(name, ())
        if name in self.numbers:
            asked = f"{name}({', '.join(self.arguments[name])})"
            raise ExpressionError(f"expected the arguments of {asked}, got none")
        if name in self.results:
            variables = ", ".join(map(str, self.results[name].data_vars))
            raise ExpressionError(f"expected a variable of {name} ({variables}), got none")
        known = [*self.declared, *self.numbers, *self.results]
        raise ExpressionError(f"no value {name!r}; {nearest(name, known)}")

    def _number(self, name: str, words: Sequence[str]) -> Any:
        try:
            return self.numbers[name](*words)
        except (KeyError, IndexError, ValueError) as error:
            told = str(error.args[0]) if error.args else "a name that is not there"
            told = told.partition(". Try setting")[0]  # what xarray advises is meant for callers
            raise ExpressionError(f"{name}({', '.join(words)}): {told}") from error

    def _operation(self, node: Operation) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        if isinstance(left, DataArray) and isinstance(right, DataArray):
            _paired(left, right, in_words(node.left), in_words(node.right))
        if node.sign in "+-*/":  # true and false count as one and zero
            left, right = (_counted(one) for one in (left, right))
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                return _OPERATIONS[node.sign](left, right)
        except TypeError:
            raise ExpressionError(
                f"expected numbers on both sides of {node.sign}, got {in_words(node)}"
            ) from None
        except ZeroDivisionError as error:
            raise ExpressionError(f"{in_words(node)}: {error}") from None

    def _call(self, node: Call) -> Any:
        if node.first is None and self.arguments.get(node.name):
            return self._number(node.name, [unquoted(word) for word in node.arguments])
        if node.name not in FUNCTIONS:
            if node.name in self.numbers or node.name in self.declared:
                raise ExpressionError(
                    f"{node.name} takes no arguments; name it without parentheses"
                )
            known = [*FUNCTIONS, *([] if node.first else self.arguments)]
            raise ExpressionError(f"no function {node.name!r}; {nearest(node.name, known)}")
        function = FUNCTIONS[node.name]
        first: list[Any]
        if node.first is not None:
            first, rest = [self._value(node.first)], node.arguments
        elif node.arguments:
            first, rest = [self._value(parse(node.arguments[0]))], node.arguments[1:]
        else:
            raise ExpressionError(f"expected {function.call}, got no values")
        values = _array(first[0], node.name)
        given = list(self._arguments(function, rest, values))
        try:
            return function.compute(values, *given)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            told = error.args[0] if error.args else type(error).__name__
            raise ExpressionError(f"{function.call}: {told}") from error

    def _arguments(
        self, function: Function, words: Sequence[str], values: DataArray
    ) -> Iterator[Any]:
        kinds = function.kinds(len(words))
        for kind, word in zip(kinds, words, strict=True):
            if kind == "axis":
                if word not in values.dims:
                    axes = [str(axis) for axis in values.dims]
                    raise ExpressionError(
                        f"{function.call}: no axis {word!r}; {nearest(word, axes)}"
                    )
                yield word
            elif kind == "number":
                yield _one_number(self.evaluate(word), function.call, word)
            elif kind == "values":
                other = self.evaluate(word)
                if function.name != "like":
                    _paired(values, other, f"what stands before {function.name}", word)
                yield other
            else:
                yield unquoted(word)


def _array(value: Any, told: str) -> DataArray:
    if isinstance(value, DataArray):
        return value
    array: np.ndarray = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ExpressionError(f"expected numbers from {told}, got {value!r}")
    return DataArray(array.ravel() if array.ndim > 1 else array, dims=["value"][: array.ndim])


def _one_number(values: DataArray, call: str, word: str) -> float:
    if values.size != 1 or values.dtype.kind not in "biuf":
        what = f"{values.size} values" if values.size != 1 else repr(values.values.item())
        raise ExpressionError(f"{call}: expected one number from {word}, got {what}")
    return float(values.values.item())


def _paired(one: DataArray, other: DataArray, first: str, second: str) -> None:
    """Check that two arrays have the same labels along the axes they share: none is dropped in silence."""
    for axis in one.dims:
        if axis in other.dims and not np.array_equal(one[axis].values, other[axis].values):
            raise ExpressionError(
                f"{first} and {second} have different labels along {axis}; choose the same ones on both "
                "sides, for example with like"
            )


def _counted(value: Any) -> Any:
    boolean = isinstance(value, DataArray) and value.dtype.kind == "b"
    return value.astype(np.int64) if boolean else value


def _chosen(values: DataArray, choice: Choice, told: str) -> DataArray:
    """Values at the labels that a choice names: along one of several, the axis stays; at one, it goes."""
    if choice.axis not in values.dims:
        axes = [str(axis) for axis in values.dims]
        raise ExpressionError(f"{told} has no axis {choice.axis!r}; {nearest(choice.axis, axes)}")
    labels = values[choice.axis].values.tolist()
    if choice.sign == "=":
        places = [_place(labels, label, choice.axis, told) for label in choice.labels]
        return values.isel({choice.axis: places if choice.several else places[0]}, drop=True)
    if choice.sign == "!=":
        gone = {_place(labels, label, choice.axis, told) for label in choice.labels}
        return values.isel({choice.axis: [i for i in range(len(labels)) if i not in gone]})
    if choice.sign == "..":
        low, high = choice.labels
        begin = _place(labels, low, choice.axis, told) if low else 0
        end = _place(labels, high, choice.axis, told) if high else len(labels) - 1
        return values.isel({choice.axis: slice(begin, end + 1)})
    try:
        level = float(choice.labels[0])
        kept = [i for i, one in enumerate(labels) if _OPERATIONS[choice.sign](float(one), level)]
    except ValueError:
        raise ExpressionError(
            f"{told}[{choice}]: expected numbers to compare along {choice.axis}"
        ) from None
    return values.isel({choice.axis: kept})


def _place(labels: Sequence[Any], word: str, axis: str, told: str) -> int:
    """The place of a label, which may be written as another form of the same number."""
    texts = [str(one) for one in labels]
    if word in texts:
        return texts.index(word)
    numeric = [
        i for i, one in enumerate(labels) if isinstance(one, int | float) and _same(one, word)
    ]
    if numeric:
        return numeric[0]
    raise ExpressionError(f"{told} has no {axis} {word!r}; {nearest(word, texts)}")


def _same(label: float, word: str) -> bool:
    try:
        return bool(np.isclose(label, float(word), rtol=1e-9, atol=0))
    except ValueError:
        return False


# What an expression stands on ---------------------------------------------------------------------


def names_in(text: str) -> Iterator[Path]:
    """The results and declared names that an expression mentions, arguments of functions included.

    Raises:
        ExpressionError: as `parse`.
    """
    yield from _names(parse(text))


def _names(node: Node) -> Iterator[Path]:
    match node:
        case Path():
            yield node
        case Selection():
            yield from _names(node.of)
        case Operation():
            yield from _names(node.left)
            yield from _names(node.right)
        case Call():
            yield from _names_of_call(node)
        case Number():
            return


def _names_of_call(node: Call) -> Iterator[Path]:
    if node.first is not None:
        yield from _names(node.first)
    if node.name not in FUNCTIONS:
        yield Path(node.name)
        return
    words = list(node.arguments)
    if node.first is None and words:
        yield from _names(parse(words.pop(0)))
    for kind, word in zip(FUNCTIONS[node.name].kinds(len(words)), words, strict=True):
        if kind in ("number", "values"):
            yield from _names(parse(word))
