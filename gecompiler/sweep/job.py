"""What a worker needs to compute any point, and how it does: the model is optimised once.

A job is plain data, since it goes to other processes and machines. Each process keeps the
optimised model of the last job it saw; sizes are bound anew for each point.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecompiler import __version__
from gecompiler.ir.bounded_read import read_bytes
from gecompiler.ir.errors import GecError, UsageError
from gecompiler.option_table import Options
from gecompiler.request import Controls, Request, SyncPoint
from gecompiler.sweep.points import Point
from gecompiler.sweep.row import Row

if TYPE_CHECKING:
    from gecompiler.cards.schedule import CardsResult
    from gecompiler.driver import Source
    from gecompiler.ir.graph import Graph

_LOGGER = logging.getLogger("gecompiler.sweep")
MARKS = ("labels", "priorities", "core_limits")
MAX_BYTES = 2**31
"""Of a file that is read whole: no ONNX file is larger."""
MOST_SENT = 64 * 2**20
"""Larger model files are not sent to a cluster; its workers read them under the same path."""


@dataclass(frozen=True)
class Job:
    """The model, and everything that all points have in common."""

    model: str
    """A file or the name of a built-in model."""
    digest: str
    """Of the file's bytes; of a built-in model, its name and this package's version."""
    options: Mapping[str, Any] = field(default_factory=dict)
    assignment: Mapping[str, int] = field(default_factory=dict)
    sync_points: tuple[tuple[str, str, str], ...] = ()
    marks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Labels, priorities and limits of cores, where there are any."""
    devices: tuple[tuple[str, str], ...] = ()
    """Each device by name, and a digest of its figures."""
    topologies: tuple[tuple[str, str], ...] = ()
    """Each file of a topology, and a digest of it."""
    data: bytes | None = None
    """The file's bytes, where workers may not see the file."""

    @property
    def key(self) -> str:
        """A digest of all that decides what a point gives."""
        known = {
            "version": __version__,
            "model": self.digest,
            "options": sorted((k, repr(v)) for k, v in self.options.items()),
            "assignment": sorted(self.assignment.items()),
            "sync_points": self.sync_points,
            "devices": self.devices,
            **(
                {"marks": sorted((k, sorted(v.items())) for k, v in self.marks.items())}
                if self.marks
                else {}
            ),
            **({"topologies": self.topologies} if self.topologies else {}),
        }
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()

    @property
    def controls(self) -> Controls:
        """What the user decided about streams, for all points."""
        points = tuple(SyncPoint(*p) for p in self.sync_points)
        return Controls(self.assignment, points, **self.marks)


def make_job(
    model: str,
    devices: tuple[str, ...],
    options: Options,
    controls: Controls,
    topologies: Sequence[str] = (),
    *,
    send: bool,
) -> Job:
    """The job of a sweep; GecError for a model or device that is not there.

    ``send``: whether the model's bytes go along.
    """
    from gecompiler.backends.device import load_device
    from gecompiler.models import names

    path = Path(model)
    data: bytes | None = None
    if path.is_file():
        raw = _read(path)
        digest = hashlib.sha256(raw).hexdigest()
        data = raw if send and len(raw) <= MOST_SENT else None
    elif model.partition(":")[0] in names():
        digest = f"{model} of {__version__}"
    else:
        _refuse(model)
    figures = {name: [(f.name, f.value) for f in load_device(name).figures()] for name in devices}
    return Job(
        str(path.resolve()) if path.is_file() else model,
        digest,
        options.as_dict(),
        dict(controls.assignment),
        tuple((p.producer, p.consumer, p.sync_type) for p in controls.sync_points),
        {name: kept for name in MARKS if (kept := dict(getattr(controls, name)))},
        tuple((n, hashlib.sha256(repr(f).encode()).hexdigest()) for n, f in figures.items()),
        tuple(
            (name, hashlib.sha256(_read(Path(name))).hexdigest())
            for name in topologies
            if Path(name).is_file()
        ),
        data,
    )


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _refuse(model: str) -> None:
    """Raises what compiling that model would: one message for one mistake."""
    from gecompiler.driver import optimise

    optimise(Request(model))
    raise UsageError("neither a file nor the name of a model", where=model)


_KEPT: dict[str, Source] = {}
"""The optimised model of the last job, by the job's key."""


def _source(job: Job) -> Source:
    from gecompiler.driver import optimise

    if job.key not in _KEPT:
        _KEPT.clear()
        options = Options(job.options)
        _KEPT[job.key] = optimise(Request(_model(job), options=options, controls=job.controls))
    return _KEPT[job.key]


def _model(job: Job) -> Any:
    if job.data is not None:
        return job.data
    path = Path(job.model)
    if not os.path.isabs(job.model):
        return job.model
    found = hashlib.sha256(_read(path)).hexdigest()
    if found != job.digest:
        raise UsageError("is another file here than where the sweep began", where=job.model)
    return job.model


def _check_sizes(model: str, point: Point) -> None:
    """A built-in model has a longest sequence, which its graph does not show."""
    from gecompiler.models import check_sizes, names

    if model.partition(":")[0] in names():
        check_sizes(model, point.batch or None, point.seq or None)


def evaluate(job: Job, point: Point) -> Row:
    """Compiles the model at one point. What goes wrong there is the row's ``error``."""
    try:
        return _evaluate(job, point)
    except GecError as error:
        return Row.at(point, error=str(error).splitlines()[0])
    except MemoryError:
        return Row.at(point, error="out of memory")
    except Exception as error:  # one point's bug must not cost a sweep its other points
        _LOGGER.debug("%s", point, exc_info=True)
        return Row.at(
            point, error=f"internal error: {type(error).__name__}: {error}".splitlines()[0]
        )


def _evaluate(job: Job, point: Point) -> Row:
    from gecompiler.driver import compile_source
    from gecompiler.roofline_plot import graph_work

    options = Options(job.options)
    options.update(
        {
            "device": point.device,
            "stream_strategy": point.strategy,
            "num_streams": point.streams or "auto",
            **(point.cards.options() if point.cards.several else {}),
        }
    )
    _check_sizes(job.model, point)
    request = Request(
        job.model, point.batch or None, point.seq or None, options=options, controls=job.controls
    )
    compilation = compile_source(_source(job), request)
    result, several = compilation.result, compilation.cards
    findings = [f"schedule at fault: {f.message}" for f in compilation.findings[:1]]
    return Row.at(
        point,
        chosen=result.chosen,
        used=result.used,
        time_us=result.makespan_us,
        period_us=result.period_us,
        single_stream_us=result.single_stream_us,
        lower_bound_us=result.lower_bound_us,
        bottleneck=result.binding_resource,
        memory_bytes=result.peak_memory_bytes,
        flops=graph_work(compilation.graph),
        hbm_bytes=math.fsum(
            task.demand.load_bytes + task.demand.store_bytes
            for task in result.schedule.tasks
            if task.rank == result.schedule.tasks[0].rank
        ),
        tokens=_tokens(compilation.graph if several is None else several.model),
        warnings=tuple(sorted({w.code for w in compilation.diagnostics})),
        error="".join(findings),
        taken_batch=compilation.binding.get("batch", 0),
        taken_seq=compilation.binding.get("seq", 0),
        **({} if several is None else _of_cards(several)),
    )


def _of_cards(found: CardsResult) -> dict[str, Any]:
    """What is particular to several cards."""
    from gecompiler.cards.report import cards_part

    part = cards_part(found)
    return {
        "topology": part["topology"],
        "micro_batches": 1 if found.shape is None else found.shape.micro_batches,
        "communication_us": part["communication_us"],
        "exposed_us": part["exposed_us"],
        "bubble": part["bubble"],
        "sent_bytes": math.fsum(part["sent_bytes"].values()),
    }


def _tokens(graph: Graph) -> int:
    """The length of the first input of tokens, 0 where there is none."""
    from gecompiler.ir.bind.roles import token_inputs

    for shape in token_inputs(graph).values():
        return shape[1] if isinstance(shape[1], int) else 0
    return 0
