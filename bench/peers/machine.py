"""What the figures were measured on, in a few words."""

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
NOTABLE = {"avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX-VNNI", "avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
"""Vector instructions by the kernel's name, the best first."""


def machine() -> str:
    """Give the processor, the cores that this process may use, and the best vector instructions, if they are known."""
    fields = _fields()
    flags = f"{fields.get('flags', '')} {fields.get('Features', '')}".split()
    best = next((words for flag, words in NOTABLE.items() if flag in flags), None)
    name = fields.get("model name") or platform.processor() or platform.machine()
    return ", ".join(part for part in (name, f"{_cores()} cores", best) if part)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fields() -> dict[str, str]:
    """The fields of the first processor; nothing where the kernel does not say."""
    if not CPUINFO.exists():
        return {}
    first = CPUINFO.read_text().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
