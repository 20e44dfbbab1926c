"""Commands of Java programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.engines.packages import needed_by

# Engines of before Java 17 take apart classes of java.base, which it lets nobody do unasked.
_PACKAGES = (
    *(f"java.{name}" for name in ("lang", "net", "io", "nio", "util", "time")),
    *("java.lang.invoke", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("java.util.concurrent.locks", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
)
OPENS = tuple(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES)

# The collector and the compiler that start fastest: none of these machines lives for long.
FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def java(
    heap: str,
    classes: Iterable[Path | str],
    main: str,
    arguments: Sequence[str],
    properties: Sequence[str] = (),
) -> list[str]:
    """A command.

    Args:
        heap: At most, such as "512m".
        classes: Jars and patterns of jars.
        main: The class that has the program.
        properties: Such as "-Dname=value".
    """
    path = ":".join(map(str, classes))
    machine = [f"-Xmx{heap}", *FAST_START, *OPENS, *properties]
    return [needed_by("java", "the engine"), *machine, "-cp", path, main, *arguments]
