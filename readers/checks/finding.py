"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass

from readers.format.display import shortened, visible

# From the worst to the mildest.
SEVERITIES = ("error", "warning", "note")

# Characters of the name of a record that are printed.
_EXAMPLE = 100


@dataclass(frozen=True)
class Finding:
    """Something about a dataset that its user should know.

    Attributes:
        check: The name of the check.
        severity: `error`, `warning` or `note`.
        message: What was found, of how many, and with what it was compared.
        feature: The feature that it concerns; empty if it concerns the whole dataset.
        split: The split that it concerns; empty if it concerns all splits.
        count: The number of records at fault; 0 if no single record is.
        seen: How many records the check saw.
        examples: Keys of the first of these records, or their numbers.
        places: The split and the number there of each record that `examples` names.
    """

    check: str
    severity: str
    message: str
    feature: str = ""
    split: str = ""
    count: int = 0
    seen: int = 0
    examples: tuple[str, ...] = ()
    places: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.split, self.feature)))
        shown = ", ".join(shortened(name, _EXAMPLE) for name in self.examples)
        text = f"{self.severity}: {self.check}: {about}{': ' if about else ''}{self.message}"
        return visible(f"{text} ({shown})" if shown else text)
