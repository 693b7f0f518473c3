from __future__ import annotations

import pytest

from benchmarks.articles_attention import attention_sections
from benchmarks.articles_streams import PUBLISHED, disagreement, least_ms
from benchmarks.articles_table import Section
from gecompiler.backends.device import load_device


@pytest.fixture(scope="module")
def sections() -> dict[str, Section]:
    return {section.title.split(",")[0].split(" ")[0]: section for section in attention_sections()}


def _column(section: Section, name: str) -> list[object]:
    return [row[section.columns.index(name)] for row in section.rows]


def test_blocks_of_128_help_and_of_256_overflow(sections: dict[str, Section]) -> None:
    small, middle, large = (float(str(ms)) for ms in _column(sections["Block"], "ms"))
    assert middle < small
    assert large > middle
    assert "overflows" in str(_column(sections["Block"], "buffers")[2])


def test_every_published_step_stands_beside_a_modelled_one(sections: dict[str, Section]) -> None:
    assert set(sections) == {"Block", "Grouped", "Sliding", "Paged", "8", "The"}
    assert all(section.rows and section.remarks for section in sections.values())


def test_the_window_of_the_mask_is_not_that_of_the_text(sections: dict[str, Section]) -> None:
    skipped = [float(str(s).rstrip("%")) for s in _column(sections["Sliding"], "blocks skipped")]
    assert skipped[1] == pytest.approx(76.2, abs=1)
    assert skipped[2] == pytest.approx(87.5, abs=1)


def test_bytes_that_cards_send(sections: dict[str, Section]) -> None:
    sent = [float(str(mb)) for mb in _column(sections["8"], "MB sent a card")]
    whole = 2 * 32768 * 64 * 128 / 1e6
    assert sent[0] == 0
    assert sent[1] == pytest.approx(2 * 7 / 8 * whole, abs=1)
    assert sent[2] == pytest.approx(7 / 8 * whole, abs=1)
    assert sent[3] > sent[2]
    assert sent[4] > sent[2]


def test_published_latencies_are_said_to_be_out_of_reach() -> None:
    device = load_device("ascend910")
    remarks = " ".join(disagreement(device).remarks)
    assert "disagree" in remarks
    assert "reachable" in remarks
    for row in PUBLISHED:
        if row.latency_ms is not None:
            assert least_ms(device, row.batch, row.seq) > 50 * row.latency_ms


@pytest.mark.slow
def test_more_streams_never_take_longer_and_eight_are_four() -> None:
    import gecompiler as ge

    times, codes = {}, {}
    for streams in (1, 2, 3, 4, 8):
        report = ge.compile("llama-7b", batch=8, seq=1024, num_streams=streams).as_dict()
        times[streams] = report["schedule"]["makespan_us"]
        codes[streams] = {w["code"] for w in report["warnings"]}
    order = list(times.values())
    assert order == sorted(order, reverse=True)
    assert times[8] == times[4]
    assert "too-many-streams" in codes[8]
    assert "too-many-streams" not in codes[4]
    assert 1.1 < times[1] / times[2] < times[1] / times[4] < 1.76
