"""The compiled model as users hold it: report, schedule, graph, files, and runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecompiler.driver import Compilation, Source, compile_source, optimise
from gecompiler.execution_timeline import ExecutionTimeline
from gecompiler.files import whole_folder
from gecompiler.ir.errors import LargerThanPlannedError, ScheduleError, UsageError
from gecompiler.request import Request
from gecompiler.run_arrays import as_arrays
from gecompiler.source import refuse_overwriting
from gecompiler.training import micro_batch_inputs

if TYPE_CHECKING:
    from gecompiler.ir.graph import Graph
    from gecompiler.ir.schedule import Schedule
    from gecompiler.session import Session


Sizes = tuple[tuple[str, int], ...]
"""Numbers of the symbols, sorted by name."""
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Inputs' sizes, sorted by name."""


class CompiledModel:
    """A model that is scheduled for a device. Made by `Session.compile`."""

    def __init__(
        self,
        request: Request,
        source: Source,
        compilation: Compilation,
        session: Session | None = None,
    ) -> None:
        self._request = request
        self._source = source
        self._session = session
        self._by_sizes: dict[Sizes, Compilation] = {}
        self._sizes_of: dict[Shapes, Sizes] = {}
        self._for_empty: dict[Shapes, Compilation] = {}
        self.compilation = compilation
        self._remember(compilation)

    @staticmethod
    def compile(request: Request, session: Session | None = None) -> CompiledModel:
        """Compiles what ``request`` asks for."""
        source = optimise(request)
        return CompiledModel(request, source, compile_source(source, request), session)

    def _remember(self, compilation: Compilation) -> None:
        self._by_sizes[tuple(sorted(compilation.binding.items()))] = compilation

    # ------------------------------------------------------------- looking

    @property
    def graph(self) -> Graph:
        """The optimised graph with its sizes bound, as it was scheduled."""
        return self.compilation.graph

    @property
    def symbolic_graph(self) -> Graph:
        """The optimised graph with its symbols, as `save` exports it."""
        return self._source.graph

    @property
    def schedule(self) -> Schedule:
        """Tasks, streams, events and addresses."""
        return self.compilation.result.schedule

    @property
    def timeline(self) -> ExecutionTimeline:
        """When each task runs on the simulated device."""
        return self._timeline(self.compilation)

    @staticmethod
    def _timeline(compilation: Compilation) -> ExecutionTimeline:
        result = compilation.result
        streams = compilation.device.limits.max_streams
        return ExecutionTimeline(result.timeline, result.schedule, streams)

    def as_dict(self) -> dict[str, Any]:
        """The report as data (``report.json``, schema_version 1)."""
        from gecompiler.report import build_report

        return build_report(self.compilation)

    def report(self) -> None:
        """Prints what overlaps, what waits, and why."""
        from gecompiler.report_text import print_report

        print_report(self.compilation)

    def explain(self, op: str, rank: int | None = None) -> str:
        """Why the op is where it is, why it starts then, and what would make it start earlier.

        Text, as ``gec explain`` prints it; of a name that stands for several tasks, of the first
        20 in the order in which they start. Of several cards on one ``rank``, by default that on
        which the op ends last. UsageError for a name that stands for none.
        """
        from gecompiler.explain import Explainer, like_elsewhere, matches
        from gecompiler.explain_text import MOST_MATCHES, explanation_text

        found = matches(self.compilation, op, rank)[:MOST_MATCHES]
        explainer = Explainer.of(self.compilation)
        asked = op if len(found) == 1 else ""
        return "\n\n".join(
            explanation_text(
                explainer.explain(t), explainer, asked, like_elsewhere(self.compilation, t)
            )
            for t in found
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the figures, the timeline, the warnings."""
        from gecompiler.html_report.notebook import compilation_html

        return compilation_html(self.compilation)

    # ------------------------------------------------------------- files

    def save(self, folder: str | os.PathLike[str], *, traces: Sequence[str] = ()) -> None:
        """Writes model.onnx, schedule.json, trace.json and report.json, all or none.

        ``traces`` names other tools' forms to write as well: ``msprof``, ``kineto``.
        """
        from gecompiler.backends.trace import trace_files
        from gecompiler.export import save_model
        from gecompiler.ir.schedule_json import dump_schedule
        from gecompiler.trace_facts import compilation_recording

        result = self.compilation.result
        refuse_overwriting(self._request.source, Path(folder) / "model.onnx")
        with whole_folder(Path(folder)) as stage:
            target = self._request.options.get("target_opset")
            save_model(self._source.graph, stage / "model.onnx", target)
            texts = {
                "schedule.json": dump_schedule(result.schedule),
                "report.json": json.dumps(self.as_dict(), indent=2) + "\n",
            }
            recording = compilation_recording(self.compilation)
            for form in dict.fromkeys(("chrome", *traces)):
                texts |= trace_files(recording, form)
            for name, text in texts.items():
                (stage / name).parent.mkdir(parents=True, exist_ok=True)
                (stage / name).write_text(text, encoding="utf-8")

    def save_html(self, path: str | os.PathLike[str], lang: str = "en") -> None:
        """Writes the report as one HTML file that needs no network, in ``en`` or ``zh``.

        The reader can change the language. OutputError when the file cannot be written,
        UsageError for another language.
        """
        from gecompiler.files import write_text
        from gecompiler.html_report import compilation_page

        source = self._request.source
        refuse_overwriting(source, path)
        title = Path(source).stem if isinstance(source, str | os.PathLike) else ""
        write_text(path, compilation_page(self.compilation, lang, title))

    def save_plot(self, path: str | os.PathLike[str]) -> None:
        """Draws the timeline to an .svg, .png or .pdf file, for papers and slides.

        UsageError for another kind of file and where matplotlib (extra ``plot``) is missing.
        """
        from gecompiler.timeline_plot import write_timeline_plot

        refuse_overwriting(self._request.source, path)
        timeline = self.compilation.result.timeline
        write_timeline_plot(timeline, os.fspath(path), self._plot_title())

    def save_roofline(self, path: str | os.PathLike[str]) -> None:
        """Draws the ops by type under the device's roofs, as `save_plot` does."""
        from gecompiler.roofline_plot import op_spots, roofs, write_roofline

        refuse_overwriting(self._request.source, path)
        spots, lines = op_spots(self.compilation), roofs(self.compilation.device)
        write_roofline(spots, lines, os.fspath(path), self._plot_title())

    def _plot_title(self) -> str:
        source = self._request.source
        name = Path(source).stem if isinstance(source, str | os.PathLike) else ""
        return f"{name or self._source.graph.name} on {self.compilation.device.name}"

    # ------------------------------------------------------------- running

    def forward(self, *arrays: Any, **named: Any) -> Any:
        """Runs the model on the simulated device with real numbers.

        Takes arrays in the order of the model's inputs, one dict of arrays, or keywords.
        Other sizes than those compiled for are compiled on the way and kept. Returns an array
        when the model has one output, else a dict by name.
        """
        found = self.run(self._named(arrays, named))
        return next(iter(found.values())) if len(found) == 1 else found

    __call__ = forward

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Like `forward`, always from a dict to a dict.

        Of a training step the state is that before the first step, unless ``inputs`` has it
        (one card only: several begin with the model's parameters); micro-batches are cut from
        what is given of the whole batch. Outputs are ``loss`` and ``updated/<parameter>``.
        """
        several = self.compilation.cards
        if several is not None and several.training is not None:
            return self._executed(self.compilation, as_arrays(self._source.graph, inputs))
        if (trained := self.compilation.trained) is not None:
            found = self.compilation
            given = micro_batch_inputs(found.graph, trained.options.accumulate, inputs)
            given = {**trained.step.initial_state(), **as_arrays(found.graph, given)}
            return self._executed(found, given)
        inputs = as_arrays(self._source.graph, inputs)
        try:
            return self._executed(self._sized_for(inputs), inputs)
        except LargerThanPlannedError:  # a size that only a run can tell was estimated too low
            request = replace(self._request_for(inputs), observe=True)
            return self._executed(compile_source(optimise(request), request), inputs)

    def _executed(self, compilation: Compilation, inputs: Mapping[str, Any]) -> dict[str, Any]:
        from gecompiler.backends.execution.host_memory import HostMemory, bounded

        if compilation.findings:
            raise ScheduleError(
                f"the schedule is not safe to run: {compilation.findings[0].message}",
                where=compilation.result.schedule.model,
                hint=compilation.findings[0].fix,
            )
        allowed = self._request.options.get("host_memory")
        with bounded(HostMemory.of(allowed, self._source.weight_bytes, inputs.values())):
            outputs = self._outputs(compilation, inputs)
        if self._session is not None:
            self._session.record(self._timeline(compilation))
        return outputs

    def _outputs(self, compilation: Compilation, inputs: Mapping[str, Any]) -> dict[str, Any]:
        from gecompiler.backends.execution.executor import execute

        result = compilation.result
        if compilation.cards is not None:
            from gecompiler.cards.run import run_cards
            from gecompiler.cards.train_run import run_training

            symbolic, sizes, cards = self._source.graph, compilation.binding, compilation.cards
            run = run_cards if cards.training is None else run_training
            return run(symbolic, sizes, cards, inputs)
        return execute(compilation.graph, result.schedule, result.timeline, dict(inputs))

    def _named(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            return {**arrays[0], **named}
        names = self._source.graph.inputs
        twice = sorted(set(names[: len(arrays)]) & set(named))
        if twice:
            raise UsageError(f"input {twice[0]!r} is given twice", where="forward")
        if len(arrays) > len(names):
            raise UsageError(
                f"{len(arrays)} arrays for {len(names)} inputs ({', '.join(names)})",
                where="forward",
            )
        return {**dict(zip(names, arrays, strict=False)), **named}

    def _sized_for(self, inputs: Mapping[str, Any]) -> Compilation:
        from gecompiler.ir.bind import choose_binding, empty_symbols
        from gecompiler.ir.diagnostics import Diagnostics

        if not self.compilation.binding:
            return self.compilation
        shapes = tuple(sorted((name, getattr(a, "shape", ())) for name, a in inputs.items()))
        if empty_symbols(self._source.graph, inputs):
            return self._emptied(shapes, inputs)
        if shapes not in self._sizes_of:
            # Choosing sizes infers the whole graph: once for each set of input shapes.
            found = choose_binding(self._source.graph, arrays=inputs, diagnostics=Diagnostics())
            self._sizes_of[shapes] = tuple(sorted(found.items()))
        key = self._sizes_of[shapes]
        if key not in self._by_sizes:
            self._remember(compile_source(self._source, self._request_for(inputs)))
        return self._by_sizes[key]

    def _request_for(self, inputs: Mapping[str, Any]) -> Request:
        return replace(self._request, batch=None, seq=None, input_shapes={}, arrays=dict(inputs))

    def _emptied(self, shapes: Shapes, inputs: Mapping[str, Any]) -> Compilation:
        """For inputs without elements, of which nothing is true that was proven of symbols."""
        if shapes not in self._for_empty:
            request = self._request_for(inputs)
            self._for_empty[shapes] = compile_source(optimise(request), request)
        return self._for_empty[shapes]
