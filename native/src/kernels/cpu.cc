// SPDX-License-Identifier: Apache-2.0
// See cpu.h. cpuid says what the processor has, xgetbv what the system saves; both are needed.
#include "kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace litesmith {

#if defined(__x86_64__)
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf Cpuid(unsigned leaf, unsigned subleaf) {
  Leaf r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool Bit(unsigned word, int bit) { return (word >> bit) & 1; }

// The register states in XCR0 that the operating system saves: 2 sse, 4 avx, 0xe0 opmask and zmm.
bool SystemSaves(unsigned mask) {
  if (!Bit(Cpuid(1, 0).ecx, 27)) return false;  // OSXSAVE
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}

}  // namespace

bool CpuHasAvx2() {
  const Leaf basic = Cpuid(1, 0), extended = Cpuid(7, 0);
  return Bit(basic.ecx, 28) && Bit(basic.ecx, 12) && Bit(extended.ebx, 5) && SystemSaves(0x6);
}

bool CpuHasAvxVnni() { return CpuHasAvx2() && Bit(Cpuid(7, 1).eax, 4); }

bool CpuHasAvx512Vnni() {
  const Leaf extended = Cpuid(7, 0);
  return CpuHasAvx2() && Bit(extended.ebx, 16) && Bit(extended.ebx, 17) && Bit(extended.ebx, 30) &&
         Bit(extended.ebx, 31) && Bit(extended.ecx, 11) && SystemSaves(0xe6);
}

bool CpuHasNeonDot() { return false; }

#else

bool CpuHasAvx2() { return false; }
bool CpuHasAvxVnni() { return false; }
bool CpuHasAvx512Vnni() { return false; }
#if defined(__aarch64__)
bool CpuHasNeonDot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
bool CpuHasNeonDot() { return false; }
#endif

#endif

}  // namespace litesmith
