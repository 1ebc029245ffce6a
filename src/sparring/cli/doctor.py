"""``sparring doctor``: check the kernels on this machine."""

import argparse

from sparring.cli.terminal import json_text
from sparring.lab.errors import UserError

EXAMPLES = """  sparring doctor
  sparring doctor --json > doctor.json          for a bug report
  sparring doctor --only kernels,skipping"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: the CPU and the accelerator)")
    parser.add_argument("--only", metavar="SECTIONS", help="machine,kernels,skipping,syncs,times,choice")


def main(options: argparse.Namespace) -> int:
    from sparring.diagnosis.doctor import doctor

    try:
        only = options.only.split(",") if options.only else None
        diagnosis = doctor(device=options.device, only=only)
    except (ValueError, RuntimeError) as error:  # an unknown section, or a device that is not there
        raise UserError(str(error).split("\n")[0]) from None
    print(json_text(diagnosis.as_json()) if options.json else diagnosis)
    return 0 if diagnosis.ok else 1
