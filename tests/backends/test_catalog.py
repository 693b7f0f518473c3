"""Built-in files by name, alias or path."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gecompiler.backends.catalog import Catalog
from gecompiler.ir.errors import UsageError


@dataclass(frozen=True)
class Text:
    where: str
    aliases: tuple[str, ...]


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "beta.yaml").write_text("Second two")
    (tmp_path / "alpha.yaml").write_text("First")
    (tmp_path / "note.txt").write_text("no part of it")
    reads = []

    def read(path, where):
        reads.append(where)
        return Text(where, tuple(path.read_text().split()))

    found = Catalog("thing", tmp_path, read)
    found.reads = reads
    return found


def test_names_are_those_of_the_files_in_order(catalog):
    assert catalog.names() == ("alpha", "beta")


@pytest.mark.parametrize("name", ["beta", "BETA", "second", "TWO"])
def test_a_name_or_an_alias_in_any_case(catalog, name):
    assert catalog.find(name).where == "beta.yaml"


def test_each_is_read_once_until_it_is_forgotten(catalog):
    assert catalog.find("beta") is catalog.find("two")
    assert sorted(catalog.reads) == ["alpha.yaml", "beta.yaml"]
    (catalog.folder / "beta.yaml").write_text("other")
    catalog.forget()
    assert catalog.find("other").where == "beta.yaml"
    with pytest.raises(UsageError):
        catalog.find("two")


def test_a_file_is_called_by_its_path_and_read_each_time(catalog, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    path = own / "Mine.YAML"
    path.write_text("x")
    assert catalog.find(str(path)).where == str(path)
    path.write_text("y")
    assert catalog.find(str(path)).aliases == ("y",)


def test_an_unknown_name_is_told_with_the_nearest(catalog):
    with pytest.raises(UsageError) as caught:
        catalog.find("alhpa")
    assert "no thing 'alhpa'" in str(caught.value)
    assert "alpha" in str(caught.value)
