"""``gec calibrate``: a device profile fitted to what a profiler measured."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("profile_csv", metavar="PROFILE.csv")
@click.option("--device", required=True, metavar="NAME|FILE", help="The profile to start from.")
@click.option("-o", "--output", metavar="MYCARD.yaml", help="Write the calibrated profile there.")
@click.option(
    "--causal", is_flag=True,
    help="Its fused attentions are causal (the file does not say so).",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="What was found as JSON on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def calibrate(
    profile_csv: str, device: str, output: str | None, causal: bool, as_json: bool, quiet: bool
) -> int:
    """Fit a device profile to PROFILE.csv, msprof's op_summary or torch_npu's kernel_details.

    Fits the few physical figures that the measured operators determine, says which they do
    not and what data would, and writes a profile that --device takes.
    """
    from gecompiler.calibration import calibrate as fit_profile
    from gecompiler.calibration import write_profile
    from gecompiler.calibration.report import calibration_data, print_calibration
    from gecompiler.cli_progress import activity
    from gecompiler.lang import say

    if output is not None and Path(output).suffix.lower() not in (".yaml", ".yml"):
        raise click.BadParameter(
            f"{output!r} must end in .yaml, so that --device takes it for a file",
            param_hint="'-o'",
        )
    with activity(quiet):
        found = fit_profile(profile_csv, device, causal=causal)
    if output is not None:
        write_profile(found, output)
    if as_json:
        click.echo(json.dumps(calibration_data(found), indent=2))
    elif not quiet:
        print_calibration(found)
        if output is not None:
            text = say("written to {file} (use it with --device {file})", file=output)
            click.echo(f"\n{text}")
    return 0
