// SPDX-License-Identifier: Apache-2.0
// What the translation units of each instruction set offer the registry: functions that put their kernels in a table.
#ifndef LITESMITH_KERNELS_FILL_H_
#define LITESMITH_KERNELS_FILL_H_

#include "kernels/table.h"

namespace litesmith {

void FillAvx2Int16(KernelTable* table);
void FillAvx2Float(KernelTable* table);
void FillAvx2Hybrid(KernelTable* table);
void FillAvx512Vnni(KernelTable* table);
void FillAvx512Int16(KernelTable* table);
void FillAvx512Float(KernelTable* table);
void FillNeonDot(KernelTable* table);

}  // namespace litesmith

#endif  // LITESMITH_KERNELS_FILL_H_
