#include <cmath>
#include <limits>

#include "dispatch.h"
#include "handles.h"
#include "quantize_weights.h"

using namespace intattention;
using namespace intattention::capi;

namespace {

constexpr size_t kMaxRows = size_t{1} << 31;
constexpr size_t kMaxElements = std::numeric_limits<size_t>::max() / 16;

WeightFormat format_of(ia_weight_format format) {
  if (format < IA_W4G32 || format > IA_W8G32) throw InvalidArgument(message("weight format ", format, " is unknown"));
  return static_cast<WeightFormat>(format);
}

ia_linear* make(const ia_context& context, const LogicalWeights& logical) {
  auto made = std::make_unique<ia_linear>();
  made->shared = context.shared;
  made->linear = LinearW4A8({std::make_shared<PackedWeights>(pack_weights(logical))});
  return made.release();
}

void check_importance(const float* importance, size_t count) {
  for (size_t i = 0; importance != nullptr && i < count; ++i)
    if (!(importance[i] >= 0.0f && std::isfinite(importance[i])))
      throw InvalidArgument(message("importance[", i, "] is ", importance[i], ", expected 0 or more"));
}

}  // namespace

ia_status ia_quantize(size_t groups, size_t group, const float* x, int8_t* q, float* scale) {
  return guarded([&] {
    if (group == 0 || group % 8 != 0) throw InvalidArgument(message("group is ", group, ", expected a multiple of 8"));
    if (groups > kMaxElements / group) throw InvalidArgument(message(groups, " groups of ", group, " are too many"));
    if (groups == 0) return;
    active_table().quantize_f32s8(groups, group, &required(x, "x"), &required(q, "q"), &required(scale, "scale"),
                                  nullptr);
    for (size_t g = 0; g < groups; ++g)
      if (!std::isfinite(scale[g])) throw InvalidArgument(message("x: group ", g, " holds NaN or Inf"));
  });
}

ia_status ia_linear_create(ia_context* context, ia_weight_format format_given, size_t out_features, size_t in_features,
                           const float* w, const float* importance, ia_linear** linear) {
  return guarded([&] {
    const ia_context& c = checked(context, "context");
    required(linear, "linear");
    required(w, "w");
    const WeightFormat format = format_of(format_given);
    packed_weights_bytes(format, out_features, in_features);  // checks the shape
    check_importance(importance, in_features);
    const ScopedAllocator scope(c.shared->buffers());
    const size_t groups = in_features / kGroup, row_bytes = in_features / (format == WeightFormat::kW8G32 ? 1 : 2);
    const bool has_min = format == WeightFormat::kW4G32A;
    AlignedBuffer q(out_features * row_bytes), scale(out_features * groups * sizeof(uint16_t));
    AlignedBuffer min(has_min ? scale.size() : 0);
    c.shared->pool->parallel_for(out_features, [&](size_t row, int) {
      uint16_t* row_min = has_min ? min.as<uint16_t>() + row * groups : nullptr;
      quantize_weights(format, 1, in_features, w + row * in_features, importance,
                       {q.data() + row * row_bytes, scale.as<uint16_t>() + row * groups, row_min});
    });
    *linear = make(c, {format, out_features, in_features, q.data(), scale.as<uint16_t>(), min.as<uint16_t>()});
  });
}

ia_status ia_linear_pack(ia_context* context, ia_weight_format format_given, size_t out_features, size_t in_features,
                         const void* q, const uint16_t* scale, const uint16_t* min, ia_linear** linear) {
  return guarded([&] {
    const ia_context& c = checked(context, "context");
    required(linear, "linear");
    if (q == nullptr) throw InvalidArgument("q is null");
    required(scale, "scale");
    const WeightFormat format = format_of(format_given);
    if ((min != nullptr) != (format == WeightFormat::kW4G32A)) throw InvalidArgument("min goes with IA_W4G32A only");
    const ScopedAllocator scope(c.shared->buffers());
    *linear = make(c, {format, out_features, in_features, static_cast<const uint8_t*>(q), scale, min});
  });
}

void ia_linear_destroy(ia_linear** linear) { destroy(linear); }

ia_status ia_linear_bytes(const ia_linear* linear, size_t* bytes) {
  return guarded([&] { required(bytes, "bytes") = checked(linear, "linear").linear.parts().front()->data.size(); });
}

ia_status ia_linear_run(const ia_linear* linear, size_t rows, const float* x, float* y) {
  return guarded([&] {
    const ia_linear& l = checked(linear, "linear");
    if (rows == 0) return;
    required(x, "x");
    required(y, "y");
    if (rows > kMaxRows) throw InvalidArgument(message(rows, " rows, at most ", kMaxRows));
    const ScopedAllocator scope(l.shared->buffers());
    const ThreadPool::CallerPin pin(*l.shared->pool);
    const size_t k = l.linear.in_features();
    Activations activations(rows, k);
    l.shared->pool->parallel_for(rows, [&](size_t row, int) {
      if (!activations.quantize_row(active_table(), row, x + row * k))
        throw InvalidArgument(message("x: row ", row, " holds NaN or Inf or a magnitude beyond 1.6e32"));
    });
    l.linear.forward(*l.shared->pool, rows, activations, 0, y);
  });
}
