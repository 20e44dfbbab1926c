"""Counts the lines of large files in parallel.

Lines are numbered from the beginning of their file, but a file is cut without reading it. So tasks
count the lines in ranges of bytes; the counts of a whole file give the place and the number of the
first line in each range.
"""

from __future__ import annotations

from beam_jobs.errors import RejectError
from beam_jobs.sources.chunks import Chunk, RangeCount
from beam_jobs.sources.inputs import Inputs
from beam_jobs.storage.encodings import HEAD_BYTES, UTF8, check_head

_BLOCK_BYTES = 1 << 20


def count_lines(inputs: Inputs, chunk: Chunk) -> RangeCount:
    """The lines that begin in a range of a file: at its first byte, or after a line end."""
    lines, begin = int(not chunk.start), 0
    # A line begins at the range's first byte if the byte before it ends one.
    at, last = max(chunk.start - 1, 0), chunk.end - 1
    try:
        with inputs.stream(chunk.source) as file:
            file.seek(at)
            while at < last and (block := file.read(min(_BLOCK_BYTES, last - at))):
                if not at:
                    check_head(block[:HEAD_BYTES], UTF8)
                if not lines:
                    begin = at + block.find(b"\n") + 1
                lines += block.count(b"\n")
                at += len(block)
    except (OSError, RejectError) as error:
        return RangeCount(chunk, error=str(error))
    return RangeCount(chunk, lines, begin)
