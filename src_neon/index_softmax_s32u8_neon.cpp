// One row of one key block of the index softmax: s32 logits -> y (s16 counts) -> E' (u8), sum, max.
//
// The kernel, its registers and its bound are in index_softmax_inline.h. The row sum is UMULL and UADALP of E' and the
// halves of the weights, four each per 16 keys; y is SQRDMULH and SQADD.
#include "index_softmax_inline.h"

namespace intattention {
namespace {

struct Isa {
  static inline uint32x4_t dot(uint32x4_t sum, uint8x16_t e, uint8x16_t w) {
    sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(e), vget_low_u8(w)));
    return vpadalq_u16(sum, vmull_high_u8(e, w));
  }
  static inline int16x8_t multiply_add(int16x8_t c, int16x8_t x, int16x8_t y) {
    return vqaddq_s16(c, vqrdmulhq_s16(x, y));
  }
};

}  // namespace

void index_softmax_s32u8_neon(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                              int16_t* scratch, uint8_t* probs) {
  index_softmax<Isa>(n, logits, *keys, row, scratch, probs);
}

}  // namespace intattention
