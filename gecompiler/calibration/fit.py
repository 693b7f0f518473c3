"""Least squares of relative errors, in the logarithms of the figures.

The residual of a row is 1 - predicted / measured, which the printed errors are the size of; what
is changed is the logarithm of each figure, within what the profile allows. Steps are Levenberg's
(damped Gauss-Newton, derivatives by differences), rows weighted as Huber (1964) does, so that a
few that met congestion do not pull the rest. A figure is fitted only if the data determine it:
enough rows feel it, it is not a combination of others, and its standard error is small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.device import Device
from gecompiler.backends.device_figures import FIGURES
from gecompiler.calibration.observations import Observation, with_figures
from gecompiler.calibration.parameters import Parameter

Vector = NDArray[np.float64]

FELT = 0.05
"""A row feels a figure when 10% of it change its time by 0.5% of the measured one or more."""
FEWEST_ROWS = 3
APART = 0.2
"""Of a figure's effect, the share that no combination of the others has."""
MOST_ERROR = 0.2
"""Largest standard error (of the logarithm) with which a figure counts as determined."""
_STEPS = (0.25, 0.25, 0.1, 0.05, *[0.02] * 10)
"""Of the logarithms, for derivatives by differences: wide ones at first, which see past kinks
(a figure that binds nothing where the search begins) what may bind further on."""
_HUBER = 1.345
_LEAST_SCALE = 0.01
_TINY = 1e-3


@dataclass(frozen=True)
class Fitted:
    """A figure that the data determine."""

    name: str
    before: float
    value: float
    error: float
    """Standard error as a share of the value."""
    at_limit: bool
    rows: int
    """Rows that feel it."""


@dataclass(frozen=True)
class Refused:
    """A figure that they do not, and why."""

    name: str
    reason: str
    wanted: str


@dataclass(frozen=True)
class Fit:
    """What a fit found."""

    fitted: tuple[Fitted, ...]
    refused: tuple[Refused, ...]

    @property
    def values(self) -> dict[str, float]:
        """The fitted figures by name."""
        return {f.name: f.value for f in self.fitted}


def fit(rows: Sequence[Observation], device: Device, parameters: Sequence[Parameter]) -> Fit:
    """The figures that the rows determine, and the others with the reason. Deterministic."""
    refused: dict[str, Refused] = {}
    problem = _Problem(rows, device, _determined(rows, device, parameters, refused))
    while problem.parameters:
        point = problem.solve()
        errors, jacobian = problem.errors(point)
        # What no row feels any more goes at once, of the others the least certain one.
        limit = max(MOST_ERROR, float(errors.max())) if errors.max() < np.inf else np.inf
        lost = [i for i, error in enumerate(errors) if error >= limit and error > MOST_ERROR]
        if not lost:
            return Fit(problem.fitted(point, errors, jacobian), _in_order(parameters, refused))
        for index in lost:
            parameter = problem.parameters[index]
            refused[parameter.name] = Refused(
                parameter.name, _doubt(errors[index]), parameter.wanted
            )
        kept = [i for i in range(len(errors)) if i not in lost]
        problem = _Problem(rows, device, [problem.parameters[i] for i in kept], point[kept])
    return Fit((), _in_order(parameters, refused))


def _doubt(error: float) -> str:
    if error > 2.0:
        return "the rows leave it open: at the best fit next to no time depends on it"
    return f"the rows leave it uncertain by {error:.0%} (standard error)"


def _in_order(
    parameters: Sequence[Parameter], refused: Mapping[str, Refused]
) -> tuple[Refused, ...]:
    return tuple(refused[p.name] for p in parameters if p.name in refused)


def _determined(
    rows: Sequence[Observation],
    device: Device,
    parameters: Sequence[Parameter],
    refused: dict[str, Refused],
) -> list[Parameter]:
    """Those that enough rows feel and that are no combination of earlier ones."""
    whole = _Problem(rows, device, parameters)
    jacobian = whole.jacobian(whole.start, _STEPS[0])
    chosen: list[Parameter] = []
    columns: list[Vector] = []
    for index, parameter in enumerate(parameters):
        column = jacobian[:, index]
        felt = int((np.abs(column) >= FELT).sum())
        reason = ""
        if felt < FEWEST_ROWS:
            number = "no operator's time depends" if not felt else f"only {felt} times depend"
            reason = f"{number} on it"
        elif columns:
            others = np.stack(columns, axis=1)
            share, *_ = np.linalg.lstsq(others, column, rcond=None)
            left = float(np.linalg.norm(column - others @ share) / np.linalg.norm(column))
            if left < APART:
                effect = np.abs(share) * np.linalg.norm(others, axis=0)
                reason = (
                    f"its effect cannot be told from that of {chosen[int(effect.argmax())].name}"
                )
        if reason:
            refused[parameter.name] = Refused(parameter.name, reason, parameter.wanted)
        else:
            chosen.append(parameter)
            columns.append(column)
    return chosen


class _Problem:
    """Rows and figures of one fit; points are logarithms of the figures."""

    def __init__(
        self,
        rows: Sequence[Observation],
        device: Device,
        parameters: Sequence[Parameter],
        start: Vector | None = None,
    ) -> None:
        self.rows = rows
        self.device = device
        self.parameters = parameters
        self.measured: Vector = np.array([row.measured_us for row in rows], dtype=np.float64)
        low = [max(_TINY, FIGURES[p.name][1].low) for p in parameters]
        high = [FIGURES[p.name][1].high for p in parameters]
        self.low, self.high = np.log(low), np.log(high)
        values = [max(_TINY, float(getattr(device, p.name))) for p in parameters]
        self.start: Vector = (
            np.clip(np.log(values), self.low, self.high) if start is None else start
        )
        self.felt_by = [
            [i for i, r in enumerate(rows) if not p.families or r.family in p.families]
            for p in parameters
        ]

    def predict(self, point: Vector, of: Sequence[int] | None = None) -> Vector:
        """Predicted times as shares of the measured ones, of all rows or of those named."""
        names = [p.name for p in self.parameters]
        device = with_figures(
            self.device, {n: math.exp(x) for n, x in zip(names, point, strict=True)}
        )
        indices = range(len(self.rows)) if of is None else of
        times = np.array([self.rows[i].predicted_us(device) for i in indices], dtype=np.float64)
        shares: Vector = times / (self.measured if of is None else self.measured[list(of)])
        return shares

    def jacobian(self, point: Vector, width: float = _STEPS[-1]) -> Vector:
        """(rows, figures): how the share follows the logarithm of each figure."""
        found = np.zeros((len(self.rows), len(self.parameters)))
        for index, rows in enumerate(self.felt_by):
            if not rows:
                continue
            ends = []
            for step in (width, -width):
                moved = point.copy()
                moved[index] = min(self.high[index], max(self.low[index], point[index] + step))
                ends.append((moved[index], self.predict(moved, rows)))
            (upper, over), (lower, under) = ends
            if upper > lower:
                found[rows, index] = (over - under) / (upper - lower)
        return found

    def solve(self) -> Vector:
        """The point of least loss that is reached from the profile's own figures."""
        point, damping = self.start, 1e-2
        residual = 1.0 - self.predict(point)
        for width in _STEPS:
            scale = _scale(residual)
            loss = _loss(residual, scale)
            jacobian, weight = self.jacobian(point, width), _weights(residual, scale)
            moved = self._step(point, residual, jacobian, weight, damping, scale, loss)
            change = 0.0 if moved is None else float(np.abs(moved[0] - point).max())
            if moved is not None:
                point, residual, damping = moved
            if change < 3e-4 and width == _STEPS[-1]:
                break
        return point

    def _step(
        self,
        point: Vector,
        residual: Vector,
        jacobian: Vector,
        weight: Vector,
        damping: float,
        scale: float,
        loss: float,
    ) -> tuple[Vector, Vector, float] | None:
        """A step that lowers the loss, more damped each time it does not; None after some."""
        normal = jacobian.T @ (weight[:, None] * jacobian)
        slope = jacobian.T @ (weight * residual)
        # A figure at its limit that wants beyond it stays, and does not bend the others' steps.
        free = ~(((point <= self.low) & (slope < 0)) | ((point >= self.high) & (slope > 0)))
        if not free.any():
            return None
        for _ in range(8):
            damped = normal + damping * np.diag(np.diag(normal) + 1e-12)
            step = np.zeros_like(point)
            step[free] = np.linalg.solve(damped[np.ix_(free, free)], slope[free])
            moved = np.clip(point + np.clip(step, -1.0, 1.0), self.low, self.high)
            left = 1.0 - self.predict(moved)
            if _loss(left, scale) < loss:
                return moved, left, max(1e-6, damping / 5)
            damping *= 5
        return None

    def errors(self, point: Vector) -> tuple[Vector, Vector]:
        """Standard errors of the logarithms (White 1980, robust), and the derivatives there."""
        residual = 1.0 - self.predict(point)
        jacobian, weight = self.jacobian(point), _weights(residual, _scale(residual))
        normal = jacobian.T @ (weight[:, None] * jacobian)
        inverse = np.linalg.pinv(normal, rcond=1e-10)
        meat = jacobian.T @ (((weight * residual) ** 2)[:, None] * jacobian)
        rows, count = jacobian.shape
        spread = rows / max(1, rows - count)
        found = np.sqrt(np.maximum(0.0, np.diag(inverse @ meat @ inverse)) * spread)
        lost = np.diag(normal) <= 1e-9  # at the end no row feels it any more
        return np.where(lost, np.inf, found), jacobian

    def fitted(self, point: Vector, errors: Vector, jacobian: Vector) -> tuple[Fitted, ...]:
        """The figures at that point."""
        return tuple(
            Fitted(
                p.name,
                float(getattr(self.device, p.name)),
                _rounded(math.exp(point[i])),
                float(errors[i]),
                bool(point[i] <= self.low[i] + 1e-9 or point[i] >= self.high[i] - 1e-9),
                int((np.abs(jacobian[:, i]) >= FELT).sum()),
            )
            for i, p in enumerate(self.parameters)
        )


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _scale(residual: Vector) -> float:
    """A robust standard deviation: the median absolute residual, in units of a normal's."""
    return max(_LEAST_SCALE, 1.4826 * float(np.median(np.abs(residual))))


def _weights(residual: Vector, scale: float) -> Vector:
    reach = _HUBER * scale
    size = np.abs(residual)
    return np.where(size <= reach, 1.0, reach / np.maximum(size, 1e-12))


def _loss(residual: Vector, scale: float) -> float:
    reach = _HUBER * scale
    size = np.abs(residual)
    return float(np.where(size <= reach, size**2 / 2, reach * (size - reach / 2)).sum())
