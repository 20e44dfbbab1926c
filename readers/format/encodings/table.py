"""All encodings by name."""

from __future__ import annotations

from dataclasses import dataclass

from readers.format.encodings.bytes_values import ImageEncoding, TextEncoding
from readers.format.encodings.compressed import ZlibEncoding
from readers.format.encodings.encoding import Encoding
from readers.format.encodings.flat import ListEncoding, RawEncoding
from readers.format.encodings.spec import Spec
from readers.format.encodings.tensors import SequenceEncoding, TensorEncoding

# Follows the name of the encoding of each step.
_STEPS = " steps"


@dataclass(frozen=True)
class StepsEncoding(Encoding):
    """A feature list of a SequenceExample, where each step has an encoding; it can be read, but not written."""

    of: Encoding | None = None

    def step_of(self, spec: Spec) -> Spec:
        """The spec of each step."""
        return Spec(spec.dtype, spec.shape[1:])

    def problem(self, spec: Spec) -> str | None:
        if not spec.shape:
            return "the first dimension of a feature list counts its steps: expected [None] for scalars"
        step = self.step_of(spec)
        assert self.of is not None
        if problem := self.of.problem(step):
            return f"each step is {self.of.described(step)}: {problem}"
        if self.of.reads_shape(step) and step.shape.count(None) > 1:
            return "only one unknown size per step can be inferred from its values"
        return None

    def is_sequence(self, spec: Spec) -> bool:
        return not self.step_of(spec).is_fixed


_OF_STEPS: tuple[Encoding, ...] = (
    TensorEncoding("tensor"),
    ListEncoding("list"),
    RawEncoding("raw"),
    TextEncoding("text"),
    ImageEncoding("jpeg", channels=(1, 3)),
    ImageEncoding("png", dtypes=("uint8", "uint16")),
    ImageEncoding("source"),
)

_STEPS_OF = tuple(
    StepsEncoding(each.name + _STEPS, each.is_image, each.is_text, of=each) for each in _OF_STEPS
)

_ZLIB = ZlibEncoding("zlib"), ZlibEncoding("zlib_shuffled", is_shuffled=True)

ENCODINGS: dict[str, Encoding] = {
    each.name: each for each in (*_OF_STEPS, SequenceEncoding("sequence"), *_ZLIB, *_STEPS_OF)
}
