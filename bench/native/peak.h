// Multiply peak of an ISA: a loop of its s8 multiply on registers alone. Returns the MAC done.
#pragma once

#include <cstddef>

namespace intattention::bench {

using PeakProbe = double (*)(size_t iterations);

double peak_avx2(size_t iterations);        // vpmaddwd + vpaddd: 16 MAC in two operations on three ports
double peak_avxvnni(size_t iterations);     // vpdpbusd ymm: 32 MAC
double peak_avx512vnni(size_t iterations);  // vpdpbusd zmm: 64 MAC

}  // namespace intattention::bench
