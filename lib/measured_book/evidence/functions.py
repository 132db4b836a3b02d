"""The functions of expressions over results: what may stand after ``|``, see `evidence.expressions`.

Each takes values with named axes first, and then what its signature says: the names of axes, numbers, or
further values. Seeds are an axis like any other, called ``seed``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import xarray
from xarray import DataArray

from measured_book.evidence.grammar import ExpressionError

Axis = Annotated[str, "axis"]
"""The name of an axis of the values."""
Level = Annotated[float, "number"]
"""A number, or an expression that gives one."""
Values = Annotated[DataArray, "values"]
"""Further values: an expression of its own."""


@dataclass(frozen=True)
class Function:
    """One function of the table.

    Attributes:
        name: as expressions have it.
        compute: of values, and of what its signature says.
    """

    name: str
    compute: Callable[..., Any]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """What it takes besides the values."""
        return list(inspect.signature(self.compute).parameters.values())[1:]

    @property
    def call(self) -> str:
        """How it is written, such as ``best(axis, by)``."""
        names = [
            f"{one.name}, ..." if one.kind is one.VAR_POSITIONAL else one.name
            for one in self.parameters
        ]
        return f"{self.name}({', '.join(names)})" if names else self.name

    def kinds(self, count: int) -> list[str]:
        """What so many arguments are: ``axis``, ``number`` or ``values``.

        Raises:
            ExpressionError: more arguments than it takes, or fewer than it needs.
        """
        hints = get_type_hints(self.compute, include_extras=True)
        kinds: list[str] = []
        needed = 0
        for one in self.parameters:
            kind = _kind(hints[one.name])
            if one.kind is one.VAR_POSITIONAL:
                return kinds + [kind] * (count - len(kinds))
            kinds.append(kind)
            needed += one.default is one.empty
        if not needed <= count <= len(kinds):
            raise ExpressionError(f"expected {self.call}, got {count} arguments")
        return kinds[:count]

    @property
    def words(self) -> str:
        """What it does, in one line."""
        return (inspect.getdoc(self.compute) or "").splitlines()[0]


def _kind(hint: Any) -> str:
    """What an annotation says an argument is."""
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    return next(_kind(one) for one in get_args(hint) if get_origin(one) is Annotated)


FUNCTIONS: dict[str, Function] = {}
"""All functions by name."""


def _function(compute: Callable[..., Any]) -> Callable[..., Any]:
    name = compute.__name__.rstrip("_")
    FUNCTIONS[name] = Function(name, compute)
    return compute


# One value for each -------------------------------------------------------------------------------


@_function
def log(values: DataArray) -> Any:
    """The natural logarithm of each value."""
    return np.log(values)


@_function
def log2(values: DataArray) -> Any:
    """The logarithm to base 2 of each value."""
    return np.log2(values)


@_function
def log10(values: DataArray) -> Any:
    """The logarithm to base 10 of each value."""
    return np.log10(values)


@_function
def exp(values: DataArray) -> Any:
    """The exponential: e to the power of each value."""
    return np.exp(values)


@_function
def sqrt(values: DataArray) -> Any:
    """The square root of each value."""
    return np.sqrt(values)


@_function
def abs_(values: DataArray) -> DataArray:
    """Each value without its sign."""
    return abs(values)


@_function
def round_(values: DataArray) -> Any:
    """The nearest whole number to each value."""
    return np.round(values).astype(np.int64)


@_function
def minimum(values: DataArray, other: Values) -> Any:
    """The smaller of each two values."""
    return np.minimum(values, other)


@_function
def maximum(values: DataArray, other: Values) -> Any:
    """The larger of each two values."""
    return np.maximum(values, other)


@_function
def where(values: DataArray, condition: Values) -> DataArray:
    """Each value where a condition is true, missing (NaN) elsewhere; means leave those out.

    >>> where(DataArray([1.0, 2.0, 6.0]), DataArray([True, False, True])).mean().item()
    3.5
    """
    return values.where(condition)


# Over axes ----------------------------------------------------------------------------------------


@_function
def mean(values: DataArray, *axes: Axis) -> DataArray:
    """The mean over the axes named, or over all values; of true and false, the share that is true."""
    return values.mean(axes or None)


@_function
def median(values: DataArray, *axes: Axis) -> DataArray:
    """The median over the axes named, or over all values."""
    return values.median(axes or None)


@_function
def sum_(values: DataArray, *axes: Axis) -> DataArray:
    """The sum over the axes named, or over all values; of true and false, how many are true."""
    return values.sum(axes or None)


@_function
def min_(values: DataArray, *axes: Axis) -> DataArray:
    """The smallest value over the axes named, or of all."""
    return values.min(axes or None)


@_function
def max_(values: DataArray, *axes: Axis) -> DataArray:
    """The largest value over the axes named, or of all."""
    return values.max(axes or None)


@_function
def all_(values: DataArray, *axes: Axis) -> DataArray:
    """Return whether all values over the axes named are true (not zero)."""
    return values.astype(bool).all(axes or None)


@_function
def any_(values: DataArray, *axes: Axis) -> DataArray:
    """Return whether any value over the axes named is true (not zero)."""
    return values.astype(bool).any(axes or None)


@_function
def std(values: DataArray, *axes: Axis) -> DataArray:
    """The standard deviation of a sample over the axes named, with one degree of freedom less."""
    return values.std(axes or None, ddof=1)


@_function
def var(values: DataArray, *axes: Axis) -> DataArray:
    """The variance of a sample over the axes named, with one degree of freedom less."""
    return values.var(axes or None, ddof=1)


@_function
def quantile(values: DataArray, share: Level, *axes: Axis) -> DataArray:
    """The quantile at a share from 0 to 1, over the axes named or over all values."""
    return values.quantile(share, axes or None).drop_vars("quantile")


@_function
def count(values: DataArray, *axes: Axis) -> DataArray:
    """How many values there are, or how many labels the axes named have together."""
    sizes = [values.sizes[axis] for axis in axes] if axes else [values.size]
    return DataArray(int(np.prod(sizes)))


@_function
def share(values: DataArray, *axes: Axis) -> DataArray:
    """The share of ones among zeros and ones; anything else is an error, which `mean` would hide.

    Raises:
        ValueError: a value is neither zero nor one.
    """
    strange = values.values[(values.values != 0) & (values.values != 1)]
    if strange.size:
        raise ValueError(f"expected zeros and ones to take the share of, got {strange[0]!r}")
    return values.mean(axes or None)


@_function
def interval(values: DataArray) -> DataArray:
    """The two ends of the 95 % t interval of the mean of all values."""
    from measured_book.evidence.statistics import mean_interval

    ends = mean_interval(np.asarray(values.values, dtype=np.float64).ravel()).interval
    return DataArray(list(ends), dims="end")


# Along an axis ------------------------------------------------------------------------------------


@_function
def first(values: DataArray, axis: Axis = "") -> DataArray:
    """The values at the first label of an axis; without an axis, the first value of all."""
    return values.isel({axis: 0}, drop=True) if axis else DataArray(values.values.ravel()[0])


@_function
def last(values: DataArray, axis: Axis = "") -> DataArray:
    """The values at the last label of an axis; without an axis, the last value of all."""
    return values.isel({axis: -1}, drop=True) if axis else DataArray(values.values.ravel()[-1])


@_function
def skip(values: DataArray, axis: Axis, number: Level) -> DataArray:
    """All but the first so many labels of an axis."""
    return values.isel({axis: slice(int(number), None)})


@_function
def take(values: DataArray, axis: Axis, number: Level) -> DataArray:
    """The first so many labels of an axis."""
    return values.isel({axis: slice(int(number))})


@_function
def steps(values: DataArray, axis: Axis) -> DataArray:
    """Each value along an axis minus the one before it; the axis has one label less."""
    return values.diff(axis)


@_function
def ratios(values: DataArray, axis: Axis) -> DataArray:
    """Each value along an axis over the one before it; the axis has one label less."""
    later, sooner = values.isel({axis: slice(1, None)}), values.isel({axis: slice(-1)})
    return later.copy(data=later.values / sooner.values)


@_function
def like(values: DataArray, other: Values) -> DataArray:
    """Those labels that other values have too, along every axis that both have."""
    shared = {axis: other[axis].values for axis in values.dims if axis in other.dims}
    return values.sel(shared)


@_function
def known(values: DataArray, axis: Axis) -> DataArray:
    """Without those labels of an axis at which a value is missing (NaN)."""
    return values.dropna(axis)


@_function
def argmin(values: DataArray, axis: Axis) -> DataArray:
    """The label of an axis at which the value is smallest; the first of equals."""
    return values.idxmin(axis)


@_function
def argmax(values: DataArray, axis: Axis) -> DataArray:
    """The label of an axis at which the value is largest; the first of equals."""
    return values.idxmax(axis)


@_function
def first_below(values: DataArray, axis: Axis, level: Level) -> DataArray:
    """The first label of an axis at which the value is at most a level; missing where it never is."""
    reached = values <= level
    return reached.idxmax(axis).where(reached.any(axis))


@_function
def slope(values: DataArray, axis: Axis, x: Values | None = None) -> DataArray:
    """The slope of the straight line of least squares along an axis: over its labels, or over x."""
    across = values[axis] if x is None else x
    found: DataArray = xarray.apply_ufunc(
        lambda one, other: np.polyfit(one, other, 1)[0],
        across.astype(float),
        values.astype(float),
        input_core_dims=[[axis], [axis]],
        vectorize=True,
    )
    return found


# Chosen by the other seeds ------------------------------------------------------------------------


def _places(by: DataArray, axis: str) -> DataArray:
    """For each seed the place along an axis at which the mean over the *other* seeds is smallest."""
    if "seed" not in by.dims or by.sizes["seed"] < 2:
        raise ValueError(
            f"expected at least two seeds, so that others can choose, got axes {', '.join(map(str, by.dims))}"
        )
    return xarray.concat(
        [by.drop_sel(seed=seed).mean("seed").argmin(axis) for seed in by.seed.values], by.seed
    )


@_function
def best(values: DataArray, axis: Axis, by: Values | None = None) -> DataArray:
    """For each seed the value at the label of an axis that is best for the *other* seeds.

    Best is where the mean over the other seeds is smallest, of the values themselves or of ``by``, so that no
    seed both chooses and is judged. For the largest, choose by ``-values``. Other axes choose each for itself.

    Raises:
        ValueError: there is no such axis, or there are too few seeds to leave one out.
    """
    places = _places(values if by is None else by, axis)
    return values.isel({axis: places}).drop_vars(axis, errors="ignore")


@_function
def best_rate(values: DataArray, by: Values | None = None) -> DataArray:
    """`best` along the axis ``rate``: each seed at the learning rate that is best for the other seeds.

    Raises:
        ValueError: there is no axis ``rate``, or as `best`.
    """
    if "rate" not in values.dims:
        raise ValueError(f"no axis 'rate'; there are {', '.join(map(str, values.dims))}")
    return DataArray(best(values, "rate", by))


@_function
def best_label(values: DataArray, axis: Axis) -> DataArray:
    """For each seed the label of an axis that is best for the other seeds, as `best` chooses it.

    Raises:
        ValueError: as `best`.
    """
    places = _places(values, axis)
    return DataArray(values[axis].isel({axis: places}).drop_vars(axis).rename(None))


def table() -> Mapping[str, tuple[str, str]]:
    """All functions for a page: name -> how it is called, and what it does."""
    return {name: (one.call, one.words) for name, one in sorted(FUNCTIONS.items())}
