// SPDX-License-Identifier: Apache-2.0
// The one list of kernels and tiers. Dispatch, self-check, unit tests and micro-benchmarks all read it.
#ifndef LITESMITH_KERNELS_REGISTRY_H_
#define LITESMITH_KERNELS_REGISTRY_H_

#include <string>
#include <vector>

#include "kernels/table.h"

namespace litesmith {

struct Tier {
  const char* name;
  const KernelTable* table;   // null when not compiled for this architecture
  bool (*cpu_has_it)();       // cpuid / xgetbv / hwcaps
  bool verify_before_use;     // compare with the scalar reference once before it may be chosen
};

// Best first; the last is "scalar", which every machine has. It serves tests: without a SIMD tier nothing is claimed.
const std::vector<Tier>& Tiers();
const Tier* FindTier(const std::string& name);
std::string TierNames();

const KernelTable& ScalarTable();

// The tier to use, or null with the reason in `why`. `wanted` is "auto" or a tier's name.
const KernelTable* ChooseTier(const std::string& wanted, std::string* why, const std::vector<Tier>& tiers = Tiers());

// Runs every kernel of `table` on small random problems against the scalar reference. Empty, or the first difference.
std::string VerifyTable(const KernelTable& table, unsigned seed);

}  // namespace litesmith

#endif  // LITESMITH_KERNELS_REGISTRY_H_
