#!/usr/bin/env bash
# Cross-builds the aarch64 wheel on x86-64 Debian, installs it into an arm64 Python that lies in a folder, and runs it
# under qemu: `intattention doctor`, and SmolLM2 packed on this machine, whose tokens and bits must be this machine's.
#   scripts/arm_wheel.sh [CPU...]       qemu's names: cortex-a72 (neon), cortex-a76 (dotprod), max (i8mm); default cortex-a76
# Needs g++-aarch64-linux-gnu, qemu-user-static, and a virtual environment ($VENV, default .venv) with this package, the
# model, ninja, scikit-build-core and pybind11. Objects of build/aarch64 (preset aarch64) are used again. All in build/arm.
set -euo pipefail
cd "$(dirname "$0")/.."
cpus=("${@:-cortex-a76}")
python=$(realpath -s "${VENV:-.venv}")/bin/python
export PATH="$(dirname "$python"):$PATH"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
suffix=.cpython-${version/./}-aarch64-linux-gnu.so
work=$PWD/build/arm
root=$work/root site=$work/site

# The arm64 Debian packages of Python, unpacked beside the system and not into it.
fetch_python() {
  local apt="-qq -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists=$work/lists
    -oDir::Cache=$work/cache -oDir::State::status=/dev/null -oAPT::Sandbox::User=root"
  local packages="python$version-minimal libpython$version-minimal libpython$version-stdlib libpython$version
    libpython$version-dev libc6 libstdc++6 libgcc-s1 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0
    libuuid1 libncursesw6 libtinfo6 libreadline8 libgomp1 libcrypt1"
  mkdir -p "$work"/{lists/partial,cache,debs}
  apt-get $apt update
  (cd "$work/debs" && apt-get $apt download $packages)
  for package in "$work"/debs/*.deb; do dpkg -x "$package" "$root"; done
}

build_wheel() {
  rm -rf "$work/wheel"
  _PYTHON_HOST_PLATFORM=linux-aarch64 "$python" -m pip wheel --quiet --no-build-isolation --no-deps -w "$work/wheel" . \
    -C "cmake.args=--toolchain=$PWD/cmake/toolchain-aarch64.cmake;-GNinja" -C build-dir=build/aarch64 \
    -C cmake.define.INTATTENTION_BASELINE=armv8-a -C cmake.define.INTATTENTION_TESTS=OFF \
    -C "cmake.define.pybind11_DIR=$("$python" -m pybind11 --cmakedir)" \
    -C "cmake.define.Python_INCLUDE_DIR=$root/usr/include/python$version" \
    -C "cmake.define.CMAKE_CXX_FLAGS=-isystem $root/usr/include" \
    -C "cmake.define.PYTHON_MODULE_EXTENSION=$suffix" -C cmake.define.PYTHON_MODULE_DEBUG_POSTFIX=
}

# With NumPy, tokenizers and the others as published for this platform.
install_wheel() {
  rm -rf "$site"
  "$python" -m pip install --quiet --only-binary=:all: --python-version "$version" --target "$site" \
    --platform linux_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 "$work"/wheel/*.whl
}

# Not from the source tree, whose package would be found first.
arm() {
  local cpu=$1
  shift
  (cd "$work" && PYTHONPATH=$site qemu-aarch64-static -cpu "$cpu" -L "$root" "$root/usr/bin/python$version" "$@")
}

step() { printf -- '-- %s (%ss)\n' "$*" "$SECONDS"; }

[ -x "$root/usr/bin/python$version" ] || { step "arm64 Python $version"; fetch_python; }
step "wheel"
build_wheel
step "installation of $(cd "$work/wheel" && du -h *.whl)"
install_wheel
model=$work/smollm2.iatt
"$python" -m intattention pack --force smollm2-135m-instruct "$model"
"$python" scripts/greedy.py "$model" >"$work/expected.txt"
cat "$work/expected.txt"
for cpu in "${cpus[@]}"; do
  step "doctor on $cpu"
  arm "$cpu" -m intattention doctor | grep -E '^(system|CPU features|tables|table active)'
  step "SmolLM2 on $cpu"
  arm "$cpu" ../../scripts/greedy.py "$model" | diff "$work/expected.txt" -
done
step "the same tokens and logits on: ${cpus[*]}"
