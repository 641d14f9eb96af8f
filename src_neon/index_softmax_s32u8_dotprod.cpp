// One row of one key block of the index softmax: s32 logits -> y (s16 counts) -> E' (u8), sum, max.
//
// The kernel, its registers and its bound are in index_softmax_inline.h. The row sum is UDOT of E' and each half of the
// weights: two instructions of either pipe per 16 keys, where neon has UMULL x4 and UADALP x4. y is one SQRDMLAH, which
// Armv8.1 brought.
#include "index_softmax_inline.h"

namespace intattention {
namespace {

struct Isa {
  static inline uint32x4_t dot(uint32x4_t sum, uint8x16_t e, uint8x16_t w) { return vdotq_u32(sum, e, w); }
  static inline int16x8_t multiply_add(int16x8_t c, int16x8_t x, int16x8_t y) { return vqrdmlahq_s16(c, x, y); }
};

}  // namespace

void index_softmax_s32u8_dotprod(size_t n, const int32_t* logits, const IndexSoftmaxKeys* keys, IndexSoftmaxRow* row,
                                 int16_t* scratch, uint8_t* probs) {
  index_softmax<Isa>(n, logits, *keys, row, scratch, probs);
}

}  // namespace intattention
