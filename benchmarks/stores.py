"""The process of a contender of `read_stores.py`, which writes its shards or is timed for two epochs.

All read from `AWS_ENDPOINT_URL`, in batches of 128 and a random order, and shards have about 64 MB,
which is the default of MosaicML Streaming and the size in LitData's documentation.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from records import BATCH, SHUFFLE_BUFFER, Records

_SHARD_BYTES = 64_000_000
_WORKERS = 2

# The first values of a record, which identify it.
_PREFIX = 8


def _shards(records: Records) -> Iterator[range]:
    """Yields the numbers of the records of each shard."""
    count = _number_of_shards(records)
    ends = [len(records) * number // count for number in range(count + 1)]
    return map(range, ends[:-1], ends[1:])


def _number_of_shards(records: Records) -> int:
    return max(round(records.nbytes / _SHARD_BYTES), _WORKERS)


def _write_ours(records: Records, store: Path) -> None:
    from beam_jobs.__main__ import main

    shards = ["--num_shards", str(_number_of_shards(records))]
    main(["reshard", "--input", str(records.folder / "dataset"), "--output", str(store), *shards])


def _write_mds(records: Records, store: Path) -> None:
    import streaming

    columns = {"image": "ndarray:uint8:64,64,3"}
    with streaming.MDSWriter(out=str(store), columns=columns, size_limit=_SHARD_BYTES) as writer:
        for row in records:
            writer.write({"image": row["image"]})


def _litdata_row(records: Records, number: int) -> dict[str, np.ndarray]:
    return {"image": records[number]["image"]}


def _write_litdata(records: Records, store: Path) -> None:
    import litdata

    rows = partial(_litdata_row, records)
    numbers = list(range(len(records)))
    litdata.optimize(
        rows, numbers, str(store), chunk_bytes=_SHARD_BYTES, num_workers=_WORKERS, verbose=False
    )


def _write_webdataset(records: Records, store: Path) -> None:
    import webdataset

    for number, rows in enumerate(_shards(records)):
        with webdataset.TarWriter(str(store / f"{number:05d}.tar")) as writer:
            for row in rows:
                writer.write({"__key__": f"{row:07d}", "npy": records[row]["image"]})


def _ours(method: str, url: str, cache: str, keeps: bool = True, by: Any = None) -> Iterable[Any]:
    import readers

    read = getattr(readers, method)
    kept = readers.Cache(cache) if keeps else None
    return read(url, batch_size=BATCH, shuffle=readers.Order(by=by), cache=kept, columns=["image"])


def _mds(url: str, cache: str) -> Iterable[Any]:
    import streaming
    from torch.utils.data import DataLoader

    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(
        remote=url, local=cache, shuffle=True, batch_size=BATCH, num_canonical_nodes=1
    )
    for stream in dataset.streams:
        # Otherwise the workers share the connection of this process, and read each other's answers.
        stream._downloader.clean_up()
    return DataLoader(dataset, BATCH, num_workers=_WORKERS, persistent_workers=True)


def _litdata(url: str, cache: str) -> Iterable[Any]:
    import litdata
    from litdata.streaming import downloader

    # Its client accepts only servers with TLS, and has no argument for that.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    options = {
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "region_name": os.environ["AWS_DEFAULT_REGION"],
    }
    dataset = litdata.StreamingDataset(url, cache, shuffle=True, storage_options=options)
    return litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=_WORKERS, persistent_workers=True
    )


def _webdataset(url: str, cache: str, keeps: bool) -> Iterable[Any]:
    import webdataset

    # It reads from stores with a command that prints a file; for a public bucket, curl.
    address = f"{os.environ['AWS_ENDPOINT_URL']}/{url.removeprefix('s3://')}"
    count = int(os.environ["STORE_TARS"])
    Path(cache).mkdir()
    urls = [f"{address}/{number:05d}.tar" for number in range(count)]
    records = webdataset.WebDataset(
        urls, shardshuffle=count, seed=0, cache_dir=cache if keeps else None
    )
    batches = records.shuffle(SHUFFLE_BUFFER // _WORKERS).decode().to_tuple("npy").batched(BATCH)
    return webdataset.WebLoader(
        batches, batch_size=None, num_workers=_WORKERS, persistent_workers=True
    )


WRITERS: dict[str, Callable[[Records, Path], None]] = {
    "ours": _write_ours,
    "mds": _write_mds,
    "litdata": _write_litdata,
    "webdataset": _write_webdataset,
}

# The contender whose shards are read, and the function that opens them.
READERS: dict[str, tuple[str, Callable[[str, str], Iterable[Any]]]] = {
    "as_numpy": ("ours", partial(_ours, "as_numpy")),
    "load": ("ours", partial(_ours, "load")),
    "as_numpy without cache": ("ours", partial(_ours, "as_numpy", by="interleave", keeps=False)),
    "load without cache": ("ours", partial(_ours, "load", keeps=False)),
    "LitData": ("litdata", _litdata),
    "MosaicML Streaming": ("mds", _mds),
    "WebDataset": ("webdataset", partial(_webdataset, keeps=True)),
    "WebDataset without cache": ("webdataset", partial(_webdataset, keeps=False)),
}


def _checksum(batch: Any) -> tuple[int, int]:
    """Returns the number of records of a batch, and a sum that does not depend on their order."""
    rows = np.asarray(batch["image"] if isinstance(batch, dict) else batch[0])
    prefix = rows.reshape(len(rows), -1)[:, :_PREFIX].astype(np.int64)
    return len(rows), int((prefix @ 251 ** np.arange(_PREFIX // 2).repeat(2)).sum())


def counts(method: str = "GET") -> dict[str, int]:
    """Returns the numbers of requests and of bytes of the server; `DELETE` resets them."""
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], method=method)
    with urllib.request.urlopen(request) as answer:
        found: dict[str, int] = json.load(answer)
    return found


def _import(name: str) -> None:
    """Imports the libraries of a contender, whose time is not measured."""
    if name in ("as_numpy", "load"):
        import boto3  # noqa: F401

        import readers

        if name == "load":
            import readers.tfdata.dataset  # noqa: F401
    elif name == "mds":
        import streaming  # noqa: F401
    elif name == "litdata":
        import litdata  # noqa: F401
    else:
        import torch  # noqa: F401
        import webdataset  # noqa: F401


def write(contender: str, records: str, store: str) -> None:
    """Writes the shards of a contender to a new folder."""
    if contender != "ours":
        Path(store).mkdir(parents=True)
    WRITERS[contender](Records(Path(records)), Path(store))


def read(name: str, url: str, cache: str) -> dict[str, Any]:
    """Returns the figures of two epochs, the first one with an empty cache and from the start."""
    contender, opened = READERS[name]
    _import(name.partition(" ")[0] if contender == "ours" else contender)
    epochs: list[dict[str, float]] = []
    counts("DELETE")
    began = time.perf_counter()
    batches = opened(url, cache)
    for _ in range(2):
        count = total = 0
        first = None
        for batch in batches:
            first = first or time.perf_counter() - began
            rows, checksum = _checksum(batch)
            count, total = count + rows, total + checksum
        seconds = time.perf_counter() - began
        found = {"seconds": seconds, "first": first or 0, "records": count, "checksum": total}
        epochs.append({**found, **counts()})
        counts("DELETE")
        began = time.perf_counter()
    return {"epochs": epochs}
