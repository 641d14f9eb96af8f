#include "rope.h"

#include <cmath>

namespace intattention {

void Rope::angles(size_t position, size_t count, float* cos, float* sin) const {
  for (size_t t = 0; t < count; ++t)
    for (const double frequency : inverse_frequency) {
      const double angle = static_cast<double>(position + t) * frequency;
      *cos++ = static_cast<float>(std::cos(angle) * attention_factor);
      *sin++ = static_cast<float>(std::sin(angle) * attention_factor);
    }
}

std::vector<double> plain_frequencies(double theta, size_t dim) {
  std::vector<double> frequencies;
  for (size_t i = 0; i < dim / 2; ++i)
    frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  return frequencies;
}

}  // namespace intattention
