"""A scaling law: how the loss of a model falls with its size and its training tokens.

Source: Hoffmann et al. (2022), "Training Compute-Optimal Large Language Models", equation 2 and appendix D.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import least_squares

Values = Float[ndarray, "run"]
Several = Float[ndarray, "..."]
_STARTS = ((0.5, 0.3, 0.3), (1.0, 0.5, 0.5), (0.2, 0.2, 0.5), (0.5, 0.5, 0.2))


@dataclass(frozen=True)
class ScalingLaw:
    r"""$L(N, D) = E + A / N^\alpha + B / D^\beta$.

    Attributes:
        floor: E, what no size and no text takes away.
        size_scale, size_exponent: A and alpha, of the term that more parameters make smaller.
        text_scale, text_exponent: B and beta, of the term that more text makes smaller.
        error: root of the mean squared residual of the logarithm of the loss.
    """

    floor: float
    size_scale: float
    size_exponent: float
    text_scale: float
    text_exponent: float
    error: float

    def __call__(self, parameters: Several | float, tokens: Several | float) -> Several:
        """The loss of models of so many parameters after so many tokens."""
        n, d = np.asarray(parameters, dtype=float), np.asarray(tokens, dtype=float)
        return np.asarray(
            self.floor
            + self.size_scale / n**self.size_exponent
            + self.text_scale / d**self.text_exponent
        )


def fit_law(
    parameters: Values | Sequence[float],
    tokens: Values | Sequence[float],
    losses: Values | Sequence[float],
) -> ScalingLaw:
    """Fit the law by least squares on logarithms of losses, from several starts; the best fit is kept.

    Floor, scales and exponents are kept positive, which Hoffmann et al. do too; their loss is Huber's, which
    weighs outliers less.

    Raises:
        ValueError: the three differ in number, or there are fewer than the five constants.

    >>> n, d = np.meshgrid([1e3, 1e4, 1e5], [1e5, 1e6, 1e7])
    >>> law = fit_law(n.ravel(), d.ravel(), (1 + 20 / n**0.4 + 50 / d**0.3).ravel())
    >>> round(law.floor, 3), round(law.size_exponent, 3), round(law.text_exponent, 3)
    (1.0, 0.4, 0.3)
    """
    n, d, found = (np.asarray(x, dtype=float) for x in (parameters, tokens, losses))
    if not n.shape == d.shape == found.shape or n.ndim != 1 or n.size < 5:
        raise ValueError(
            "expected at least five runs with parameters, tokens and loss each, got shapes "
            f"{n.shape}, {d.shape} and {found.shape}"
        )
    # Terms are counted at the middle of the runs, so that scales and exponents are not one direction.
    n0, d0 = np.exp(np.log(n).mean()), np.exp(np.log(d).mean())
    low = float(found.min())

    def residuals(x: Float[ndarray, "constant"]) -> Values:
        floor, a, b, alpha, beta = np.exp(x)
        return np.log(floor + a * (n / n0) ** -alpha + b * (d / d0) ** -beta) - np.log(found)

    fits = [
        least_squares(
            residuals,
            np.log([share * low, 0.3 * low, 0.3 * low, alpha, beta]),
            bounds=(
                np.log([1e-6 * low, 1e-6 * low, 1e-6 * low, 0.01, 0.01]),
                np.log([low, 1e2 * low, 1e2 * low, 3, 3]),
            ),
        )
        for share, alpha, beta in ((0.5 * s, a, b) for s, a, b in _STARTS)
    ]
    best = min(fits, key=lambda fit: float(fit.cost))
    floor, a, b, alpha, beta = (float(x) for x in np.exp(best.x))
    error = float(np.sqrt(np.mean(best.fun**2)))
    size_scale, text_scale = float(a * n0**alpha), float(b * d0**beta)
    return ScalingLaw(floor, size_scale, alpha, text_scale, beta, error)
