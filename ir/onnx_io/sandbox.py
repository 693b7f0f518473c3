"""Runs onnx's checks in a process of their own.

They are C++ that reads attributes without looking: an axis out of range or a malformed Einsum
equation makes them crash, corrupt memory or loop for ever. A model may come from anywhere, so
it is let near them in a worker process only, which is started once and kept.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from onnx import ModelProto

from gecompiler.ir.onnx_io.functions import every_node
from gecompiler.ir.onnx_io.worker import HELLO, LENGTH, examine, read_block, write_block

TIME_LIMIT_S = 120.0
"""By the clock, for systems that cannot limit processor time as the worker does itself.

Long, since on a busy machine little of the time is the worker's.
"""

_SCRIPT = Path(__file__).with_name("worker.py")


class Verdict(NamedTuple):
    """Why onnx refuses a model, and the model with all types that onnx could tell."""

    reason: str
    model: ModelProto


class _Worker:
    """The worker process; calls from several threads wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._owner = 0
        self._others: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """The running process. After a fork the child gets one of its own."""
        if self._process is not None and self._owner != os.getpid():
            self._others.append(self._process)
            self._process = None
        if self._process is None:
            self._owner = os.getpid()
            self._ready = False
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def prepare(self) -> None:
        """Starts the process without waiting for it."""
        with self._lock:
            self.start()

    def ask(self, data: bytes) -> bytes | None:
        """The answer to a model; None when the process died over it or took too long.

        OSError when there is no process that works.
        """
        with self._lock:
            process = self.start()
            timer = threading.Timer(TIME_LIMIT_S, process.kill)
            timer.daemon = True
            timer.start()
            answer = None
            try:
                answer = self._exchange(process, data)
            finally:
                timer.cancel()
                if answer is None:
                    self._end(process)
            return answer

    def _exchange(self, process: subprocess.Popen[bytes], data: bytes) -> bytes | None:
        assert process.stdin is not None
        assert process.stdout is not None
        if not self._ready and read_block(process.stdout) != HELLO:
            raise OSError("the worker process did not start")
        self._ready = True
        try:
            write_block(process.stdin, data)
        except BrokenPipeError:
            return None
        return read_block(process.stdout)

    def stop(self) -> None:
        """Ends the process, if it is this process's own."""
        with self._lock:
            if self._process is not None and self._owner == os.getpid():
                self._end(self._process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        process.kill()
        with process:  # closes the pipes and waits
            pass


_worker = _Worker()
atexit.register(_worker.stop)


def warm_up() -> None:
    """Starts the worker, so that it is ready by the time a model has been read."""
    try:
        _worker.prepare()
    except OSError:
        return


def verdict(model: ModelProto) -> Verdict | None:
    """What onnx has against the model; None when nothing.

    A model that onnx crashes over or does not finish with is refused too. The checks run in
    this process where none can be started, and for ops whose schemas were registered here.
    """
    try:
        data = model.SerializeToString()
    except Exception as error:  # protobuf's EncodeError, which no stub declares
        return Verdict(str(error), model)
    answer = examine(data) if _has_custom_ops(model) else _ask_or_examine(data)
    if answer is None:
        return Verdict("onnx's own checks crash over it or come to no end", model)
    if not answer:
        return None
    (size,) = LENGTH.unpack_from(answer)
    typed = ModelProto()
    typed.ParseFromString(answer[LENGTH.size + size :])
    return Verdict(answer[LENGTH.size : LENGTH.size + size].decode(errors="replace"), typed)


def _ask_or_examine(data: bytes) -> bytes | None:
    try:
        return _worker.ask(data)
    except OSError:
        return examine(data)


def _has_custom_ops(model: ModelProto) -> bool:
    domains = {node.domain for _, node in every_node(model.graph.node)}
    return any(domain and not domain.startswith("ai.onnx") for domain in domains)
