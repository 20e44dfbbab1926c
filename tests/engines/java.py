"""Commands of Java programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.engines.packages import needed_by

# Engines older than Java 17 access internals of java.base, which it does not allow by default.
_PACKAGES = (
    *(f"java.{name}" for name in ("lang", "net", "io", "nio", "util", "time")),
    *("java.lang.invoke", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("java.util.concurrent.locks", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
)
OPENS = tuple(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES)

# The garbage collector and the compiler that start fastest, for short runs.
FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.type = CONSOLE
appender.console.name = Console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} - %m%n
"""


def java(
    heap: str,
    classes: Iterable[Path | str],
    main: str,
    arguments: Sequence[str],
    properties: Sequence[str] = (),
) -> list[str]:
    """The command of a Java program.

    Args:
        heap: The largest heap, such as "512m".
        classes: Jars and patterns of jars.
        main: The main class.
        arguments: The program's arguments.
        properties: Options of the JVM, such as "-Dname=value".
    """
    path = ":".join(map(str, classes))
    machine = [f"-Xmx{heap}", *FAST_START, *OPENS, *properties]
    return [needed_by("java", "the engine"), *machine, "-cp", path, main, *arguments]


def job_server_arguments(folder: Path, port: int, master: str, address: str) -> list[str]:
    """The arguments of one of Beam's job servers.

    Args:
        folder: The engine's folder.
        port: The port for jobs.
        master: The name of the argument for the cluster's address, such as "flink-master".
        address: The cluster's address.
    """
    ports = {"job-port": port, "artifact-port": 0, "expansion-port": 0}
    arguments = {master: address, "artifacts-dir": folder / "artifacts", **ports}
    return [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
