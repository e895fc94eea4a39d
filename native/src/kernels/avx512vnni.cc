// SPDX-License-Identifier: Apache-2.0
// int16x8 GEMM for AVX-512 VNNI: vpdpwssd multiplies a broadcast pair of activations with 16 channels x 2 weights and
// adds, 32 multiply-adds an instruction. Every other kernel of the tier is the AVX2 one.
//
// The tier is chosen only after it has agreed with the scalar reference at start-up (Tier::verify_before_use).
#include <immintrin.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

inline int Pair(const int16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pair;
}

// The panel layout of AVX2: [k / 2][kPanel][2] int8.
void PackPairs(const int8_t* weights, size_t row_stride, int n, int k, int8_t* panel) {
  const int pairs = (k + 1) / 2;
  for (int i = 0; i < pairs * 2 * kPanel; ++i) panel[i] = 0;
  for (int c = 0; c < n; ++c) {
    for (int i = 0; i < k; ++i) panel[(i / 2) * 2 * kPanel + c * 2 + i % 2] = weights[c * row_stride + i];
  }
}

#define LITESMITH_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

// Sums in named variables and nothing but the loop: anything else makes gcc 12 spill them.
template <int kRows, int kPanels>
__attribute__((noinline)) void GemmTile(const int16_t* const* rows, int k, const int8_t* panel, size_t panel_stride,
                                        int32_t* acc) {
#define LITESMITH_START(i)                                     \
  const int16_t* const row##i = rows[i < kRows ? i : 0];       \
  __m512i a##i = _mm512_setzero_si512(), b##i = a##i;
  LITESMITH_EACH_ROW(LITESMITH_START)
#undef LITESMITH_START
  const int8_t* second = panel + (kPanels > 1 ? panel_stride : 0);
  for (int j = 0; j < k; j += 2, panel += 2 * kPanel, second += 2 * kPanel) {
    const __m512i w0 = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel)));
    const __m512i w1 = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(second)));
#define LITESMITH_STEP(i)                                                  \
  if constexpr (kRows > i) {                                               \
    const __m512i pair = _mm512_set1_epi32(Pair(row##i + j));              \
    a##i = _mm512_dpwssd_epi32(a##i, pair, w0);                            \
    if constexpr (kPanels > 1) b##i = _mm512_dpwssd_epi32(b##i, pair, w1); \
  }
    LITESMITH_EACH_ROW(LITESMITH_STEP)
#undef LITESMITH_STEP
  }
#define LITESMITH_WRITE(i)                                                                           \
  if constexpr (kRows > i) {                                                                         \
    _mm512_storeu_si512(acc + i * kPanels * kPanel, a##i);                                           \
    if constexpr (kPanels > 1) _mm512_storeu_si512(acc + i * kPanels * kPanel + kPanel, b##i);       \
  }
  LITESMITH_EACH_ROW(LITESMITH_WRITE)
#undef LITESMITH_WRITE
}

template <int kPanels>
void Tile(const int16_t* const* rows, int m, int k, const int8_t* panel, size_t stride, int32_t* acc) {
  switch (m) {
    case 1: return GemmTile<1, kPanels>(rows, k, panel, stride, acc);
    case 2: return GemmTile<2, kPanels>(rows, k, panel, stride, acc);
    case 3: return GemmTile<3, kPanels>(rows, k, panel, stride, acc);
    case 4: return GemmTile<4, kPanels>(rows, k, panel, stride, acc);
    case 5: return GemmTile<5, kPanels>(rows, k, panel, stride, acc);
    case 6: return GemmTile<6, kPanels>(rows, k, panel, stride, acc);
    case 7: return GemmTile<7, kPanels>(rows, k, panel, stride, acc);
    case 8: return GemmTile<8, kPanels>(rows, k, panel, stride, acc);
    case 9: return GemmTile<9, kPanels>(rows, k, panel, stride, acc);
    case 10: return GemmTile<10, kPanels>(rows, k, panel, stride, acc);
    case 11: return GemmTile<11, kPanels>(rows, k, panel, stride, acc);
    default: return GemmTile<12, kPanels>(rows, k, panel, stride, acc);
  }
}

void s16s8_gemm_12x32__avx512vnni(const int16_t* const* rows, int m, int k, const int8_t* panels, size_t panel_stride,
                                  int num_panels, int32_t* acc) {
  if (num_panels == 1) {
    Tile<1>(rows, m, k, panels, panel_stride, acc);
  } else {
    Tile<2>(rows, m, k, panels, panel_stride, acc);
  }
}

}  // namespace

void FillAvx512Vnni(KernelTable* t) {
  t->s16s8_gemm = {"s16s8_gemm_12x32__avx512vnni", 12, 2, 2, 0, PackPairs, s16s8_gemm_12x32__avx512vnni};
}

}  // namespace litesmith
