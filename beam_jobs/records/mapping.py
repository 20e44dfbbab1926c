"""`--map`: a user's function that makes the features of a record from those of its job."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from readers.format.decode.images import EncodedImage
from readers.format.dtypes import dtype_name
from readers.format.encodings.values import checked_array
from readers.format.protobuf.tensor import string_values
from readers.format.schema import Feature, Schema

# An entry next to the job's options in the manifest: the SHA-256 of the source of --map's module.
MAP_DIGEST = "map_sha256"

# A feature of --map_schema: its name, dtype, sizes and encoding.
_STATED = re.compile(r"\s*([^=\[\],]+)=(\w+)(?:\[([^\]]*)\])?(?::(\w+))?\s*(?:,|$)")

# Module -> the SHA-256 of the source that was imported.
_imported: dict[str, str] = {}


class Info(NamedTuple):
    """Facts about a record that a function gets in addition to its features.

    Attributes:
        key: The record's key.
        rate: Samples per second of its signals; None if it has none, or their rate is unknown.
        channels: The number of channels of its signals or its image; None without these, or if signals differ.
    """

    key: str
    rate: float | None
    channels: int | None


@dataclass(frozen=True)
class Mapper:
    """Makes the features of a record with a function.

    Attributes:
        function: Its name, `MODULE:FUNCTION`.
        digest: The SHA-256 of the source of its module.
        features: The features that it gets.
        schema: The features that it returns, and those of `kept`.
        kept: The features that it may not change, such as the key.
        compress: Returns the JPEG or PNG file of pixels [height, width, channels], given the encoding.
        rate, channels: See `Info`.
        growth: The bytes of returned features for each byte of given ones.
    """

    function: str
    digest: str
    features: Schema
    schema: Schema
    kept: frozenset[str]
    compress: Callable[[np.ndarray, str], bytes]
    rate: float | None = None
    channels: int | None = None
    growth: float = 1.0

    @functools.cached_property
    def _loaded(self) -> tuple[Callable[..., Any], str]:
        function, digest, file = load_function(self.function)
        if digest != self.digest:
            raise UsageError(
                f"--map {self.function}: {file} differs from the module where the job was started: "
                "install the same one on every worker"
            )
        return function, file

    def values(self, record: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The features that the function returns for a record, as `Encoder.check` returns values.

        Args:
            record: A value of every feature of `features`, in a form that `Encoder.encode` takes.
            key: The record's key.

        Raises:
            RejectError: The function raised an exception, or returned what does not fit `schema`.
            UsageError: It changed a feature of `kept`.
            ValueError: The record does not fit `features`.
        """
        stored, given = self.given(record)
        made = self.call(given, key)
        for name in given.keys() & made.keys():
            # An image that is the same object keeps its bytes.
            if made[name] is given[name] and self.features[name] == self.schema.get(name):
                made[name] = stored[name]
        return self.fitted(made)

    def given(self, record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A record's features as they would be stored, and as the function gets them; ValueError if they do not fit."""
        stored = {
            name: record[name]
            if feature.step
            else feature.codec.checked(name, feature, record[name])
            for name, feature in self.features.items()
        }
        return stored, {n: _decoded(n, f, stored[n]) for n, f in self.features.items()}

    def call(self, given: Mapping[str, Any], key: str) -> dict[str, Any]:
        """The dict that the function returns, with the features of `kept`; see `values`."""
        function, file = self._loaded
        own = given.get("key")  # That of a dataset, whose records are named by their files.
        info = Info(own if isinstance(own, str) else key, self.rate, self.channels)
        try:
            made = function(dict(given), info)
        except Exception as error:
            what = str(error) if isinstance(error, RejectError) else _described(error)
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == file]
            where = f" ({os.path.basename(file)}, line {lines[-1]})" if lines else ""
            raise RejectError(f"--map {self.function}: {what}{where}") from None
        if not isinstance(made, dict) or not all(isinstance(name, str) for name in made):
            raise RejectError(
                f"--map {self.function}: returned {type(made).__name__}, expected a dict of features"
            )
        for name in self.kept & made.keys():
            one, other = (np.asarray(values[name], object) for values in (made, given))
            if made[name] is not given[name] and not np.array_equal(one, other):
                raise UsageError(
                    f"--map {self.function}: changed {name!r} of {key} from {given[name]!r:.80} to "
                    f"{made[name]!r:.80}; a function may not change it: do not return it"
                )
        return made | {name: given[name] for name in self.kept}

    def fitted(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """The features that the function returned, as from `Encoder.check`; RejectError if they do not fit `schema`."""
        for name in sorted(made.keys() - self.schema.keys()):
            new = feature_of(made[name])
            raise RejectError(
                f"--map {self.function}: feature {name!r} is missing in the first records: return it "
                f"for every record{f', and add --map_schema {stated(name, new)}' if new else ''}"
            )
        for name in sorted(self.schema.keys() - made.keys()):
            raise RejectError(
                f"--map {self.function}: feature {name!r} is missing: return it for every record"
            )
        return {name: self.fit(name, f, made[name]) for name, f in self.schema.items()}

    def fit(self, name: str, feature: Feature, value: Any) -> Any:
        """The value of one feature, as from `Encoder.check`; RejectError with a schema that fits, if it does not."""
        try:
            if feature.codec.is_image and isinstance(value, np.ndarray):
                pixels = checked_array(name, feature, value)
                return self.compress(pixels, feature.encoding)
            return feature.codec.checked(name, feature, value)
        except ValueError as error:
            of_value = feature_of(value)
            holds = merged(feature, of_value) or of_value
            cure = f"; --map_schema {stated(name, holds)} would fit" if holds else ""
            raise RejectError(f"--map {self.function}: {error}{cure}") from None


def load_function(text: str) -> tuple[Callable[..., Any], str, str]:
    """The function of `MODULE:FUNCTION`, the SHA-256 of its module's source, and the source file.

    Raises:
        UsageError: The module cannot be imported here, or has no such function.
    """
    name, _, function = text.partition(":")
    if not (name and function):
        raise UsageError(f"--map {text}: expected MODULE:FUNCTION, such as features:log_mel")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(name)
        file = str(module.__file__)
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        if _imported.setdefault(name, digest) != digest:  # Edited since, as in a notebook.
            module = importlib.reload(module)
            _imported[name] = digest
    except Exception as error:
        raise UsageError(
            f"--map {text}: {name} cannot be imported ({_described(error)}): expected a .py file in "
            "the current folder, or a package that is installed here and on every worker"
        ) from None
    loaded = getattr(module, function, None)
    if not callable(loaded):
        raise UsageError(f"--map {text}: {file} has no function {function!r}")
    return loaded, digest, file


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _decoded(name: str, feature: Feature, value: Any) -> Any:
    """A stored value as the function gets it; arrays are read-only."""
    if feature.is_image:
        if feature.step:
            return [_decoded(name, feature.step, image) for image in value]
        image = EncodedImage(name, feature, value)
        value = np.empty(image.shape, image.dtype)
        image.decode_into(value)
    elif isinstance(value, list):
        return [_decoded(name, feature, array) for array in value]
    elif isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, np.ndarray):
        return value
    if feature.dtype == "string":  # As readers return it.
        value = np.array(string_values(value), object).reshape(value.shape)
    if not value.ndim:
        return value.item()
    # Windows of a recording overlap, so a function that writes into one would change the next.
    value = value.view()
    value.flags.writeable = False
    return value


def feature_of(value: Any) -> Feature | None:
    """The feature for a value that a function returned; None if its dtype is unknown."""
    if isinstance(value, bytes):
        return Feature("string", (), "list")
    try:
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            part = functools.reduce(merged, map(feature_of, value))
            return part and Feature(part.dtype, (None, *part.shape), "sequence")
        array = np.asarray(value)
        if array.dtype.kind == "O":
            string_values(array)
        if isinstance(value, np.ndarray | np.generic):
            return Feature(dtype_name(array.dtype), array.shape)
        if not array.size:
            return None
        # Examples hold float32.
        return Feature(
            "float32" if array.dtype.kind == "f" else dtype_name(array.dtype), array.shape
        )
    except Exception:  # Tensors of other libraries raise nearly everything.
        return None


def merged(one: Feature | None, other: Feature | None) -> Feature | None:
    """The feature for the values of two features, with the encoding of the first; None if none fits."""
    if not (one and other):
        return None
    forms = [(f.dtype, len(f.shape), f.is_sequence) for f in (one, other)]
    if forms[0] != forms[1]:
        return None
    shape = (a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))
    return Feature(one.dtype, tuple(shape), one.encoding)


def stated(name: str, feature: Feature) -> str:
    """A feature as `--map_schema` states it, such as `mel=float32[None,80]`."""
    shape = f"[{','.join(map(str, feature.shape))}]" if feature.shape else ""
    default = Feature(feature.dtype, feature.shape).encoding
    return f"{name}={feature.dtype}{shape}" + f":{feature.encoding}" * (feature.encoding != default)


def parse_map_schema(text: str) -> dict[str, Feature]:
    """The features that `mel=float32[None,80],thumbnail=uint8[32,32,3]:png` states.

    Raises:
        UsageError: The text is not valid, or a feature is stated twice or cannot exist.
    """
    features: dict[str, Feature] = {}
    at = 0
    while at < len(text):
        match = _STATED.match(text, at)
        if not match or match[1] in features:
            raise UsageError(
                f"--map_schema {text}: expected NAME=DTYPE[SIZES]:ENCODING,… such as "
                f"mel=float32[None,80],loud=bool, each name once; got {text[at:]!r:.80}"
            )
        sizes = [size.strip() for size in (match[3] or "").split(",") if size.strip()]
        try:
            shape = [None if size == "None" else int(size) for size in sizes]
            features[match[1]] = Feature(match[2], shape, match[4] or "")
        except (ValueError, ImportError) as error:
            raise UsageError(f"--map_schema {match[0].strip(', ')}: {error}") from None
        at = match.end()
    return features
