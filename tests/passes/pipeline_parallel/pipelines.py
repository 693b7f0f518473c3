"""Small pipelines of uniform stages, and a device on which only their work takes time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from gecompiler.backends.device import Device, load_device
from gecompiler.backends.simulator import Simulator
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op, OpInfo
from gecompiler.ir.parallel import Mesh, ParallelProgram, Template
from gecompiler.ir.schedule import Demand, Schedule
from gecompiler.ir.timeline import Timeline
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.pipeline_parallel import PipelineShape, unroll
from gecompiler.passes.rank_schedules import TemplateSchedule, merge, schedule_template

X = TensorType(DType.F32, (4, 256))
ATTRS: dict[str, Any] = {"communicator": "pp"}


@cache
def quiet_device() -> Device:
    """Neither gaps nor syncs take time."""
    quiet = {"task_gap_us": 0.0, "event_record_us": 0.0, "event_wait_us": 0.0}
    return replace(load_device("ascend910b"), max_streams=64, max_events=65536, **quiet)


class Work:
    """A target on which a forward op takes 10 us, a backward op 20, and talk nothing."""

    def __init__(self, device: Device | None = None, talk: Demand | None = None) -> None:
        self.device = device or quiet_device()
        self.talk = talk or Demand()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def demand(self, graph: Graph, op: Op) -> Demand:
        if op.domain == GE_DOMAIN:
            return self.talk
        if op.op_type in ("Add", "Identity"):
            return Demand()
        return Demand(fixed_us=20.0 if op.info.phase == "backward" else 10.0)


def talk(kind: str, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], peer: int,
         size: int, phase: str) -> Op:  # fmt: skip
    """A Send or Recv."""
    attrs: dict[str, Any] = {
        **ATTRS,
        "group_size": size,
        "peer": peer,
        "tag": 0 if phase == "forward" else -1,
    }
    if kind == "Recv":
        attrs |= {"dtype": "f32", "shape": (4, 256)}
    return Op(name, kind, inputs, outputs, attrs, GE_DOMAIN, OpInfo(phase=phase))


def piece(number: int, pieces: int, *, training: bool = True) -> Template:
    """One piece: forward, backward, and a parameter that is updated once."""
    graph = Graph("pipe", {"": 20, GE_DOMAIN: 1})
    first, last = number == 0, number == pieces - 1
    if first:
        graph.add_input("x", X)
    else:
        graph.add_op(talk("Recv", "recv", (), ("x",), -1, pieces, "forward"), [X])
    graph.add_op(Op("f", "Relu", ("x",), ("y",), info=OpInfo(phase="forward")), [X])
    if not last:
        graph.add_op(talk("Send", "send", ("y",), (), 1, pieces, "forward"))
    if not training:
        if last:
            graph.set_outputs(["y"])
        return Template(graph)
    graph.add_input("w", X)
    graph.add_input("rate", X)
    if not last:
        graph.add_op(talk("Recv", "recv_grad", (), ("dy",), 1, pieces, "backward"), [X])
    given = "y" if last else "dy"
    back = OpInfo(phase="backward")
    graph.add_op(Op("b", "Mul", ("y", given), ("dx",), info=back), [X])
    if not first:
        graph.add_op(talk("Send", "send_grad", ("dx",), (), -1, pieces, "backward"))
    update = OpInfo(phase="optimizer")
    attrs = {"grad_scale": 1.0}
    step = Op("u", "ApplySgd", ("w", "dx", "rate"), ("w_next",), attrs, GE_DOMAIN, update)
    graph.add_op(step, [X])
    graph.set_outputs(["w_next"])
    return Template(graph)


def program(pieces: int, *, training: bool = True) -> ParallelProgram:
    """Uniform pieces, one behind the other."""
    templates = tuple(piece(i, pieces, training=training) for i in range(pieces))
    return ParallelProgram(Mesh.of(pp=pieces), templates, tuple(range(pieces)))


def run(shape: PipelineShape, target: Work | None = None) -> tuple[
    ParallelProgram, tuple[TemplateSchedule, ...], Schedule, Timeline
]:  # fmt: skip
    """The pipeline unrolled, scheduled on all ranks, verified and simulated."""
    target = target or Work()
    found = unroll(program(shape.stages * shape.chunks, training=shape.training), shape)
    parts = tuple(schedule_template(t.graph, target) for t in found.templates)
    schedule = merge(found, parts)
    return found, parts, schedule, Simulator(target.device)(schedule)
