"""What a finding says: both tasks, where, how to mend it, and how far the order comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from schedule_cases import CASES

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule_verify import Finding, raise_on_findings, verify_schedule

FOUND = yaml.safe_load(Path(__file__).with_name("schedule_findings.yaml").read_text("utf-8"))


def test_every_case_has_its_findings() -> None:
    assert list(FOUND) == list(CASES)


@pytest.mark.parametrize("case", CASES)
def test_findings(case: str) -> None:
    found = [{k: v for k, v in f.as_dict().items() if v} for f in verify_schedule(CASES[case])]
    assert found == FOUND[case]


def test_the_first_three_are_raised_and_the_others_counted() -> None:
    few = CASES["unwritten"]
    with pytest.raises(ScheduleError) as caught:
        raise_on_findings(few)
    error = caught.value
    assert error.message == "unwritten: no task writes 'a'; unwritten: no task writes 'o'"
    assert (error.where, error.hint) == ("m", "")
    many = CASES["limits"]
    with pytest.raises(ScheduleError) as caught:
        raise_on_findings(many)
    assert caught.value.message.count("limit: ") == 3
    assert caught.value.message.endswith("the device has 100 (and 2 more)")
    assert caught.value.hint == "spread them over more streams"
    three = replace(many, limits=replace(many.limits, cube_cores=9, vector_cores=17))
    with pytest.raises(ScheduleError) as caught:
        raise_on_findings(three)
    assert caught.value.message.endswith("the device has 100")
    raise_on_findings(CASES["send recv"])


def test_a_finding_as_plain_data() -> None:
    assert Finding("c", "race", "m").as_dict() == {
        "code": "c", "category": "race", "message": "m", "tasks": [], "tensor": "",
        "address": None, "missing": "", "fix": "",
    }  # fmt: skip
