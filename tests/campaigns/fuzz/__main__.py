"""Campaigns: `python -m tests.campaigns fuzz all --hours 1`, `python -m tests.campaigns fuzz NAME --seconds 60`; README.md says more."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.campaigns.fuzz import registry, running
from tests.campaigns.fuzz.findings import name_of
from tests.campaigns.fuzz.reduce import smaller
from tests.campaigns.fuzz.replay import in_a_process


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns fuzz", description=__doc__)
    parser.add_argument("names", nargs="+", help="targets, `all`, or `list`")
    parser.add_argument("--hours", type=float, default=0.0, help="of all targets together")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="of each target; 60 without --hours"
    )
    parser.add_argument(
        "--processor",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="the most seconds of a processor of each target, for machines that are busy",
    )
    parser.add_argument("--processes", type=int, default=1, help="targets at the same time")
    parser.add_argument(
        "--log", type=Path, help="a file to which a line of JSON is added for each target"
    )
    parser.add_argument(
        "--work", type=Path, default=Path(".fuzz"), help="a folder for growing corpora"
    )
    return parser


def _confirmed(name: str, work: Path) -> list[dict[str, str]]:
    """The findings of a target that fail again in a new process, made smaller and saved."""
    folder, kept = work / "found" / name, registry.CRASHES / name
    (folder / "notes.jsonl").unlink(missing_ok=True)  # Another campaign may find a fault again.
    found = []
    for file in sorted(path for path in folder.iterdir() if path.suffix != ".jsonl"):
        data = file.read_bytes()
        failed = in_a_process(name, file)
        if failed is None:
            path = work / "unconfirmed" / name / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            file.rename(path)
            found.append({"file": str(path), "signature": "", "message": "it does not fail again"})
            continue
        trial = folder / "trial.jsonl"

        def fails(changed: bytes, first: str = failed[0], trial: Path = trial) -> bool:
            trial.write_bytes(changed)
            again = in_a_process(name, trial)
            return again is not None and again[0] == first

        data = smaller(data, fails)
        trial.unlink(missing_ok=True)
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / name_of(data)
        path.write_bytes(data)
        file.unlink()
        found.append({"file": str(path), "signature": failed[0], "message": failed[1]})
    return found


def _campaign(
    name: str,
    seconds: float,
    options: argparse.Namespace,
) -> tuple[running.Run, list[dict[str, str]]]:
    work, log = options.work.absolute(), options.log
    result = running.run(name, seconds, work, options.processor)
    found = _confirmed(name, work)
    if result.failed:
        found.append({"file": "", "signature": "its process ended", "message": result.failed})
    line = {
        "target": name,
        "executions": result.executions,
        "seconds": round(result.seconds, 1),
        "processor": round(result.processor, 1),
        "new": result.new,
        "found": found,
    }
    if log:
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
    rate = result.executions / max(result.processor, 1)
    print(
        f"{name:32}{result.executions:>14,}{result.seconds:>9.0f}{result.processor:>11.0f}{rate:>9.0f}{result.new:>7}{len(found):>8}",
        flush=True,
    )
    for each in found:
        print(f"  {each['file']}: {each['signature']}: {each['message']:.300}", flush=True)
    return result, found


def main(arguments: Sequence[str]) -> int:
    """Runs a campaign; returns 1 if it found anything."""
    options = _parser().parse_args(arguments)
    known = [*registry.NAMES]
    if options.names == ["list"]:
        print("\n".join(known))
        return 0
    names = known if options.names == ["all"] else options.names
    if unknown := [name for name in names if name not in known]:
        print(
            f"error: no target {unknown[0]!r}: expected all, list or {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    processes = max(1, options.processes)
    seconds = options.seconds or 60.0
    if options.hours:
        seconds = options.hours * 3600 * processes / len(names)
    print(
        f"{'target':32}{'executions':>14}{'seconds':>9}{'processor':>11}{'per s':>9}{'new':>7}{'found':>8}",
        flush=True,
    )
    with ThreadPoolExecutor(processes) as pool:
        runs = list(pool.map(lambda name: _campaign(name, seconds, options), names))
    total = sum(result.executions for result, _ in runs)
    new, found = sum(result.new for result, _ in runs), sum(len(each) for _, each in runs)
    print(
        f"{'all':32}{total:>14,}{sum(r.seconds for r, _ in runs):>9.0f}{sum(r.processor for r, _ in runs):>11.0f}{'':9}{new:>7}{found:>8}"
    )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
