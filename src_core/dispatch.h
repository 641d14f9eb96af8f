// Which kernel table runs. "Built" (compiled into this binary) and "runnable" (this CPU has the
// features) are two questions; the active table is the first runnable one, or the one forced by
// INTATTENTION_ISA or use_isa(), which fail loudly.
#pragma once

#include <string>
#include <vector>

#include "kernel_table.h"

namespace intattention {

extern const KernelTable kPortableTable;
// Defined by the ISA room of this architecture (src_avx2 or src_neon), best first.
extern const KernelTable* const kArchTables[];
extern const size_t kArchTableCount;

std::vector<const KernelTable*> built_tables();     // best first, portable last
std::vector<const KernelTable*> runnable_tables();  // the same order

const KernelTable& active_table();      // throws UnsupportedIsa if INTATTENTION_ISA is unusable
void use_isa(const std::string& name);  // throws UnsupportedIsa

}  // namespace intattention
