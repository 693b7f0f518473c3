"""The figures of two articles about streams and fused attention, beside those modelled here.

    python -m benchmarks.articles [--json] [--only streams|attention] [--workers N]

One article tells of LLaMA-7B on an Ascend 910 with one to four streams, the other of a 70B model
at 32K tokens whose attention is tuned. Ratios and the shape of curves are compared, not absolute
times: the published latencies and throughputs do not agree with each other, and no schedule of a
whole 7B model can reach them. No parameter is bent to hit a row.

How much of its loads and stores a kernel hides behind its own computation is a figure of the
device's profile (``hidden_fraction``). The first article draws a kernel that hides nothing;
measured ones hide nearly all. The curve is printed for both: that figure decides what streams
can bring.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.articles_attention import attention_sections
from benchmarks.articles_streams import stream_sections
from benchmarks.articles_table import show


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("streams", "attention"))
    parser.add_argument("--workers", type=int, default=0, help="processes; default: all cores")
    given = parser.parse_args()
    found: list[Any] = []
    if given.only != "attention":
        found += stream_sections(given.workers)
    if given.only != "streams":
        found += attention_sections()
    if given.json:
        print(json.dumps([section.as_dict() for section in found], indent=2))
    else:
        for section in found:
            show(section)


if __name__ == "__main__":
    main()
