"""Checks a range of seeds: ``python tests/differential/campaign.py --graphs 2000``.

Failures are shrunk and written to a folder as a model, its inputs and what went wrong. Exit code
1 when there are any.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from random_graphs.report import Tally, check_seed, write_failure


def main() -> int:
    """Runs the seeds and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=2000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/differential"), help="folder of failures"
    )
    options = parser.parse_args()
    tally, start = Tally(), time.process_time()
    for seed in range(options.first, options.first + options.graphs):
        case, outcome = check_seed(seed)
        tally.add(case, outcome)
        if outcome.failures:
            failure = outcome.failures[0]
            place = write_failure(case, outcome, options.output)
            said(f"seed {seed}: {failure.subject}: {failure.output} {failure.why}\n  see {place}")
        if tally.graphs % 100 == 0:
            said(f"{tally.graphs} graphs, {tally.failing} failing")
    seconds = time.process_time() - start
    said(f"{tally}\n{seconds:.0f} s of processor time, {seconds / options.graphs:.3f} s a graph")
    return 1 if tally.failing else 0


def said(text: str) -> None:
    """Writes a line at once, since a campaign takes minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
