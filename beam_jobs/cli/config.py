"""The flags of a job from a file, `--config`: YAML, JSON, or the manifest of a dataset."""

from __future__ import annotations

import argparse
import json
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_jobs.cli.parser import declared_flags
from beam_jobs.errors import UsageError, did_you_mean
from beam_jobs.packages import require


def with_config(arguments: Sequence[str]) -> list[str]:
    """The arguments, with the flags of `--config FILE` that they lack; UsageError if it has anything but flags of one job."""
    path, rest = _taken(arguments, "config")
    if path == "":
        raise UsageError("--config: expected a value, FILE or DIR")
    appends = "--append" in arguments
    if appends and path:
        raise UsageError("--append takes the flags of the dataset: drop --config")
    if appends and not {"-h", "--help"} & {*rest}:
        path, _ = _taken(rest, "output")
    if not path:
        return rest
    if "://" in path:
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions(rest))  # The options of a store.
    values, of_manifest = (_stated(path), True) if appends else _read(path)
    typed = rest.pop(0) if rest and not rest[0].startswith("-") else ""
    job = _job(path, typed, _shown(values.pop("job", "")))
    given = {argument.split("=", 1)[0].replace("-", "_") for argument in rest}
    wanted = {name: value for name, value in values.items() if f"__{name}" not in given}
    added = _arguments(path, job, wanted, of_manifest)
    return [job, *added, *rest]


def _taken(arguments: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """The value of a flag, which is empty if it has none, and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", nargs="?", const="")
    found, rest = parser.parse_known_args(arguments)
    return getattr(found, name), rest


def _stated(directory: str) -> dict[str, Any]:
    """The flags of a dataset, without those of its inputs; UsageError if there is no dataset."""
    from readers.format.manifest import DatasetError, open_generation

    try:
        options = open_generation(directory).manifest.options
    except DatasetError as error:
        raise UsageError(f"--append: {error}") from None
    texts = json.loads(json.dumps(options), parse_int=str, parse_float=str)
    return _flags_in(texts, "input", "table", "keep_out")


def _flags_in(options: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """The options of a manifest that are flags, without some others."""
    from beam_jobs.records.mapping import MAP_DIGEST
    from readers.format.manifest import FACTS

    left_out = (*others, *FACTS, MAP_DIGEST)
    return {name: value for name, value in options.items() if name not in left_out}


def _read(path: str) -> tuple[dict[str, Any], bool]:
    """The values of a file by key, and whether it is a manifest; numbers are text, as on a command line."""
    from beam_jobs.storage.files import read_bytes
    from readers.format.manifest import MANIFEST, join

    in_file = path.lower().endswith((".json", ".yaml", ".yml"))
    file = path if in_file else join(path, MANIFEST)
    try:
        text = read_bytes(file).decode("utf-8-sig")
        found = _parsed(text, file)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"--config {path}: {file} is missing; expected a .yaml or .json file, or the directory of a dataset"
        ) from None
    except RecursionError:
        raise UsageError(
            f"--config {path}: a list in a list: expected text, or a list of texts"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    of_manifest = not in_file
    if isinstance(found, dict) and isinstance(found.get("options"), dict):
        of_manifest, found = True, _flags_in(found["options"])
    if not isinstance(found, dict):
        raise UsageError(
            f"--config {path}: expected lines of a flag's name and its value, such as seed: 1"
        )
    return found, of_manifest


def _parsed(text: str, file: str) -> Any:
    if file.lower().endswith(".json"):
        return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_once_each)
    yaml = require("yaml", "beam", ".yaml files")
    try:
        # Its scalars are all text: other loaders turn 400:50 into 24050, and `no` into False.
        loader = yaml.BaseLoader(text)
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            _once_each((str(key.value), None) for key, _ in node.value)
        return loader.construct_document(node) if node else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: {getattr(error, 'problem', '')}" if mark else error
        raise ValueError(" ".join(str(line).split())) from None


def _once_each(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The values by name; raises ValueError if a name is repeated."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name:.80} is repeated; expected each name once")
        found[name] = value
    return found


def _shown(value: Any) -> str:
    """A value as an error shows it: cut short, because a few bytes of YAML may mean a billion values."""
    return value[:80] if isinstance(value, str) else reprlib.repr(value)[:80]


def _job(path: str, typed: str, stated: str) -> str:
    """The job, from its name on the command line and the one in the file; both may be empty."""
    jobs = declared_flags()
    job = typed or stated
    if job not in jobs:
        found = f"; found {job}{did_you_mean(job, jobs)}" if job else ""
        raise UsageError(
            f"--config {path}: expected a job, {', '.join(jobs)}: add a line such as job: images{found}"
        )
    if stated not in ("", job):
        raise UsageError(
            f"{path}: it is for the job {stated}, and the command is {job}; type {stated}, or name another file"
        )
    return job


def _arguments(path: str, job: str, values: Mapping[str, Any], of_manifest: bool) -> Iterator[str]:
    """Yields the values of a file as arguments.

    A manifest may come from anybody: it may not say where a job runs, what else it writes, or which code it runs.
    """
    declared = declared_flags()[job]
    typed_only = {"config", "json"}
    if of_manifest:
        typed_only |= {"map", *(name for name, flag in declared.items() if not flag.stated)}
    names = [name for name in declared if name not in typed_only]
    for name, value in values.items():
        if name not in names:
            if name in typed_only:
                raise UsageError(
                    f"--config {path}: give --{name} on the command line, not in a file"
                )
            hint = did_you_mean(name, names) or "; Beam's options stay on the command line"
            raise UsageError(f"--config {path}: {_shown(name)} is not a flag of {job}{hint}")
        flag = declared[name]
        if flag.kind is bool:
            stated = str(value).lower() if isinstance(value, bool | str) else ""
            if stated not in ("true", "false"):
                raise UsageError(
                    f"--config {path}: {name}: {_shown(value)}: expected true or false"
                )
            yield from [f"--{name}"] * (stated == "true")
            continue
        # Some defaults cannot be typed, such as no dtype.
        if value == flag.default:
            continue
        each = value if flag.kind is list and isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in each):
            expected = "text, or a list of texts" if flag.kind is list else "text"
            raise UsageError(f"--config {path}: {name}: {_shown(value)}: expected {expected}")
        yield from (f"--{name}={item}" for item in each)
