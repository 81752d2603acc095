#!/usr/bin/env bash
# Builds the native code with the address and undefined-behaviour sanitizers, in a folder of its own, and runs its tests.
# Uses the python on PATH, which needs what `make test` installs. Options go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/sanitize
python="$(command -v python)"
cmake -S . -B "$build" -DSOOTHSAY_SANITIZE=ON -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$build" --parallel >/dev/null

# The package of the working tree, with this extension instead of the ordinary one.
rm -rf "$build/package"
mkdir -p "$build/package"
cp -r src/soothsay "$build/package/"
rm -f "$build"/package/soothsay/_native*.so
cp "$build"/_native*.so "$build/package/soothsay/"

# The interpreter is not sanitized, so the runtime is loaded before it, and what Python itself never frees is no leak.
libraries="$("${CXX:-c++}" -print-file-name=libasan.so):$("${CXX:-c++}" -print-file-name=libubsan.so)"
# One shape of model stands for all where the portable kernels, slow here, compute whole texts.
LD_PRELOAD="$libraries" \
  ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 \
  UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
  PYTHONPATH="$build/package" \
  "$python" -m pytest -p no:cacheprovider -k "not (test_native_bits and portable) or 7to1" "$@" \
  tests/model/test_kernels.py tests/model/test_native.py tests/model/test_native_bits.py tests/model/test_cache.py \
  tests/model/test_requantise.py tests/test_native_sampling.py
