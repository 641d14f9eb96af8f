#!/bin/sh
# clang for Apple silicon: `zig c++` of the Python package ziglang, which spells -march its own way.
for option; do
  shift
  case $option in
    -march=armv8.2-a+*) option=-mcpu=generic+v8_2a+$(echo "${option#*+}" | sed 's/fp16/fullfp16/') ;;
  esac
  set -- "$@" "$option"
done
exec python-zig c++ -target aarch64-macos "$@"
