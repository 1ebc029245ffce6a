"""``sparring doctor``: check the kernels on this machine."""

import argparse
import json
import sys

EXAMPLES = """  sparring doctor
  sparring doctor --json > doctor.json          for a bug report
  sparring doctor --only kernels,skipping"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: the CPU and the accelerator)")
    parser.add_argument("--only", metavar="SECTIONS", help="machine,kernels,skipping,syncs,times,choice")


def main(options: argparse.Namespace) -> int:
    from sparring.diagnosis.doctor import doctor  # torch is not needed for --help

    try:
        diagnosis = doctor(device=options.device, only=options.only.split(",") if options.only else None)
    except (ValueError, RuntimeError) as error:  # an unknown section, or a device that is not there
        print(f"sparring: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    print(json.dumps(diagnosis.as_json(), indent=2) if options.json else diagnosis)
    return 0 if diagnosis.ok else 1
