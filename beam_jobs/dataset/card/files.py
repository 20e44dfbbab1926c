"""The files of a dataset's card, which are pure functions of its manifest."""

from __future__ import annotations

from beam_jobs.dataset.card.croissant import croissant
from beam_jobs.dataset.card.readme import readme
from beam_jobs.dataset.card.tfds import tfds_files
from readers.format.manifest import CROISSANT, README, Manifest


def card_files(manifest: Manifest) -> dict[str, bytes]:
    """The content of each file of the card, by name.

    Args:
        manifest: The dataset, of which `options["license"]` is the licence, if it is a text.
    """
    return {
        README: readme(manifest),
        CROISSANT: croissant(manifest),
        **tfds_files(manifest),
    }
