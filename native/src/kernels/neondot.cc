// SPDX-License-Identifier: Apache-2.0
// int16x8 GEMM for Arm with SDOT: an activation a is split into its signed high byte h and (low byte - 128) l, so that
// a = 256 h + l + 128, and the sum over k of a * w becomes 256 * sum(h w) + sum(l w) + 128 * sum(w): two chains of
// 8-bit dot products, 8 multiply-adds an instruction against 4 of SMLAL, and weights stay int8.
//
// Intermediate sums may wrap; the total is within int32 by the caller's bound, so arithmetic modulo 2^32 is exact.
// Every other kernel of the tier is the scalar reference.
#include <arm_neon.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

constexpr int kRows = 4;
constexpr int kStep = 8;  // k per round: two dot products of four

// [128 * sum of weights per channel: kPanel int32][k / 4][kPanel][4] int8; k is padded to a multiple of kStep.
void PackQuads(const int8_t* weights, size_t row_stride, int n, int k, int8_t* panel) {
  const int padded = (k + kStep - 1) / kStep * kStep;
  int8_t* body = panel + kPanel * sizeof(int32_t);
  for (int i = 0; i < padded * kPanel; ++i) body[i] = 0;
  int32_t sums[kPanel] = {};
  for (int c = 0; c < n; ++c) {
    for (int i = 0; i < k; ++i) {
      body[(i / 4) * 4 * kPanel + c * 4 + i % 4] = weights[c * row_stride + i];
      sums[c] += 128 * weights[c * row_stride + i];
    }
  }
  __builtin_memcpy(panel, sums, sizeof(sums));
}

void GemmRow(const int16_t* row, int k, const int8_t* panel, int32_t* acc) {
  int32x4_t high0 = vdupq_n_s32(0), high1 = high0, high2 = high0, high3 = high0;
  int32x4_t low0 = high0, low1 = high0, low2 = high0, low3 = high0;
  const int8_t* w = panel + kPanel * sizeof(int32_t);
  for (int j = 0; j < k; j += kStep, w += kStep * kPanel) {
    const int8x16_t bytes = vreinterpretq_s8_s16(vld1q_s16(row + j));
    const int8x8_t h = vget_low_s8(vuzp2q_s8(bytes, bytes));
    // Flipping the top bit of an unsigned byte subtracts 128 from it.
    const int8x8_t l = veor_s8(vget_low_s8(vuzp1q_s8(bytes, bytes)), vdup_n_s8(-128));
#define LITESMITH_DOT(v, lane)                                                          \
  {                                                                                     \
    const int8x16_t weights = vld1q_s8(w + lane * 4 * kPanel + v * 16);                 \
    high##v = vdotq_lane_s32(high##v, weights, h, lane);                                \
    low##v = vdotq_lane_s32(low##v, weights, l, lane);                                  \
  }
    LITESMITH_DOT(0, 0) LITESMITH_DOT(1, 0) LITESMITH_DOT(2, 0) LITESMITH_DOT(3, 0)
    LITESMITH_DOT(0, 1) LITESMITH_DOT(1, 1) LITESMITH_DOT(2, 1) LITESMITH_DOT(3, 1)
#undef LITESMITH_DOT
  }
  const auto store = [&](int v, int32x4_t high, int32x4_t low) {
    int32x4_t correction;
    __builtin_memcpy(&correction, panel + v * 16, sizeof(correction));
    vst1q_s32(acc + v * 4, vaddq_s32(vaddq_s32(vshlq_n_s32(high, 8), low), correction));
  };
  store(0, high0, low0);
  store(1, high1, low1);
  store(2, high2, low2);
  store(3, high3, low3);
}

void s16s8_gemm_4x16__neondot(const int16_t* const* rows, int m, int k, const int8_t* panel, size_t, int, int32_t* acc) {
  for (int i = 0; i < m; ++i) GemmRow(rows[i], k, panel, acc + i * kPanel);
}

}  // namespace

void FillNeonDot(KernelTable* t) {
  t->s16s8_gemm = {"s16s8_gemm_4x16__neondot", kRows, 1, kStep, kPanel * static_cast<int>(sizeof(int32_t)), PackQuads,
                   s16s8_gemm_4x16__neondot, nullptr};
}

}  // namespace litesmith
