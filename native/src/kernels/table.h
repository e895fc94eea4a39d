// SPDX-License-Identifier: Apache-2.0
// The slots of a tier's kernel table. Plain data, so that a tier's translation unit holds no shared code.
#ifndef LITESMITH_KERNELS_TABLE_H_
#define LITESMITH_KERNELS_TABLE_H_

#include "kernels/kernels.h"

namespace litesmith {

// X(slot, function type): each tier names its own kernel for the slot, or inherits the scalar reference.
#define LITESMITH_KERNEL_SLOTS(X)          \
  X(requant_s32_s16, RequantS32Fn)         \
  X(requant_s64_s16, RequantS64Fn)         \
  X(requant_double_s16, RequantDoubleFn)   \
  X(s16s8_dwconv, DwConvFn)                \
  X(s16_add_blocks, AddS16Fn)              \
  X(s16_add, AddS16Fn)                     \
  X(s16_sub, AddS16Fn)                     \
  X(s16_mul, MulS16Fn)                     \
  X(s16_scale, ScaleS16Fn)                 \
  X(f32_quantize_s16, QuantizeFn)          \
  X(s16_dequantize_f32, DequantizeFn)      \
  X(s32_finish_f32, FloatFinishFn)         \
  X(f32_max_abs, MaxAbsFn)                 \
  X(f32_round_s16, RoundS16Fn)             \
  X(f32_dwconv_plane, DwPlaneFn)           \
  X(f32_dwconv3x3_plane, Dw3x3PlaneFn)     \
  X(f32_conv_plane, ConvPlaneFn)           \
  X(f32_split_row, SplitRowFn)             \
  X(f32_split_channels, SplitChannelsFn)   \
  X(f32_dwconv3x3_row, Dw3x3RowFn)         \
  X(f32_add, AddF32Fn)

template <class Fn>
struct Kernel {
  const char* name = nullptr;
  Fn* run = nullptr;
};

constexpr int kSpmmWidths = 12;

// How a tier cuts sparse products. Of more than `most_inputs` input channels, `inputs_per_part` at a time. Tiles wider
// than `widest` only where all their inputs fit `tile_bytes`, the first-level cache. Tiles are copied together where their
// planes lie a multiple of `fighting_bytes` apart, and so fight for the same sets of that cache.
struct SpmmTiling {
  static constexpr int kAllInputs = 1 << 30;
  int most_inputs, inputs_per_part;
  size_t tile_bytes;
  int widest;
  size_t fighting_bytes;
};

struct KernelTable {
  const char* tier = nullptr;
  GemmKernel<int8_t> s16s8_gemm = {};
  GemmKernel<int16_t> s16s16_gemm = {};
  SpmmKernel f32_spmm[kSpmmWidths] = {};      // widest first; unused entries at the end are null
  SpmmKernel f32_spmm_4x1[kSpmmWidths] = {};  // the same
  SpmmTiling f32_spmm_tiling = {}, f32_spmm_4x1_tiling = {};
#define LITESMITH_DECLARE(slot, Fn) Kernel<Fn> slot;
  LITESMITH_KERNEL_SLOTS(LITESMITH_DECLARE)
#undef LITESMITH_DECLARE
};

}  // namespace litesmith

#endif  // LITESMITH_KERNELS_TABLE_H_
