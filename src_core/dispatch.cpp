#include "dispatch.h"

#include <atomic>
#include <cstdlib>

#include "cpu_features.h"
#include "error.h"

namespace intattention {
namespace {

std::atomic<const KernelTable*> g_active{nullptr};

bool runnable(const KernelTable& table) { return (table.required_features & ~cpu_features()) == 0; }

std::string names_of(const std::vector<const KernelTable*>& tables) {
  std::string names;
  for (const KernelTable* table : tables) names += (names.empty() ? "" : ", ") + std::string(table->name);
  return names;
}

const KernelTable& find_runnable(const std::string& name, const char* origin) {
  for (const KernelTable* table : built_tables()) {
    if (name != table->name) continue;
    if (runnable(*table)) return *table;
    std::string missing;
    for (const std::string& feature : cpu_feature_names(table->required_features & ~cpu_features()))
      missing += " " + feature;
    throw UnsupportedIsa(
        message(origin, " '", name, "': this CPU lacks", missing, "; runnable here: ", names_of(runnable_tables())));
  }
  throw UnsupportedIsa(message(origin, " '", name, "' is not in this build; built: ", names_of(built_tables())));
}

const KernelTable& choose() {
  const char* forced = std::getenv("INTATTENTION_ISA");
  if (forced != nullptr && *forced != '\0') return find_runnable(forced, "INTATTENTION_ISA");
  return *runnable_tables().front();
}

}  // namespace

std::vector<const KernelTable*> built_tables() {
  std::vector<const KernelTable*> tables(kArchTables, kArchTables + kArchTableCount);
  tables.push_back(&kPortableTable);
  return tables;
}

std::vector<const KernelTable*> runnable_tables() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : built_tables())
    if (runnable(*table)) tables.push_back(table);
  return tables;
}

const KernelTable& active_table() {
  const KernelTable* table = g_active.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = &choose();
    g_active.store(table, std::memory_order_release);
  }
  return *table;
}

void use_isa(const std::string& name) { g_active.store(&find_runnable(name, "isa"), std::memory_order_release); }

}  // namespace intattention
