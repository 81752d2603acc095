"""Record what transformers answers for the tiny checkpoints of the tests.

Run `python -m scripts.record_logits` in the repository's root, with torch and transformers installed, whenever
`tests/checkpoints.py` changes; the tests then need neither.
"""

import tempfile
from pathlib import Path

import numpy as np

from soothsay.model.gguf import GGUFFile
from tests.checkpoints import CASES, prompt, write_checkpoint
from tests.twins import Twin

FIXTURE = Path("tests/fixtures/models/logits.npz")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        logits = {}
        for name, recipe in CASES.items():
            file = GGUFFile.open(write_checkpoint(Path(folder) / f"{name}.gguf", recipe))
            logits[name] = Twin(file, recipe).logits(prompt(recipe))
    np.savez_compressed(FIXTURE, allow_pickle=False, **logits)


if __name__ == "__main__":
    main()
