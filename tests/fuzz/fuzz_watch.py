"""What a case touches: an audit of opens, writes and processes, and folders compared."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    **{f"os.{n}": 1 for n in ("remove", "rmdir", "mkdir", "truncate", "chmod", "chown", "utime")},
    **{f"os.{n}": 2 for n in ("rename", "link", "symlink")},
    **{"shutil.rmtree": 1, "tempfile.mkstemp": 1, "tempfile.mkdtemp": 1, "os.setxattr": 1},
}
_NEVER = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "socket.connect", "socket.bind"),
    *("socket.getaddrinfo", "shutil.copyfile", "shutil.move", "pickle.find_class"),
)
_WORKER = "onnx_io"
_SYSTEM = (
    "/proc",
    "/sys",
    "/etc/localtime",
    "/etc/mime.types",
    "/usr",
    "/lib",
    "/dev/null",
    "/dev/urandom",
    "/dev/shm",
)


class Watch:
    """Notes what happens outside the places that a case may use."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._busy = False
        self._named: set[str] = set()
        self.seen: list[str] = []
        roots = (sys.prefix, sys.base_prefix, *_sources(), *_import_paths())
        self._readable = tuple({*_SYSTEM, *roots, *map(os.path.realpath, roots)})
        sys.addaudithook(self._hook)

    def start(self, folder: Path, named: Sequence[str]) -> None:
        """Watches a case in that folder; paths that its command ``named`` may be read."""
        self.seen, self._folder = [], folder
        self._named = {os.path.realpath(path) for path in named if "\0" not in path}

    def stop(self) -> list[str]:
        """What was done that must not be."""
        self._folder = None
        return self.seen

    def _hook(self, event: str, args: tuple[object, ...]) -> None:
        if self._folder is None or self._busy:
            return
        self._busy = True
        try:
            self._note(event, args)
        finally:
            self._busy = False

    def _note(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            self._note_open(args[0], args[1], args[2])
        elif event in _CHANGES:
            for path in args[: _CHANGES[event]]:
                self._note_change(event, _within_folder(path, args))
        elif event in _NEVER or (event == "subprocess.Popen" and _WORKER not in str(args[1])):
            self.seen.append(f"{event} {args!r:.200}")

    def _note_open(self, path: object, mode: object, flags: object) -> None:
        if isinstance(path, int):
            return
        writes = isinstance(flags, int) and flags & _WRITING
        if writes or (isinstance(mode, str) and set(mode) & set("wax+")):
            self._note_change("open for writing", path)
        elif not self._may_read(path):
            self.seen.append(f"open for reading {path!r:.200}")

    def _may_read(self, path: object) -> bool:
        assert self._folder is not None
        real = _real(path)
        return real in self._named or real.startswith((str(self._folder), *self._readable))

    def _note_change(self, event: str, path: object) -> None:
        assert self._folder is not None
        real = _real(path)
        inside = (str(self._folder / "out"), str(self._folder / "tmp" / "tmp"))
        if not isinstance(path, int) and not real.startswith((*inside, "/dev/null")):
            self.seen.append(f"{event} {real:.200}")


def _sources() -> Iterator[str]:
    """Where the package lies, also the parts that are elsewhere."""
    for name in ("", ".ir", ".passes", ".backends", ".models"):
        spec = importlib.util.find_spec(f"gecompiler{name}")
        assert spec is not None
        assert spec.origin is not None
        yield from {str(Path(spec.origin).parent), str(Path(spec.origin).resolve().parent)}


def _import_paths() -> Iterator[str]:
    """What Python searches for modules, but for what lies in the file system's root."""
    yield from (path for path in sys.path if path.count("/") > 1)


def _within_folder(path: object, args: tuple[object, ...]) -> object:
    """The path, where the call takes it relative to an open folder."""
    folder = args[-1]
    if isinstance(path, str) and isinstance(folder, int) and folder >= 0 and len(args) in (2, 3):
        with contextlib.suppress(OSError):
            return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    return path


def _real(path: object) -> str:
    try:
        return os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
    except (ValueError, TypeError, OSError):
        return repr(path)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that lies in a case's folder but its output, and what it looks like."""
    found: dict[str, tuple[object, ...]] = {}
    for path in _below(folder):
        if path == folder / "out":
            continue
        status = path.lstat()
        kept = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_nlink)
        found[str(path)] = () if path.name in ("cwd", "tmp") else kept
    return found


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink() and path.name != "out":
            yield from _below(path)
