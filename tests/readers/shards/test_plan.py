from readers.format.lookup.index_file import IndexFile
from readers.format.schema import Schema
from readers.shards.plan import Part, Plan


def test_a_slice_skips_shards_without_records():
    index = IndexFile("", "", 9, None, None, None)
    parts = tuple(Part(f"{count}", 5, count, 9, index) for count in (3, 0, 4))
    plan = Plan("train", Schema({"x": ("int64",)}), parts, 7, 1.0, ())
    sliced = plan.slice(2, 5)
    assert [(part.path, part.skip, part.take) for part in sliced.parts] == [
        ("3", 7, 1),
        ("4", 5, 2),
    ]
    assert sliced.records == 3
