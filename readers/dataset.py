"""`readers.open`: a dataset as an object to print, to show in a notebook, and to read from."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import numpy as np

from readers import api
from readers.describe import describe
from readers.files.local import path_text
from readers.format.manifest import Manifest, divided, join
from readers.format.schema import Schema
from readers.format.splits import Split
from readers.shards.plan import Paths
from readers.shards.resolving.datasets import default_split

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from numpy.typing import NDArray

_P = ParamSpec("_P")

_R = TypeVar("_R")

# Of a classifier; larger labels are identifiers.
_MOST_CLASSES = 1 << 24

# The number of records that a notebook shows, and their style, because a notebook does not load our style sheet.
_SHOWN = 10
_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(180px,1fr));gap:1em"


def _of_directory(
    reader: Callable[Concatenate[Paths, _P], _R],
) -> Callable[Concatenate[Dataset, _P], _R]:
    """Makes a reader a method of a dataset, with the directory as its path."""

    @functools.wraps(reader)
    def method(self: Dataset, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return reader(self.directory, *args, **kwargs)

    whole = inspect.signature(reader)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    others = [*whole.parameters.values()][1:]
    method.__signature__ = whole.replace(parameters=[this, *others])  # type: ignore[attr-defined]
    return method


class Dataset:
    """A finished dataset, as returned by `readers.open`.

    The methods `load`, `as_numpy`, `torch_batches` and `jax_batches` are the readers of the same names,
    with this dataset as the path.

    Printing it shows the same text as `beam-shards info`. A notebook also shows ten records, drawn with a fixed seed.

    Attributes:
        directory: The dataset's directory.
        manifest: The manifest that the job wrote.
    """

    load = _of_directory(api.load)
    as_numpy = _of_directory(api.as_numpy)
    torch_batches = _of_directory(api.torch_batches)
    jax_batches = _of_directory(api.jax_batches)

    def __init__(self, directory: str, manifest: Manifest) -> None:
        self.directory, self.manifest = directory, manifest

    @property
    def schema(self) -> Schema:
        """The features of every record."""
        return self.manifest.schema

    @property
    def splits(self) -> Mapping[str, Split]:
        """Split name -> split."""
        return self.manifest.splits

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Feature name -> the names of its classes by id, for all features with named classes."""
        return self.manifest.classes

    def files(self, split: str | None = None) -> list[str]:
        """The paths of the shards, in order, for programs that do not read the manifest.

        Args:
            split: The name of a split; None for all of them.

        Raises:
            ValueError: There is no such split.
        """
        shards = self.manifest.shards if split is None else self.manifest.split(split).shards
        return [join(divided(self.directory)[0], shard.path) for shard in shards]

    def file(self, name: str) -> str:
        """The path of `vocabulary.txt` or `tokenizer.json`.

        Raises:
            ValueError: The dataset has no such file.
        """
        if name not in self.manifest.files:
            known = ", ".join(self.manifest.files) or "no files besides its shards"
            raise ValueError(f"no file {name!r}: the dataset has {known}")
        return join(divided(self.directory)[0], self.manifest.files[name].path)

    def class_weights(self, split: str | None = None) -> NDArray[np.float64]:
        """A weight for each class, inversely proportional to how often it occurs, float64 [classes].

        The weight of a class is records / (classes that occur * records of the class), as in scikit-learn's `balanced`; it is 0
        for a class without records. Keras takes `dict(enumerate(weights))` as `class_weight`, PyTorch's losses take
        `torch.tensor(weights, dtype=torch.float32)` as `weight`.

        Args:
            split: The split whose labels are counted. None means the only split, or `train`.

        Raises:
            ValueError: The records have no single label, labels were not counted because there are
                over 100,000 different ones, or some are negative or above 16 million; or there is no such split.
        """
        label = self.manifest.counted_label
        if not label:
            raise ValueError(f"{self.directory}: no feature with one label per record was counted")
        name = default_split(list(self.splits)) if split is None else split
        counts = self.manifest.split(name).counts_of(label)
        problem = "not counted" if counts is None else ""
        if counts and min(counts) < 0:
            problem = f"as small as {min(counts)}"
        elif counts and max(counts) >= _MOST_CLASSES:
            problem = f"as large as {max(counts)}"
        if counts is None or problem:
            raise ValueError(
                f"feature {label!r} in {name}: expected class ids from 0, but they are {problem}"
            )
        names = self.manifest.classes.get(label, ())
        weights = np.zeros(max(len(names), max(counts, default=-1) + 1))
        present = {number: count for number, count in counts.items() if count}
        for number, count in present.items():
            weights[number] = sum(present.values()) / (len(present) * count)
        return weights

    def __repr__(self) -> str:
        return describe(self.directory, self.manifest)

    def _repr_html_(self) -> str:
        from readers.pages.markup import element, to_html

        text = element("pre", str(self), style="overflow:auto")
        return to_html(element("div", text, self._gallery()))

    def _gallery(self) -> Element:
        """Ten records; or the reason why none can be read."""
        from readers.pages.cards.gallery import Cards
        from readers.pages.markup import element

        split = "train" if "train" in self.splits else next(iter(self.splits), "")
        if not split:
            return element("p", "there are no splits")
        gallery = Cards(self.directory, self.manifest)
        try:
            records = len(gallery.source(split))
            numbers = np.random.default_rng(0).choice(records, min(_SHOWN, records), replace=False)
            places = [(split, number) for number in sorted(numbers.tolist())]
            cards = gallery.figures(places, names_splits=False)
        except (ValueError, OSError, ImportError) as error:
            return element("p", f"the records of {split} cannot be shown: {error}")
        title = f"{len(cards)} of {records:,} records of {split}"
        return element("div", element("p", title), element("div", *cards, style=_GRID))


def open(directory: str | os.PathLike[str]) -> Dataset:
    """Opens a finished dataset on a disk or in an object store.

    Args:
        directory: The dataset's directory.

    Raises:
        DatasetError: (a ValueError) The directory has no manifest, or a damaged one.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> images = readers.open("shards/images")
        >>> images.classes["label"]
        ('rings', 'stripes')
    """
    return Dataset(path_text(directory), Manifest.read(directory))
