// SPDX-License-Identifier: Apache-2.0
// int16x8 kernels for AVX2: vpmaddwd multiplies a broadcast pair of activations with 8 channels x 2 weights.
//
// Weights stay int8 in memory and are widened in the loop: the widening hides behind 12 multiply-adds, and half the
// bytes is what small layers are bound by.
#include <immintrin.h>

#include <type_traits>

#include "core/fixed_point.h"
#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

struct PairOfInt16 {
  int16_t first, second;
};

inline __m256i Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void Store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

template <class Weight>
void PackPairs(const Weight* weights, size_t row_stride, int n, int k, Weight* panel) {
  for (int i = 0; i < k; i += 2, panel += 2 * kPanel) {
    for (int c = 0; c < kPanel; ++c) {
      panel[2 * c] = c < n ? weights[c * row_stride + i] : Weight{0};
      panel[2 * c + 1] = c < n && i + 1 < k ? weights[c * row_stride + i + 1] : Weight{0};
    }
  }
}

// One row of the tile. In assembly because gcc 12 otherwise loads the pairs of all rows first and spills half of the 12
// accumulators inside the loop; with this order 16 registers are enough.
template <bool kHalf>
__attribute__((always_inline)) inline void MultiplyAddPair(const int16_t* pair, __m256i w0, __m256i w1, __m256i& sum0,
                                                            __m256i& sum1) {
  __m256i broadcast, product;
  if constexpr (kHalf) {
    asm volatile(
        "vpbroadcastd %[pair], %[broadcast]\n\t"
        "vpmaddwd %[w0], %[broadcast], %[broadcast]\n\t"
        "vpaddd %[broadcast], %[sum0], %[sum0]"
        : [sum0] "+x"(sum0), [broadcast] "=&x"(broadcast)
        : [pair] "m"(*reinterpret_cast<const PairOfInt16*>(pair)), [w0] "x"(w0));
    return;
  }
  asm volatile(
      "vpbroadcastd %[pair], %[broadcast]\n\t"
      "vpmaddwd %[w0], %[broadcast], %[product]\n\t"
      "vpmaddwd %[w1], %[broadcast], %[broadcast]\n\t"
      "vpaddd %[product], %[sum0], %[sum0]\n\t"
      "vpaddd %[broadcast], %[sum1], %[sum1]"
      : [sum0] "+x"(sum0), [sum1] "+x"(sum1), [broadcast] "=&x"(broadcast), [product] "=&x"(product)
      : [pair] "m"(*reinterpret_cast<const PairOfInt16*>(pair)), [w0] "x"(w0), [w1] "x"(w1));
}

inline __m256i LoadWidened(const int8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m256i LoadWidened(const int16_t* p) { return Load(p); }

// The accumulators a0, b0 … a5, b5 of kRows rows and one panel. In macros because gcc 12 spills them inside the loop when
// they are an array.
#define LITESMITH_TILE_ROWS(rows, shift)                             \
  const int16_t* const row0 = (rows)[0] + (shift);                   \
  const int16_t* const row1 = (rows)[kRows > 1 ? 1 : 0] + (shift);   \
  const int16_t* const row2 = (rows)[kRows > 2 ? 2 : 0] + (shift);   \
  const int16_t* const row3 = (rows)[kRows > 3 ? 3 : 0] + (shift);   \
  const int16_t* const row4 = (rows)[kRows > 4 ? 4 : 0] + (shift);   \
  const int16_t* const row5 = (rows)[kRows > 5 ? 5 : 0] + (shift);
#define LITESMITH_TILE_SUMS                                                         \
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0; \
  __m256i b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
#define LITESMITH_TILE_ADD(panel, begin, end)                                                           \
  for (int j = (begin); j < (end); j += 2) {                                                            \
    const __m256i w0 = LoadWidened((panel) + j * kPanel), w1 = LoadWidened((panel) + (j + 1) * kPanel); \
    MultiplyAddPair<kHalf>(row0 + j, w0, w1, a0, b0);                                                   \
    if constexpr (kRows > 1) MultiplyAddPair<kHalf>(row1 + j, w0, w1, a1, b1);                          \
    if constexpr (kRows > 2) MultiplyAddPair<kHalf>(row2 + j, w0, w1, a2, b2);                          \
    if constexpr (kRows > 3) MultiplyAddPair<kHalf>(row3 + j, w0, w1, a3, b3);                          \
    if constexpr (kRows > 4) MultiplyAddPair<kHalf>(row4 + j, w0, w1, a4, b4);                          \
    if constexpr (kRows > 5) MultiplyAddPair<kHalf>(row5 + j, w0, w1, a5, b5);                          \
  }
#define LITESMITH_TILE_EACH(use)                \
  use(0, a0, b0);                               \
  if constexpr (kRows > 1) use(1, a1, b1);      \
  if constexpr (kRows > 2) use(2, a2, b2);      \
  if constexpr (kRows > 3) use(3, a3, b3);      \
  if constexpr (kRows > 4) use(4, a4, b4);      \
  if constexpr (kRows > 5) use(5, a5, b5);

// Only loops and stores: with the requantization in the same function gcc spills the accumulators inside the loop.
template <int kRows, class Weight>
__attribute__((noinline)) void GemmTile(const int16_t* const* rows, int k, const Weight* panel, int32_t* acc) {
  constexpr bool kHalf = false;
  LITESMITH_TILE_ROWS(rows, 0)
  LITESMITH_TILE_SUMS
  LITESMITH_TILE_ADD(panel, 0, k)
  const auto store = [acc](int i, __m256i a, __m256i b) {
    Store(acc + i * kPanel, a);
    Store(acc + i * kPanel + 8, b);
  };
  LITESMITH_TILE_EACH(store)
}

// Whole panels to floats, straight from the accumulators: what short K is bound by is everything but the products. With
// several chunks of K the sums of all but the last wait in memory, as floats.
template <int kRows, bool kHalf, class Weight>
__attribute__((noinline)) void GemmTileToFloat(const int16_t* const* rows, const KPiece* pieces, int num_pieces,
                                               const Weight* panel, size_t panel_stride, int panels, const float* steps,
                                               const FloatFinishView& q, float* out, size_t out_stride) {
  const float* scale = q.scale;
  const float* bias = q.bias;
  for (; panels > 0; --panels, panel += panel_stride, scale += kPanel, bias += kPanel, out += kPanel) {
    alignas(32) float waiting[kRows * kPanel];
    bool waits = false;
    LITESMITH_TILE_SUMS
    int begin = 0;
    for (const KPiece* piece = pieces; piece < pieces + num_pieces; begin = piece++->end) {
      LITESMITH_TILE_ROWS(rows, piece->shift)
      LITESMITH_TILE_ADD(panel, begin, piece->end)
      if (!piece->ends_chunk || piece + 1 == pieces + num_pieces) continue;
      const auto wait = [&](int i, __m256i& sum, int c) __attribute__((always_inline)) {
        float* const to = waiting + i * kPanel + c;
        const __m256 value = _mm256_cvtepi32_ps(sum);
        _mm256_store_ps(to, waits ? _mm256_add_ps(value, _mm256_load_ps(to)) : value);
        sum = _mm256_setzero_si256();
      };
      const auto both = [&](int i, __m256i& a, __m256i& b) __attribute__((always_inline)) {
        wait(i, a, 0);
        if constexpr (!kHalf) wait(i, b, 8);
      };
      LITESMITH_TILE_EACH(both)
      waits = true;
    }
    const __m256 lo = _mm256_set1_ps(q.lo), hi = _mm256_set1_ps(q.hi);
    const auto finish = [&](int i, __m256i sum, int c) __attribute__((always_inline)) {
      const __m256 factor = _mm256_mul_ps(_mm256_broadcast_ss(steps + i), _mm256_loadu_ps(scale + c));
      __m256 whole = _mm256_cvtepi32_ps(sum);
      if (waits) whole = _mm256_add_ps(whole, _mm256_load_ps(waiting + i * kPanel + c));
      const __m256 value = _mm256_fmadd_ps(whole, factor, _mm256_loadu_ps(bias + c));
      _mm256_storeu_ps(out + i * out_stride + c, _mm256_min_ps(hi, _mm256_max_ps(lo, value)));
    };
    const auto both = [&](int i, __m256i a, __m256i b) __attribute__((always_inline)) {
      finish(i, a, 0);
      if constexpr (!kHalf) finish(i, b, 8);
    };
    LITESMITH_TILE_EACH(both)
  }
}

template <bool kHalf, class Weight>
void PanelsToFloat(const int16_t* const* rows, int m, const KPiece* pieces, int num_pieces, const Weight* panel,
                   size_t panel_stride, int panels, const float* steps, const FloatFinishView& q, float* out,
                   size_t out_stride) {
  const auto tile = [&](auto rows_of_tile) {
    GemmTileToFloat<rows_of_tile, kHalf>(rows, pieces, num_pieces, panel, panel_stride, panels, steps, q, out, out_stride);
  };
  switch (m) {
    case 1: return tile(std::integral_constant<int, 1>());
    case 2: return tile(std::integral_constant<int, 2>());
    case 3: return tile(std::integral_constant<int, 3>());
    case 4: return tile(std::integral_constant<int, 4>());
    case 5: return tile(std::integral_constant<int, 5>());
    default: return tile(std::integral_constant<int, 6>());
  }
}

template <class Weight>
void gemm_to_float_6x16__avx2(const int16_t* const* rows, int m, const KPiece* pieces, int num_pieces, const Weight* panel,
                              size_t panel_stride, const float* steps, const FloatFinishView& q, int n, float* out,
                              size_t out_stride) {
  const int panels = n / kPanel;
  if (panels > 0) PanelsToFloat<false>(rows, m, pieces, num_pieces, panel, panel_stride, panels, steps, q, out, out_stride);
  if (n % kPanel == 0) return;
  const int done = panels * kPanel;
  const FloatFinishView rest{q.scale + done, q.bias + done, q.lo, q.hi};
  PanelsToFloat<true>(rows, m, pieces, num_pieces, panel + panels * panel_stride, panel_stride, 1, steps, rest, out + done,
                      out_stride);
}

template <class Weight>
void gemm_6x16__avx2(const int16_t* const* rows, int m, int k, const Weight* panel, size_t, int, int32_t* acc) {
  switch (m) {
    case 1: return GemmTile<1>(rows, k, panel, acc);
    case 2: return GemmTile<2>(rows, k, panel, acc);
    case 3: return GemmTile<3>(rows, k, panel, acc);
    case 4: return GemmTile<4>(rows, k, panel, acc);
    case 5: return GemmTile<5>(rows, k, panel, acc);
    default: return GemmTile<6>(rows, k, panel, acc);
  }
}

// The constants of eight channels in registers.
struct Channels8 {
  Channels8(const RequantView& q, int c)
      : multiplier_even(Load(q.multiplier + c)),
        multiplier_odd(_mm256_srli_epi64(multiplier_even, 32)),
        offset_even(Load(q.offset_even + c / 2)),
        offset_odd(Load(q.offset_odd + c / 2)),
        shift_even(Load(q.shift_even + c / 2)),
        shift_odd(Load(q.shift_odd + c / 2)),
        center(Load(q.center + c)) {}

  // Products of the even and the odd channels to eight values, not clamped.
  __m256i Finish(__m256i even, __m256i odd) const {
    even = _mm256_srlv_epi64(_mm256_add_epi64(even, offset_even), shift_even);
    odd = _mm256_srlv_epi64(_mm256_add_epi64(odd, offset_odd), shift_odd);
    return _mm256_sub_epi32(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA), center);
  }
  __m256i Requant(__m256i acc) const {
    return Finish(_mm256_mul_epi32(acc, multiplier_even),
                  _mm256_mul_epi32(_mm256_srli_epi64(acc, 32), multiplier_odd));
  }

  __m256i multiplier_even, multiplier_odd, offset_even, offset_odd, shift_even, shift_odd, center;
};

// Clamps, narrows and stores the first n of eight values.
inline void StoreEight(__m256i value, __m256i lo, __m256i hi, int n, int16_t* out) {
  value = _mm256_min_epi32(_mm256_max_epi32(value, lo), hi);
  const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  if (n >= 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), narrow);
    return;
  }
  int16_t tail[8];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(tail), narrow);
  for (int i = 0; i < n; ++i) out[i] = tail[i];
}

// The same in 32 bits (RequantView::narrow), not clamped. The high half of `low` is zero, and so is that of its products.
struct NarrowChannels8 {
  NarrowChannels8(const RequantView& q, int c)
      : bias(Load(q.narrow.bias + c)),
        round(Load(q.narrow.round + c)),
        shift(Load(q.narrow.shift + c)),
        low(Load(q.multiplier + c)),
        high(_mm256_slli_epi32(low, 16)) {}
  __m256i Requant(__m256i acc) const {
    const __m256i x = _mm256_add_epi32(acc, bias);
    const __m256i sum = _mm256_add_epi32(_mm256_mulhi_epu16(x, low), _mm256_madd_epi16(x, high));
    return _mm256_srav_epi32(_mm256_add_epi32(sum, round), shift);
  }
  __m256i bias, round, shift, low, high;
};

void NarrowRequant(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                   size_t out_stride) {
  const __m256i lo = _mm256_set1_epi16(static_cast<int16_t>(q.lo)), hi = _mm256_set1_epi16(static_cast<int16_t>(q.hi));
  for (int c = 0; c < n; c += 16) {
    const NarrowChannels8 first(q, c), second(q, c + 8);
    const int32_t* from = acc + c;
    int16_t* to = out + c;
    for (int i = 0; i < m; ++i, from += acc_stride, to += out_stride) {
      const __m256i both = _mm256_packs_epi32(first.Requant(Load(from)), second.Requant(Load(from + 8)));
      const __m256i value = _mm256_min_epi16(_mm256_max_epi16(_mm256_permute4x64_epi64(both, 0xD8), lo), hi);
      if (n - c >= 16) {
        Store(to, value);
        continue;
      }
      int16_t tail[16];
      Store(tail, value);
      for (int j = 0; j < n - c; ++j) to[j] = tail[j];
    }
  }
}

void requant_s32_s16__avx2(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                           size_t out_stride) {
  if (q.narrow.bias != nullptr) return NarrowRequant(acc, acc_stride, m, n, q, out, out_stride);
  const __m256i lo = _mm256_set1_epi32(q.lo), hi = _mm256_set1_epi32(q.hi);
  for (int c = 0; c < n; c += 8) {
    const Channels8 channels(q, c);
    const int32_t* from = acc + c;
    int16_t* to = out + c;
    for (int i = 0; i < m; ++i, from += acc_stride, to += out_stride) {
      StoreEight(channels.Requant(Load(from)), lo, hi, n - c, to);
    }
  }
}

// x * multiplier modulo 2^64 for a 64-bit x and a non-negative 32-bit multiplier in the low halves.
inline __m256i Mul64(__m256i x, __m256i multiplier) {
  const __m256i high = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), multiplier), 32);
  return _mm256_add_epi64(_mm256_mul_epu32(x, multiplier), high);
}

void requant_s64_s16__avx2(const int64_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                           size_t out_stride) {
  const __m256i lo = _mm256_set1_epi32(q.lo), hi = _mm256_set1_epi32(q.hi);
  for (int c = 0; c < n; c += 8) {
    const Channels8 channels(q, c);
    for (int i = 0; i < m; ++i) {
      const int64_t* row = acc + i * acc_stride + c;
      const __m256i first = Load(row), second = Load(row + 4);
      // 0 1 2 3 | 4 5 6 7 -> even 0 2 4 6, odd 1 3 5 7
      const __m256i even = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(first, second), 0xD8);
      const __m256i odd = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(first, second), 0xD8);
      StoreEight(channels.Finish(Mul64(even, channels.multiplier_even), Mul64(odd, channels.multiplier_odd)), lo, hi,
                 n - c, out + i * out_stride + c);
    }
  }
}

// round() halves away from zero; out-of-range values become INT32_MIN in the conversion, as in the stock kernel.
inline __m128i RequantDouble4(const int32_t* acc, const DoubleRequantView& q, int c) {
  const __m256d wide = _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(acc)));
  const __m256d x = _mm256_mul_pd(_mm256_add_pd(wide, _mm256_loadu_pd(q.bias + c)), _mm256_loadu_pd(q.scale + c));
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m256d whole = _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256d rest = _mm256_andnot_pd(sign, _mm256_sub_pd(x, whole));
  const __m256d up = _mm256_and_pd(_mm256_cmp_pd(rest, _mm256_set1_pd(0.5), _CMP_GE_OQ),
                                   _mm256_or_pd(_mm256_and_pd(x, sign), _mm256_set1_pd(1.0)));
  const __m128i value = _mm256_cvttpd_epi32(_mm256_add_pd(whole, up));
  return _mm_min_epi32(_mm_max_epi32(value, _mm_set1_epi32(q.lo)), _mm_set1_epi32(q.hi));
}

void requant_double_s16__avx2(const int32_t* acc, int acc_stride, int m, int n, const DoubleRequantView& q,
                              int16_t* out, size_t out_stride) {
  for (int i = 0; i < m; ++i) {
    for (int c = 0; c < n; c += 8) {
      const int32_t* row = acc + i * acc_stride + c;
      const __m128i narrow = _mm_packs_epi32(RequantDouble4(row, q, c), RequantDouble4(row + 4, q, c + 4));
      int16_t tail[8];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(tail), narrow);
      for (int j = 0; j < 8 && c + j < n; ++j) out[i * out_stride + c + j] = tail[j];
    }
  }
}

// Sums of some pixels first, requantized together: the constants of 16 channels do not fit the registers beside the sums.
void DwBlock(const int16_t* const* taps, int num_taps, const DwRun& run, int channel, int n, const int16_t* weights,
             const RequantView& q, int16_t* out, size_t out_stride) {
  constexpr int kTogether = 32;
  alignas(32) int32_t sums[kTogether * kPanel];
  ptrdiff_t at = channel;
  for (int first = 0; first < run.pixels; first += kTogether) {
    const int count = run.pixels - first < kTogether ? run.pixels - first : kTogether;
    for (int p = 0; p < count; ++p, at += run.step) {
      __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
      const int16_t* w = weights;
      for (int t = 0; t < num_taps; t += 2, w += 2 * kPanel) {
        const __m256i one = Load(taps[t] + at), two = Load(taps[t + 1] + at);
        low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(one, two), Load(w)));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(one, two), Load(w + kPanel)));
      }
      Store(sums + p * kPanel, _mm256_permute2x128_si256(low, high, 0x20));
      Store(sums + p * kPanel + 8, _mm256_permute2x128_si256(low, high, 0x31));
    }
    requant_s32_s16__avx2(sums, kPanel, count, n, q, out + first * out_stride, out_stride);
  }
}

void s16s8_dwconv_1x16__avx2(const int16_t* const* taps, int num_taps, const DwRun* runs, int num_runs, int channel, int n,
                             const int16_t* weights, const RequantView& q, int16_t* out, size_t out_stride) {
  for (int c = 0; c < n; c += kPanel) {
    const RequantView here = FromChannel(q, c);
    const int16_t* const* under = taps;
    int16_t* to = out + c;
    for (const DwRun* run = runs; run < runs + num_runs; ++run, under += num_taps) {
      DwBlock(under, num_taps, *run, channel + c, n - c < kPanel ? n - c : kPanel,
              weights + static_cast<size_t>(c) * num_taps, here, to, out_stride);
      to += run->pixels * out_stride;
    }
  }
}

// (x * multiplier + 2^30) >> 31 in each 32-bit lane.
inline __m256i DoublingHighMul(__m256i x, __m256i multiplier) {
  const __m256i round = _mm256_set1_epi64x(int64_t{1} << 30);
  const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, multiplier), round);
  const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), multiplier), round);
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
}

inline __m256i DivideByPot(__m256i x, int exponent) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>((int64_t{1} << exponent) - 1));
  const __m256i threshold = _mm256_sub_epi32(_mm256_srai_epi32(mask, 1), _mm256_srai_epi32(x, 31));
  const __m256i up = _mm256_cmpgt_epi32(_mm256_and_si256(x, mask), threshold);
  return _mm256_sub_epi32(_mm256_sra_epi32(x, _mm_cvtsi32_si128(exponent)), up);
}

// One multiplier, prepared once per call.
struct Multiplier {
  explicit Multiplier(int32_t multiplier, int shift)
      : value(_mm256_set1_epi32(multiplier)), left(shift > 0 ? shift : 0), right(shift > 0 ? 0 : -shift) {}
  __m256i operator()(__m256i x) const {
    return DivideByPot(DoublingHighMul(_mm256_sll_epi32(x, _mm_cvtsi32_si128(left)), value), right);
  }
  __m256i value;
  int left, right;
};

inline __m256i Widen(const int16_t* p) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline void StoreClamped(__m256i value, int32_t lo, int32_t hi, int16_t* out) {
  const __m256i clamped = _mm256_min_epi32(_mm256_max_epi32(value, _mm256_set1_epi32(lo)), _mm256_set1_epi32(hi));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm_packs_epi32(_mm256_castsi256_si128(clamped), _mm256_extracti128_si256(clamped, 1)));
}

inline __m256i ShiftInput(__m256i x, int total) {
  return total >= 0 ? _mm256_sll_epi32(x, _mm_cvtsi32_si128(total)) : _mm256_sra_epi32(x, _mm_cvtsi32_si128(-total));
}

inline int32_t AddBlocksOne(int16_t a, int16_t b, const AddView& p) {
  const int ta = 15 + p.shift_a, tb = 15 + p.shift_b;
  const int32_t sa = ta >= 0 ? ShiftLeftWrapping(a, ta) : a >> (-ta > 31 ? 31 : -ta);
  const int32_t sb = tb >= 0 ? ShiftLeftWrapping(b, tb) : b >> (-tb > 31 ? 31 : -tb);
  const int32_t sum =
      SaturatingRoundingDoublingHighMul(sa, p.multiplier_a) + SaturatingRoundingDoublingHighMul(sb, p.multiplier_b);
  return RoundingDivideByPot(SaturatingRoundingDoublingHighMul(sum, p.multiplier_out), -p.shift_out);
}

void s16_add_blocks__avx2(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  const __m256i ma = _mm256_set1_epi32(p.multiplier_a), mb = _mm256_set1_epi32(p.multiplier_b);
  const __m256i mo = _mm256_set1_epi32(p.multiplier_out);
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i sum = _mm256_add_epi32(DoublingHighMul(ShiftInput(Widen(a + i), 15 + p.shift_a), ma),
                                         DoublingHighMul(ShiftInput(Widen(b + i), 15 + p.shift_b), mb));
    StoreClamped(DivideByPot(DoublingHighMul(sum, mo), -p.shift_out), p.lo, p.hi, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<int16_t>(ClampInt(AddBlocksOne(a[i], b[i], p), p.lo, p.hi));
}

template <int kSign>
inline void AddOrSub(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  const Multiplier ma(p.multiplier_a, p.shift_a), mb(p.multiplier_b, p.shift_b), mo(p.multiplier_out, p.shift_out);
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i left = ma(_mm256_slli_epi32(Widen(a + i), 15)), right = mb(_mm256_slli_epi32(Widen(b + i), 15));
    const __m256i sum = kSign > 0 ? _mm256_add_epi32(left, right) : _mm256_sub_epi32(left, right);
    StoreClamped(mo(sum), p.lo, p.hi, out + i);
  }
  for (; i < n; ++i) {
    const int32_t left = MultiplyAcc32(ShiftLeftWrapping(a[i], 15), {p.multiplier_a, p.shift_a});
    const int32_t right = MultiplyAcc32(ShiftLeftWrapping(b[i], 15), {p.multiplier_b, p.shift_b});
    const int32_t value = MultiplyAcc32(left + kSign * right, {p.multiplier_out, p.shift_out});
    out[i] = static_cast<int16_t>(ClampInt(value, p.lo, p.hi));
  }
}

void s16_add__avx2(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  AddOrSub<1>(a, b, n, p, out);
}

void s16_sub__avx2(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  AddOrSub<-1>(a, b, n, p, out);
}

void s16_mul__avx2(const int16_t* a, const int16_t* b, int n, const ScaleView& p, int16_t* out) {
  const Multiplier m(p.multiplier, p.shift);
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    StoreClamped(m(_mm256_mullo_epi32(Widen(a + i), Widen(b + i))), p.lo, p.hi, out + i);
  }
  for (; i < n; ++i) {
    out[i] = static_cast<int16_t>(ClampInt(MultiplyAcc32(int32_t{a[i]} * b[i], {p.multiplier, p.shift}), p.lo, p.hi));
  }
}

void s16_scale__avx2(const int16_t* in, int n, const ScaleView& p, int16_t* out) {
  const Multiplier m(p.multiplier, p.shift);
  int i = 0;
  for (; i + 8 <= n; i += 8) StoreClamped(m(Widen(in + i)), p.lo, p.hi, out + i);
  for (; i < n; ++i) {
    out[i] = static_cast<int16_t>(ClampInt(MultiplyAcc32(in[i], {p.multiplier, p.shift}), p.lo, p.hi));
  }
}

void f32_quantize_s16__avx2(const float* in, int n, float scale, int16_t* out) {
  const float inverse = static_cast<float>(1.0 / static_cast<double>(scale));
  const __m256 factor = _mm256_set1_ps(inverse);
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    StoreClamped(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(in + i), factor)), INT16_MIN, INT16_MAX, out + i);
  }
  for (; i < n; ++i) {
    const int32_t value = _mm_cvtss_si32(_mm_set_ss(in[i] * inverse));
    out[i] = static_cast<int16_t>(ClampInt(value, INT16_MIN, INT16_MAX));
  }
}

void s16_dequantize_f32__avx2(const int16_t* in, int n, float scale, float* out) {
  const __m256 factor = _mm256_set1_ps(scale);
  int i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(Widen(in + i)), factor));
  for (; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

}  // namespace

void FillAvx2Int16(KernelTable* t) {
  t->s16s8_gemm = {"s16s8_gemm_6x16__avx2", 6, 1, 2, 0, PackPairs<int8_t>, gemm_6x16__avx2<int8_t>,
                   gemm_to_float_6x16__avx2<int8_t>};
  t->s16s16_gemm = {"s16s16_gemm_6x16__avx2", 6, 1, 2, 0, PackPairs<int16_t>, gemm_6x16__avx2<int16_t>,
                    gemm_to_float_6x16__avx2<int16_t>};
  t->requant_s32_s16 = {"requant_s32_s16__avx2", requant_s32_s16__avx2};
  t->requant_s64_s16 = {"requant_s64_s16__avx2", requant_s64_s16__avx2};
  t->requant_double_s16 = {"requant_double_s16__avx2", requant_double_s16__avx2};
  t->s16s8_dwconv = {"s16s8_dwconv_1x16__avx2", s16s8_dwconv_1x16__avx2};
  t->s16_add_blocks = {"s16_add_blocks__avx2", s16_add_blocks__avx2};
  t->s16_add = {"s16_add__avx2", s16_add__avx2};
  t->s16_sub = {"s16_sub__avx2", s16_sub__avx2};
  t->s16_mul = {"s16_mul__avx2", s16_mul__avx2};
  t->s16_scale = {"s16_scale__avx2", s16_scale__avx2};
  t->f32_quantize_s16 = {"f32_quantize_s16__avx2", f32_quantize_s16__avx2};
  t->s16_dequantize_f32 = {"s16_dequantize_f32__avx2", s16_dequantize_f32__avx2};
}

}  // namespace litesmith
