#!/usr/bin/env bash
# Makes sure that a C++ compiler, the Python headers and the venv module are there; installs them with
# apt-get on Debian and Ubuntu (as root, or through sudo), and says what is missing elsewhere.
set -euo pipefail
python=${1:-python3}

missing=()
command -v g++ >/dev/null || command -v clang++ >/dev/null || missing+=(g++)
if ! command -v "$python" >/dev/null; then
  missing+=(python3 python3-venv python3-dev)
else
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' \
    2>/dev/null || missing+=(python3-dev)
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "error: missing: ${missing[*]} (Debian package names); install them and run make again" >&2
  exit 1
fi
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)
echo "installing ${missing[*]}"
"${root[@]}" apt-get update -qq
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
