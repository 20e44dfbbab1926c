"""The spec of the reshard job: its TFRecord files, and the features that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from beam_jobs.jobs.reshard.manifests import InputSplits
from beam_jobs.sources.chunks import Chunk
from beam_jobs.sources.classes import Names
from beam_jobs.sources.inputs import Inputs
from readers.files.stores.ahead import Read
from readers.files.stores.reading import EAGER_BYTES
from readers.format.schema import Schema


@dataclass(frozen=True)
class ReshardSpec:
    """A record is an Example or a SequenceExample of a TFRecord file, GZIP or not.

    Attributes:
        inputs: The files.
        given: The schema, if it need not be learned.
        keep: The features to keep; all if empty.
        drop: The features to drop.
        class_names: The class names in the manifest of the input, by feature.
        vocabulary: All words by id, from the manifest of the input; empty without words.
        tokenizer: The text of the input's `tokenizer.json`; empty without subwords.
        splits: The splits that the files belong to.
        sample_rate: Samples per second of all recordings; 0 if unknown.
    """

    inputs: Inputs
    given: Schema | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    class_names: Names = field(default_factory=dict)
    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""
    splits: InputSplits = field(default_factory=InputSplits)
    sample_rate: float = 0.0

    def reads(self, chunk: Chunk) -> Iterator[Read]:
        """Yields the first reads of a chunk in a store."""
        if chunk.end:
            return self.inputs.range_reads(chunk)
        return self.inputs.reads(chunk.source, EAGER_BYTES)

    def keeps(self, name: str) -> bool:
        """Whether a feature is kept."""
        return (not self.keep or name in self.keep) and name not in self.drop

    @property
    def changes_records(self) -> bool:
        """Whether features are dropped."""
        return bool(self.keep or self.drop)
