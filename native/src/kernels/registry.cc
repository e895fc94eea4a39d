// SPDX-License-Identifier: Apache-2.0
// See registry.h.
#include "kernels/registry.h"

#include <map>
#include <mutex>

#include "kernels/cpu.h"
#include "kernels/fill.h"

namespace litesmith {
namespace {

bool Always() { return true; }

// A tier's table: its own kernels, and the reference wherever it has none. Filled only on a processor that has the
// tier, because the filling function is itself compiled for it.
const KernelTable* Complete(const char* name, bool (*cpu_has_it)(), std::initializer_list<void (*)(KernelTable*)> fill) {
  if (!cpu_has_it()) return nullptr;
  auto* table = new KernelTable(ScalarTable());
  table->tier = name;
  for (auto* step : fill) step(table);
  return table;
}

std::vector<Tier> MakeTiers() {
  std::vector<Tier> tiers;
#if defined(__x86_64__)
  tiers.push_back({"avx512vnni",
                   Complete("avx512vnni", CpuHasAvx512Vnni,
                            {FillAvx2Int16, FillAvx2Float, FillAvx2Hybrid, FillAvx512Vnni, FillAvx512Int16, FillAvx512Float}),
                   CpuHasAvx512Vnni, true});
  tiers.push_back({"avx2", Complete("avx2", CpuHasAvx2, {FillAvx2Int16, FillAvx2Float, FillAvx2Hybrid}), CpuHasAvx2, false});
#elif defined(__aarch64__)
  tiers.push_back({"neondot", Complete("neondot", CpuHasNeonDot, {FillNeonDot}), CpuHasNeonDot, true});
#endif
  tiers.push_back({"scalar", &ScalarTable(), Always, false});
  return tiers;
}

}  // namespace

const std::vector<Tier>& Tiers() {
  static const auto* tiers = new std::vector<Tier>(MakeTiers());  // never destroyed: no order at exit to get wrong
  return *tiers;
}

const Tier* FindTier(const std::string& name) {
  for (const Tier& tier : Tiers()) {
    if (name == tier.name) return &tier;
  }
  return nullptr;
}

std::string TierNames() {
  std::string names;
  for (const Tier& tier : Tiers()) names += (names.empty() ? "" : ", ") + std::string(tier.name);
  return names;
}

namespace {

// What VerifyTable found, asked once in the life of the process: every delegate chooses a tier.
const std::string& FirstDifference(const Tier& tier) {
  static std::mutex mutex;
  static auto* found = new std::map<const KernelTable*, std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  const auto known = found->find(tier.table);
  if (known != found->end()) return known->second;
  return found->emplace(tier.table, VerifyTable(*tier.table, /*seed=*/1)).first->second;
}

}  // namespace

const KernelTable* ChooseTier(const std::string& wanted, std::string* why, const std::vector<Tier>& tiers) {
  why->clear();
  for (const Tier& tier : tiers) {
    const bool named = wanted == tier.name;
    if (wanted != "auto" && !named) continue;
    if (wanted == "auto" && std::string(tier.name) == "scalar") break;  // slower than the stock kernels
    if (tier.table == nullptr) {
      *why += std::string("this processor or system lacks tier ") + tier.name + "; ";
      continue;
    }
    if (tier.verify_before_use) {
      const std::string& difference = FirstDifference(tier);
      if (!difference.empty()) {
        *why += std::string("tier ") + tier.name + " failed its self-check: " + difference + "; ";
        continue;
      }
    }
    return tier.table;
  }
  *why += "no tier left";
  return nullptr;
}

}  // namespace litesmith
