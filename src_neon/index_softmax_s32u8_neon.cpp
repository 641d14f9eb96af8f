// One row of one key block of the index softmax: s32 logits -> t (s16 counts) -> E, E' (u8), sum, max.
//
// The kernel, its registers and its bound are in index_softmax_inline.h. E is added up with UADDLP + UADALP,
// two instructions of pipe V1 per 16 keys; t - m is SQRDMULH and SQADD.
#include "index_softmax_inline.h"

namespace intattention {
namespace {

struct Isa {
  static inline uint32x4_t add(uint32x4_t sum, uint8x16_t e) { return vpadalq_u16(sum, vpaddlq_u8(e)); }
  static inline int16x8_t multiply_add(int16x8_t c, int16x8_t x, int16x8_t y) {
    return vqaddq_s16(c, vqrdmulhq_s16(x, y));
  }
};

}  // namespace

void index_softmax_s32u8_neon(size_t n, const int32_t* logits, const int16_t* key_ratio, const uint16_t* value_ratio,
                              IndexSoftmaxRow* row, int16_t* scratch, uint8_t* probs) {
  index_softmax<Isa>(n, logits, key_ratio, value_ratio, row, scratch, probs);
}

}  // namespace intattention
