// SPDX-License-Identifier: Apache-2.0
// What this processor and operating system can run.
#ifndef LITESMITH_KERNELS_CPU_H_
#define LITESMITH_KERNELS_CPU_H_

namespace litesmith {

bool CpuHasAvx2();        // AVX2, FMA, and the system saves the wide registers
bool CpuHasAvxVnni();     // 8-bit dot products in 256-bit registers
bool CpuHasAvx512Vnni();  // F, BW, DQ, VL, VNNI, and the system saves opmask and zmm registers
bool CpuHasNeonDot();     // SDOT

}  // namespace litesmith

#endif  // LITESMITH_KERNELS_CPU_H_
