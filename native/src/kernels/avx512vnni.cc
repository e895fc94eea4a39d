// SPDX-License-Identifier: Apache-2.0
// int16x8 kernels for AVX-512 VNNI: vpdpwssd multiplies a broadcast pair of activations with 16 channels x 2 weights and
// adds, 32 multiply-adds an instruction. What the tier has no kernel of its own for, it takes from AVX2.
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

// The constants of 16 channels in registers.
struct Channels16 {
  Channels16(const RequantView& q, int c)
      : multiplier_even(_mm512_loadu_si512(q.multiplier + c)),
        multiplier_odd(_mm512_srli_epi64(multiplier_even, 32)),
        offset_even(_mm512_loadu_si512(q.offset_even + c / 2)),
        offset_odd(_mm512_loadu_si512(q.offset_odd + c / 2)),
        shift_even(_mm512_loadu_si512(q.shift_even + c / 2)),
        shift_odd(_mm512_loadu_si512(q.shift_odd + c / 2)),
        center(_mm512_loadu_si512(q.center + c)),
        lo(_mm512_set1_epi32(q.lo)),
        hi(_mm512_set1_epi32(q.hi)) {}

  // Clamped to lo and hi, which are int16.
  __m256i Requant(__m512i acc) const {
    __m512i even = _mm512_add_epi64(_mm512_mul_epi32(acc, multiplier_even), offset_even);
    __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(acc, 32), multiplier_odd), offset_odd);
    even = _mm512_srlv_epi64(even, shift_even);
    odd = _mm512_srlv_epi64(odd, shift_odd);
    const __m512i both = _mm512_castps_si512(
        _mm512_mask_moveldup_ps(_mm512_castsi512_ps(even), 0xAAAA, _mm512_castsi512_ps(odd)));
    const __m512i value = _mm512_sub_epi32(both, center);
    return _mm512_cvtsepi32_epi16(_mm512_min_epi32(_mm512_max_epi32(value, lo), hi));
  }

  __m512i multiplier_even, multiplier_odd, offset_even, offset_odd, shift_even, shift_odd, center, lo, hi;
};

inline unsigned FirstOf16(int n) { return n >= 16 ? 0xFFFF : (1u << n) - 1; }

void requant_s32_s16__avx512(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                             size_t out_stride) {
  for (int c = 0; c < n; c += 16) {
    const Channels16 channels(q, c);
    const __mmask16 mask = static_cast<__mmask16>(FirstOf16(n - c));
    const int32_t* from = acc + c;
    int16_t* to = out + c;
    for (int i = 0; i < m; ++i, from += acc_stride, to += out_stride) {
      _mm256_mask_storeu_epi16(to, mask, channels.Requant(_mm512_loadu_si512(from)));
    }
  }
}

inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Two taps of 16 channels: unpacked to pairs, the channels in the order of DwWeightIndex.
#define LITESMITH_TAP_PAIR(t, w_low, w_high)                                                    \
  {                                                                                             \
    const __m256i one = Load256(taps[t] + channel), two = Load256(taps[(t) + 1] + channel);     \
    low = _mm256_dpwssd_epi32(low, _mm256_unpacklo_epi16(one, two), w_low);                     \
    high = _mm256_dpwssd_epi32(high, _mm256_unpackhi_epi16(one, two), w_high);                  \
  }

// Back to channel order: low has 0-3 and 8-11, high 4-7 and 12-15.
inline __m512i InOrder(__m256i low, __m256i high) {
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  return _mm512_shuffle_i32x4(both, both, _MM_SHUFFLE(3, 1, 2, 0));
}

void s16s8_dwconv_1x16__avx512vnni(const int16_t* const* taps, int pixels, int num_taps, int channel, int n,
                                   const int16_t* weights, const RequantView& q, int16_t* out, size_t out_stride) {
  const Channels16 channels(q, 0);
  const __mmask16 mask = static_cast<__mmask16>(FirstOf16(n));
  if (num_taps == 10) {  // 3x3, the usual one: all weights in registers
    const __m256i a0 = Load256(weights), b0 = Load256(weights + 16), a1 = Load256(weights + 32);
    const __m256i b1 = Load256(weights + 48), a2 = Load256(weights + 64), b2 = Load256(weights + 80);
    const __m256i a3 = Load256(weights + 96), b3 = Load256(weights + 112), a4 = Load256(weights + 128);
    const __m256i b4 = Load256(weights + 144);
    for (int p = 0; p < pixels; ++p, taps += 10, out += out_stride) {
      __m256i low = _mm256_setzero_si256(), high = low;
      LITESMITH_TAP_PAIR(0, a0, b0)
      LITESMITH_TAP_PAIR(2, a1, b1)
      LITESMITH_TAP_PAIR(4, a2, b2)
      LITESMITH_TAP_PAIR(6, a3, b3)
      LITESMITH_TAP_PAIR(8, a4, b4)
      _mm256_mask_storeu_epi16(out, mask, channels.Requant(InOrder(low, high)));
    }
    return;
  }
  for (int p = 0; p < pixels; ++p, taps += num_taps, out += out_stride) {
    __m256i low = _mm256_setzero_si256(), high = low;
    const int16_t* w = weights;
    for (int t = 0; t < num_taps; t += 2, w += 2 * kPanel) LITESMITH_TAP_PAIR(t, Load256(w), Load256(w + kPanel))
    _mm256_mask_storeu_epi16(out, mask, channels.Requant(InOrder(low, high)));
  }
}

}  // namespace

void FillAvx512Vnni(KernelTable* t) {
  t->requant_s32_s16 = {"requant_s32_s16__avx512", requant_s32_s16__avx512};
  t->s16s8_dwconv = {"s16s8_dwconv_1x16__avx512vnni", s16s8_dwconv_1x16__avx512vnni};
  t->s16s8_gemm = {"s16s8_gemm_12x32__avx512vnni", 12, 2, 2, 0, PackPairs, s16s8_gemm_12x32__avx512vnni, nullptr};
}

}  // namespace litesmith
