"""A timeline file (``msprof_*.json``, ``trace_view.json``) as kernels, waits, copies, launches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gecompiler.captures.cells import nanoseconds
from gecompiler.profiles.json_events import read_events
from gecompiler.profiles.records import Card, HostStep, Kernel, Wait, is_computing

Event = dict[str, Any]

_WAITS = re.compile(r"(EVENT|NOTIFY)[_ ]WAIT", re.IGNORECASE)
_RECORDS = re.compile(r"(EVENT|NOTIFY)[_ ]RECORD", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_COPIES = ("SDMA", "PCIE_DMA")
_LAUNCH = ("HostToDevice", "async_npu")


class TraceReader:
    """Takes the events of one file; `finish` sorts them into a card."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._processes: dict[object, str] = {}
        self._labels: dict[object, int] = {}
        self._threads: dict[tuple[object, object], str] = {}
        self._tasks: list[tuple[Event, int, int]] = []
        self._leaves: dict[tuple[str, str], int] = {}
        self._arrives: dict[tuple[str, str], int] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Keeps of the events what says something of the device."""
        for event in events:
            kind = event.get("ph")
            if kind == "X":
                self._complete(event)
            elif kind == "M":
                self._name(event)
            elif kind in ("s", "f", "t"):
                self._flow(event)

    def _complete(self, event: Event) -> None:
        args = event.get("args")
        name = event.get("name")
        step = _STEP.fullmatch(name) if isinstance(name, str) else None
        if step is None and not isinstance(args, dict):
            return
        start, length = _ns(event.get("ts")), _ns(event.get("dur"))
        if start is None or start < 0 or length is None or length < 0:
            self._card.left_out["an event's time is no time"] += 1
        elif step is not None:
            self._card.host_steps.append(HostStep(step[1], start, start + length))
        elif isinstance(args, dict) and _on_device(event, args):
            self._tasks.append((event, start, length))

    def _name(self, event: Event) -> None:
        args = event.get("args")
        if not isinstance(args, dict):
            return
        pid, tid = _key(event.get("pid")), _key(event.get("tid"))
        if event.get("name") == "process_name":
            self._processes[pid] = str(args.get("name", ""))
        elif event.get("name") == "thread_name":
            self._threads[pid, tid] = str(args.get("name", ""))
        elif event.get("name") == "process_labels":
            number = re.fullmatch(r"NPU (\d{1,9})", str(args.get("labels", "")))
            if number is not None:
                self._labels[pid] = int(number[1])

    def _flow(self, event: Event) -> None:
        category = event.get("cat")
        at = _ns(event.get("ts"))
        if category not in _LAUNCH or at is None:
            return
        key = (str(category), str(event.get("id"))[:64])
        (self._leaves if event["ph"] == "s" else self._arrives)[key] = at

    def finish(self) -> None:
        """Sorts what was taken into the card's lists."""
        for key, arrives in self._arrives.items():
            leaves = self._leaves.get(key)
            if leaves is not None:
                self._card.launches[arrives] = leaves
        for event, start, length in self._tasks:
            self._sort(event, start, length)

    def _sort(self, event: Event, start: int, length: int) -> None:
        card, args = self._card, event["args"]
        pid, tid = _key(event.get("pid")), _key(event.get("tid"))
        process, thread = self._processes.get(pid, ""), self._threads.get((pid, tid), "")
        name = str(event.get("name", ""))[:4096]
        device = self._labels.get(pid, 0)
        if process in ("HCCL", "Communication"):
            if "Communication" in thread or (not thread and tid == 0):
                card.kernels.append(
                    Kernel(
                        name, collective_type(name), "COMMUNICATION", device, "", "", "",
                        start, length,
                    )
                )  # fmt: skip
            elif _WAITS.fullmatch(name):
                stream = str(args.get("stream id", tid))
                card.waits.append(Wait(name, device, stream, start, start + length))
            return
        core = str(args.get("Task Type", "")).upper().replace(" ", "_")
        stream = str(tid)
        if _WAITS.match(name) or _WAITS.match(core):
            card.waits.append(Wait(name, device, stream, start, start + length))
        elif _RECORDS.match(name) or _RECORDS.match(core):
            card.records.append(Wait(name, device, stream, start, start + length))
        elif core.startswith(_COPIES) or is_computing(core):
            kernel = Kernel(
                name, operator_type(name), core, device, stream, str(args.get("Task Id", "")), "",
                start, length,
            )  # fmt: skip
            (card.kernels if is_computing(core) else card.copies).append(kernel)


def read_trace(path: Path, card: Card) -> None:
    """Adds a file's events to a card."""
    reader = TraceReader(card)
    reader.take(read_events(path))
    reader.finish()


def collective_type(name: str) -> str:
    """``hcom_allReduce__271_0_1`` is of type hcom_allReduce."""
    return re.split(r"__|@", name, maxsplit=1)[0].rstrip("_")


def operator_type(name: str) -> str:
    """Kernels of torch_npu are named after their type: ``aclnnAdd_AddAiCore_Add`` is an Add.

    A number at the end counts kernels: ``trans_TransData_7``, ``Conv2D1`` (a version stays).
    """
    if name.isupper():
        return name
    plain = re.split(r"[/.]", name)[-1]
    plain = re.sub(r"_\d+$", "", plain)
    return plain.rpartition("_")[2] or name


def _on_device(event: Event, args: Event) -> bool:
    return "Task Type" in args or "model id" in args or "task type" in args or "alg_type" in args


def _ns(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and len(value) > 64:
        return None
    return nanoseconds(str(value).strip())


def _key(value: object) -> object:
    return value if isinstance(value, int | str) else None
