"""``communication.json``: what each collective spent on transfer, on waiting, and idle."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.backends.trace.msprof_rows import CardRows, Row, is_receive
from gecompiler.backends.trace.recording import START_NS

KINDS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
"""The kinds of link, each listed also where nothing went over it."""

_TRANSIT = {"RDMA": ("rdma", "roce", "nic"), "PCIE": ("pcie",), "SIO": ("sio",)}
_MB = 1e6

Info = dict[str, object]


def communication(rows: CardRows, step: str) -> dict[str, object]:
    """The document. The step's key is the one that ``step_trace_time.csv`` names."""
    sides: dict[str, dict[str, object]] = {"p2p": {}, "collective": {}}
    for name, members in (
        ("p2p", [r for r in rows.collectives if is_point_to_point(r)]),
        ("collective", [r for r in rows.collectives if not is_point_to_point(r)]),
    ):
        for row in members:
            key = f"{row.span.name}@{row.task.communicator or 'world'}"
            sides[name][_free(key, sides[name])] = _one([row], start=True)
        if members:
            sides[name]["Total Op Info"] = _one(members, start=False)
    return {f"step{step}": sides}


def is_point_to_point(row: Row) -> bool:
    """Whether it goes from one card to one other."""
    plain = row.span.op_type.lower().removeprefix("hcom_")
    return plain.startswith("send") or is_receive(row.span.op_type)


def _free(key: str, taken: dict[str, object]) -> str:
    number, found = 1, key
    while found in taken:
        number, found = number + 1, f"{key}#{number}"
    return found


def _one(rows: Sequence[Row], *, start: bool) -> Info:
    elapse = sum(r.span.duration_ns for r in rows)
    transit = sum(min(r.span.duration_ns, max(0, r.span.alone_ns)) for r in rows)
    times: Info = {}
    if start:
        times["Start Timestamp(us)"] = (rows[0].span.start_ns + START_NS) / 1000
    times |= {
        "Elapse Time(ms)": elapse / 1e6,
        "Transit Time(ms)": transit / 1e6,
        "Wait Time(ms)": 0.0,
        "Synchronization Time(ms)": 0.0,
        "Idle Time(ms)": (elapse - transit) / 1e6,
        "Wait Time Ratio": 0.0,
        "Synchronization Time Ratio": 0.0,
    }
    return {
        "Communication Time Info": times,
        "Communication Bandwidth Info": {k: _link(rows, k, transit, whole=start) for k in KINDS},
    }


def _link(rows: Sequence[Row], kind: str, transit_ns: int, *, whole: bool) -> Info:
    sizes = [n / _MB for r in rows for link, n in r.task.demand.link_bytes if _kind(link) == kind]
    megabytes = sum(sizes)
    milliseconds = transit_ns / 1e6 if sizes else 0.0
    spread: dict[str, list[float]] = {}
    for one in sizes:
        entry = spread.setdefault(f"{one:.6f}", [0, 0.0])
        entry[0] += 1
        entry[1] += milliseconds / len(sizes)
    info: Info = {"Transit Size(MB)": megabytes, "Transit Time(ms)": milliseconds}
    if whole:
        info["Bandwidth(GB/s)"] = round(megabytes / milliseconds, 4) if milliseconds else 0
        info["Large Packet Ratio"] = 0
    return info | {"Size Distribution": spread}


def _kind(link: str) -> str:
    plain = link.lower()
    for kind, starts in _TRANSIT.items():
        if any(start in plain for start in starts):
            return kind
    return "HCCS"
