"""Which records are near duplicates of which: pure functions of blocks of sketches.

The sketches of a few hundred or thousand records are a block. Records that share a key meet in a partition and
become candidates, in pairs; the probe of the first of each pair travels to the block of the second, where both are
compared. So no worker holds more than the keys of a partition or the probes of a block.
"""
