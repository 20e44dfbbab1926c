"""Cuts large files of lines by bytes, counts the lines in parallel, and numbers them.

Lines are numbered from the beginning of their file, but a file is cut without reading it. So tasks
count the lines in ranges of bytes; the counts of a whole file give the place and the number of the
first line in each range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beam_jobs.sources.chunks import Chunk, RangeCount, in_order
from beam_jobs.sources.inputs import Inputs

_BLOCK_BYTES = 1 << 20


def count_lines(inputs: Inputs, chunk: Chunk) -> RangeCount:
    """The line ends in a range of a file."""
    # A line begins at the range's first byte if the byte before it ends one.
    at = max(chunk.start - 1, 0)
    begin = 0 if chunk.start == 0 else chunk.end
    newlines, last = 0, chunk.start
    try:
        with inputs.stream(chunk.source) as file:
            file.seek(at)
            while at < chunk.end and (block := file.read(min(_BLOCK_BYTES, chunk.end - at))):
                newlines += block.count(b"\n")
                if begin == chunk.end and (found := block.find(b"\n")) >= 0:
                    begin = min(at + found + 1, chunk.end)
                if at < chunk.start:
                    newlines -= block.startswith(b"\n")
                last = max(last, at + block.rfind(b"\n") + 1) if b"\n" in block else last
                at += len(block)
    except OSError as error:
        return RangeCount(chunk, error=f"cannot be read to its end: {error}")
    return RangeCount(chunk, newlines, begin, last)


def numbered_chunks(counts: Iterable[RangeCount]) -> Iterator[Chunk]:
    """Yields one numbered chunk of whole lines for each range of a file.

    The chunk is empty if no line begins in the range. A range that cannot be read becomes a chunk
    whose source has an error, and all chunks after it are empty.

    Args:
        counts: The counts of all ranges of the file, in any order.

    Raises:
        DataError: The ranges do not cover the file, or overlap.
    """
    ranges = in_order(counts, "lines")
    source = ranges[0].range.source
    # The last line that begins in a range ends where the next line begins.
    stops, stop = [], source.size
    for count in reversed(ranges):
        stops.append(stop)
        if count.begin < count.range.end:
            stop = count.begin
    before, broken = 0, False
    for count, stop, after in zip(ranges, reversed(stops), [*ranges[1:], None], strict=True):
        start, end = count.range.start, count.range.end
        if broken or (count.begin >= end and not count.error):
            yield Chunk(source, end, end, 1, 0)
        elif count.error:
            broken = True
            yield Chunk(source._replace(error=count.error), start, 0, 1, source.size - start)
        else:
            if after and after.error:
                stop = max(count.last, count.begin)
            first = 1 + before + (count.begin > start)
            yield Chunk(source, count.begin, stop, first, stop - count.begin)
        before += count.newlines
