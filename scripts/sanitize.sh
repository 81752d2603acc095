#!/usr/bin/env bash
# Runs the tests of the native code under the address and undefined-behaviour sanitizers.
#   scripts/sanitize.sh PYTHON [OPTIONS OF PYTEST]
# PYTHON has soothsay built with SOOTHSAY_SANITIZE, as `make sanitize` does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$1"
shift

# The interpreter is not sanitized, so the sanitizers are loaded before it, and what Python never frees is no leak.
compiler="${CXX:-c++}"
LD_PRELOAD="$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libubsan.so)"
export LD_PRELOAD
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

"$python" - <<'CHECK'
import ctypes
from soothsay import _native
if not hasattr(ctypes.CDLL(_native.__file__), "__asan_init"):
    raise SystemExit(f"{_native.__file__} is not built with the sanitizers; `make sanitize` does that")
CHECK

# What a sanitizer says is written by no Python object: pytest must not hold it back (--capture=sys).
# One shape of model stands for all where the portable kernels, slow here, compute whole texts.
exec "$python" -m pytest -p no:cacheprovider --capture=sys \
  -k "not (test_native_bits and portable) or 7to1" "$@" \
  tests/model/test_kernels.py tests/model/test_native.py tests/model/test_native_bits.py tests/model/test_cache.py \
  tests/model/test_requantise.py tests/sampling/test_native_laws.py
