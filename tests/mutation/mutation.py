"""Mutation testing: ``python tests/mutation/mutation.py --sample 60``, or ``make mutation``.

Every mutant changes one operator, number, name, argument or literal of a function; the tests are
to notice. A sample of each group (`mutation_groups`) is drawn with a seed, run by mutmut in a
tree of its own under ``build/mutation``, and the share that the tests noticed is printed.

Not counted are changes that are no behaviour (`mutants.no_behaviour`). Mutants that survive and
cannot be noticed, since the changed program does the same, are listed in ``explained.yaml`` with
the reason; the score is given with them and without.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import yaml
from mutants import Mutant, mutants_of, no_behaviour
from mutation_groups import GROUPS
from mutation_tree import ROOT, lay_tree, mutmut

EXPLAINED = Path(__file__).with_name("explained.yaml")

Change = tuple[str, str, str]
"""The function, the lines taken out and those put in."""


def explanations() -> dict[Change, str]:
    """The reasons of mutants that do the same as the program."""
    listed = yaml.safe_load(EXPLAINED.read_text(encoding="utf-8"))
    return {(m["function"], m["old"], m["new"]): m["why"] for m in listed}


@dataclass
class Score:
    """What became of the mutants of a group that were run."""

    killed: int
    explained: int
    survivors: list[Mutant]

    def shares(self) -> tuple[float, float]:
        """The share noticed: of all, and of those that can be noticed."""
        hard = self.killed + len(self.survivors)
        return self.killed / max(1, hard + self.explained), self.killed / max(1, hard)


def score(folder: Path) -> Score:
    """The score of a tree; what was not run does not count."""
    known = explanations()
    found = Score(0, 0, [])
    for mutant in mutants_of(folder):
        if mutant.exit_code is None or no_behaviour(mutant):
            continue
        if not mutant.survived:
            found.killed += 1
        elif (mutant.function, *mutant.lines) in known:
            found.explained += 1
        else:
            found.survivors.append(mutant)
    return found


def run_group(name: str, folder: Path, sample: int | None, seed: int) -> None:
    """Runs mutants of one group in a new tree."""
    lay_tree(folder, GROUPS[name])
    mutants = list(mutants_of(folder))
    random.Random(seed).shuffle(mutants)
    names: list[str] = []
    left_out: Counter[str] = Counter()
    for mutant in mutants:
        if len(names) == sample:
            break
        why = no_behaviour(mutant)
        if why:
            left_out[why] += 1
        else:
            names.append(mutant.name)
    click.echo(f"{name}: {len(names)} of {len(mutants)} mutants; passed over: {dict(left_out)}")
    mutmut(folder, "-m", "mutmut", "run", "--max-children", "1", *names)


def main() -> int:
    """Prints the score of each group; 1 when one is below ``--least``."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("groups", nargs="*", choices=[[], *GROUPS])
    options.add_argument("--sample", type=int, default=60, help="so many of each group")
    options.add_argument("--all", action="store_true", help="every mutant: takes hours")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--least", type=float, default=0.85, help="the lowest score that passes")
    options.add_argument("--tree", type=Path, default=ROOT / "build" / "mutation")
    options.add_argument("--show", action="store_true", help="only tell what the last run found")
    given = options.parse_args()
    low = False
    for name in given.groups or GROUPS:
        folder = given.tree / name
        if not given.show:
            run_group(name, folder, None if given.all else given.sample, given.seed)
        found = score(folder)
        of_all, of_hard = found.shares()
        low |= of_hard < given.least
        click.echo(
            f"{name}: {found.killed} killed, {len(found.survivors)} survived, {found.explained} "
            f"explained; score {of_hard:.1%} ({of_all:.1%} with the explained ones)"
        )
        for mutant in found.survivors:
            old, new = mutant.lines
            click.echo(f"  {mutant.function}\n    - {old}\n    + {new}")
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
