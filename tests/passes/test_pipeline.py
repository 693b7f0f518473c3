"""The text form of pipelines: parsed, printed, and precise about mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir import Graph, UsageError
from gecompiler.passes import Pass, PassContext, PassRegistry, Pipeline
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.pass_options import changed_options, option_names


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Tuned(Pass):
    """A pass with an option of every type."""

    name: ClassVar[str] = "tuned"
    on: bool = False
    max_size: int = 4
    ratio: float = 0.5
    label: str = ""
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if self.max_size < 1:
            raise ValueError("max-size must be at least 1")

    def run(self, graph: Graph, context: PassContext) -> int:
        return 0


def registry() -> PassRegistry:
    found = PassRegistry(
        {"canonicalize": "canonical.canonicalize:Canonicalize"}, group="no.such.group"
    )
    found.register(Tuned)
    return found


def parse(text: str) -> Pipeline:
    return Pipeline.parse(text, registry=registry())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        (" canonicalize ", "canonicalize"),
        ("canonicalize,tuned,canonicalize", None),
        ("tuned{}", "tuned"),
        ("tuned{max-size=8}", None),
        ("tuned{max_size=8}", "tuned{max-size=8}"),
        ("tuned{max-size=4}", "tuned"),
        ("tuned{on}", "tuned{on=true}"),
        ("tuned{on=1 ratio=2}", "tuned{on=true,ratio=2.0}"),
        ('tuned{label="a b"}', None),
        ("tuned{label=plain}", None),
        ("tuned{colour=blue,mode=slow}", None),
        ("tuned{limit=none}", "tuned"),
        ("tuned{limit=7}", None),
        ('tuned{names=[a,"b,]"],sizes=[]}', None),
        ("tuned{sizes=3}", "tuned{sizes=[3]}"),
        ("canonicalize{max-elements=10}", None),
    ],
)
def test_text_is_read_and_printed_in_one_form(text: str, printed: str | None) -> None:
    pipeline = parse(text)
    assert str(pipeline) == (text if printed is None else printed)
    assert parse(str(pipeline)) == pipeline


def test_options_are_typed() -> None:
    (found,) = parse("tuned{on=false,max-size=3,limit=9,colour=blue,names=[x,y]}").passes
    assert found == Tuned(max_size=3, limit=9, colour=Colour.BLUE, names=("x", "y"))


@given(
    st.builds(
        Tuned,
        on=st.booleans(),
        max_size=st.integers(1, 10**6),
        ratio=st.floats(allow_nan=False),
        label=st.text(),
        colour=st.sampled_from(Colour),
        limit=st.none() | st.integers(),
        names=st.lists(st.text()).map(tuple),
        sizes=st.lists(st.integers()).map(tuple),
    )
)
def test_any_options_survive_the_text(instance: Tuned) -> None:
    assert parse(str(Pipeline((instance,)))).passes == (instance,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("canonicalise", "did you mean 'canonicalize'"),
        ("tuned{max-sise=1}", "did you mean 'max-size'"),
        ("tuned{max-size=many}", "expected an integer, found 'many'"),
        ("tuned{on=maybe}", "expected true or false, found 'maybe'"),
        ("tuned{colour=green}", "expected one of red, blue"),
        ("tuned{mode=medium}", "expected one of fast, slow"),
        ("tuned{max-size=[1,2]}", "expected an integer, found [1,2]"),
        ("tuned{sizes=[1,x]}", "expected a list of an integer"),
        ("tuned{max-size=0}", "max-size must be at least 1"),
        ("tuned{on,on}", "given twice"),
        ("tuned{on", "expected an option or '}', found the end"),
        ("tuned,", "expected the name of a pass, found the end at column 7"),
        ("tuned tuned", "expected ',' or '{' or the end, found 'tuned' at column 7"),
        (",tuned", "expected the name of a pass, found ',' at column 1"),
        ('tuned{label="x}', "an unfinished string at column 13"),
        ("tuned{max-size=}", "expected a value, found '}'"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_option_names_are_those_of_the_fields() -> None:
    assert option_names(Canonicalize) == ("max-elements", "max-bytes")
    assert changed_options(Canonicalize(max_bytes=1)) == [("max-bytes", "1")]
