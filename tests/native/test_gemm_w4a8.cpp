// gemm_w4a8 of every table, both formats: the same float bits as the oracle, for one row and for many.
#include "linear_case.h"

namespace intattention::testing {
namespace {

class GemmW4A8Test : public LinearTest {};

TEST_P(GemmW4A8Test, GridWithoutMin) { check_grid(WeightFormat::kW4G32); }

TEST_P(GemmW4A8Test, GridWithMin) { check_grid(WeightFormat::kW4G32A); }

TEST_P(GemmW4A8Test, ExtremeQuants) {
  for (WeightFormat format : {WeightFormat::kW4G32, WeightFormat::kW4G32A})
    for (size_t m : {1, 4}) {
      check(format, m, 8, 64, Quants::kLowest);
      check(format, m, 8, 64, Quants::kHighest);
    }
}

TEST_P(GemmW4A8Test, PanelEdges) {
  check_panel_edges(WeightFormat::kW4G32);
  check_panel_edges(WeightFormat::kW4G32A);
}

INTATTENTION_ON_EVERY_TABLE(GemmW4A8Test);

}  // namespace
}  // namespace intattention::testing
