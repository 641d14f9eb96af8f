// LinearW4A8: y = x W^T with packed int4 or int8 weights and int8 activations (docs/numerics.md 6).
#pragma once

#include <memory>
#include <vector>

#include "activations.h"
#include "packing.h"
#include "thread_pool.h"

namespace intattention {

// One or more weight matrices that share the input; their outputs lie side by side in a row of y.
// Each part keeps its own format (q, k, v of one model file may differ).
class LinearW4A8 {
 public:
  using Part = std::shared_ptr<const PackedWeights>;

  LinearW4A8() = default;
  explicit LinearW4A8(std::vector<Part> parts);  // throws InvalidArgument if in_features differ

  size_t in_features() const { return parts_.empty() ? 0 : parts_.front()->in_features; }
  size_t out_features() const { return out_features_; }
  const std::vector<Part>& parts() const { return parts_; }

  // y [m][out_features()] from rows first .. first+m-1 of x.
  void forward(ThreadPool& pool, size_t m, const Activations& x, size_t first, float* y) const;

 private:
  std::vector<Part> parts_;
  size_t out_features_ = 0;
};

}  // namespace intattention
