// gemm_w8a8 of every table: the same float bits as the oracle; weights include -128.
#include "linear_case.h"

namespace intattention::testing {
namespace {

class GemmW8A8Test : public LinearTest {};

TEST_P(GemmW8A8Test, Grid) { check_grid(WeightFormat::kW8G32); }

TEST_P(GemmW8A8Test, ExtremeQuants) {
  for (size_t m : {1, 4}) {
    check(WeightFormat::kW8G32, m, 8, 64, Quants::kLowest);
    check(WeightFormat::kW8G32, m, 8, 64, Quants::kHighest);
  }
}

TEST_P(GemmW8A8Test, PanelEdges) { check_panel_edges(WeightFormat::kW8G32); }

INTATTENTION_ON_EVERY_TABLE(GemmW8A8Test);

}  // namespace
}  // namespace intattention::testing
