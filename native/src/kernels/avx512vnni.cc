// SPDX-License-Identifier: Apache-2.0
// int16x8 kernels and the products of hybrid operators for AVX-512 VNNI: vpdpwssd multiplies a broadcast pair of activations
// with 16 channels x 2 weights and adds, 32 multiply-adds an instruction. What the tier has no kernel of its own for, it
// takes from AVX2.
//
// The tier is chosen only after it has agreed with the scalar reference at start-up (Tier::verify_before_use).
#include <immintrin.h>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

inline __mmask16 FirstOf16(int n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1u << n) - 1); }

inline int Pair(const int16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pair;
}

// The panel layout of AVX2: [k / 2][kPanel][2].
template <class Weight>
void PackPairs(const Weight* weights, size_t row_stride, int n, int k, Weight* panel) {
  for (int i = 0; i < k; i += 2, panel += 2 * kPanel) {
    for (int c = 0; c < kPanel; ++c) {
      panel[2 * c] = c < n ? weights[c * row_stride + i] : Weight{0};
      panel[2 * c + 1] = c < n && i + 1 < k ? weights[c * row_stride + i + 1] : Weight{0};
    }
  }
}

#define LITESMITH_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

inline __m512i Widened(const int8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline __m512i Widened(const int16_t* p) { return _mm512_loadu_si512(p); }

// Sums in named variables and nothing but the loop: anything else makes gcc 12 spill them. The index runs up to zero and
// the panels are one pointer and a stride: 12 rows leave no register for more.
template <int kRows, int kPanels, class Weight>
__attribute__((noinline)) void GemmTile(const int16_t* const* rows, int k, const Weight* panel, size_t panel_stride,
                                        int32_t* acc) {
#define LITESMITH_START(i)                                     \
  const int16_t* const row##i = rows[i < kRows ? i : 0] + k;   \
  __m512i a##i = _mm512_setzero_si512(), b##i = a##i, c##i = a##i, d##i = a##i;
  LITESMITH_EACH_ROW(LITESMITH_START)
#undef LITESMITH_START
  for (ptrdiff_t j = -static_cast<ptrdiff_t>(k); j != 0; j += 2, panel += 2 * kPanel) {
    const __m512i w0 = Widened(panel);
    const __m512i w1 = kPanels > 1 ? Widened(panel + panel_stride) : w0;
    const __m512i w2 = kPanels > 2 ? Widened(panel + 2 * panel_stride) : w0;
    const __m512i w3 = kPanels > 3 ? Widened(panel + 3 * panel_stride) : w0;
#define LITESMITH_STEP(i)                                                  \
  if constexpr (kRows > i) {                                               \
    const __m512i pair = _mm512_set1_epi32(Pair(row##i + j));              \
    a##i = _mm512_dpwssd_epi32(a##i, pair, w0);                            \
    if constexpr (kPanels > 1) b##i = _mm512_dpwssd_epi32(b##i, pair, w1); \
    if constexpr (kPanels > 2) c##i = _mm512_dpwssd_epi32(c##i, pair, w2); \
    if constexpr (kPanels > 3) d##i = _mm512_dpwssd_epi32(d##i, pair, w3); \
  }
    LITESMITH_EACH_ROW(LITESMITH_STEP)
#undef LITESMITH_STEP
  }
#define LITESMITH_WRITE(i)                                                                           \
  if constexpr (kRows > i) {                                                                         \
    int32_t* const to = acc + i * kPanels * kPanel;                                                  \
    _mm512_storeu_si512(to, a##i);                                                                   \
    if constexpr (kPanels > 1) _mm512_storeu_si512(to + kPanel, b##i);                               \
    if constexpr (kPanels > 2) _mm512_storeu_si512(to + 2 * kPanel, c##i);                           \
    if constexpr (kPanels > 3) _mm512_storeu_si512(to + 3 * kPanel, d##i);                           \
  }
  LITESMITH_EACH_ROW(LITESMITH_WRITE)
#undef LITESMITH_WRITE
}

// The rows of a call: 24 sums fill the registers, so the more panels the fewer rows at a time.
template <int kPanels, class Weight>
void Tiles(const int16_t* const* rows, int m, int k, const Weight* panel, size_t stride, int32_t* acc) {
  constexpr int kMost = kPanels > 2 ? 6 : 12;
#define LITESMITH_ROWS(n) \
  case n: GemmTile<(n < kMost ? n : kMost), kPanels>(rows, k, panel, stride, acc); break;
  for (; m > 0; m -= kMost, rows += kMost, acc += kMost * kPanels * kPanel) {
    switch (m) {
      LITESMITH_ROWS(1)
      LITESMITH_ROWS(2)
      LITESMITH_ROWS(3)
      LITESMITH_ROWS(4)
      LITESMITH_ROWS(5)
      LITESMITH_ROWS(6)
      LITESMITH_ROWS(7)
      LITESMITH_ROWS(8)
      LITESMITH_ROWS(9)
      LITESMITH_ROWS(10)
      LITESMITH_ROWS(11)
      default: GemmTile<kMost, kPanels>(rows, k, panel, stride, acc);
    }
  }
#undef LITESMITH_ROWS
}

template <class Weight>
void gemm_6x64__avx512vnni(const int16_t* const* rows, int m, int k, const Weight* panels, size_t panel_stride,
                           int num_panels, int32_t* acc) {
  switch (num_panels) {
    case 1: return Tiles<1>(rows, m, k, panels, panel_stride, acc);
    case 2: return Tiles<2>(rows, m, k, panels, panel_stride, acc);
    case 3: return Tiles<3>(rows, m, k, panels, panel_stride, acc);
    default: return Tiles<4>(rows, m, k, panels, panel_stride, acc);
  }
}

// Sums that become outputs at the end of K, straight from the registers: two panels of six rows, or four of three. With
// several chunks of K the sums of all but the last wait in memory, as floats. `last` has the channels of the last panel.
#define LITESMITH_EACH_OF_6(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define LITESMITH_EACH_SUM(X, i)                          \
  if constexpr (kRows > i) X(a, i, 0);                    \
  if constexpr (kRows > i && kPanels > 1) X(b, i, 1);     \
  if constexpr (kRows > i && kPanels > 2) X(c, i, 2);     \
  if constexpr (kRows > i && kPanels > 3) X(d, i, 3);
template <int kRows, int kPanels, class Weight>
__attribute__((noinline)) void TileToFloat(const int16_t* const* rows, const KPiece* pieces, int num_pieces,
                                           const Weight* panel, size_t panel_stride, const float* steps,
                                           const FloatFinishView& q, __mmask16 last, float* out, size_t out_stride) {
#define LITESMITH_START(i) __m512i a##i = _mm512_setzero_si512(), b##i = a##i, c##i = a##i, d##i = a##i;
  LITESMITH_EACH_OF_6(LITESMITH_START)
#undef LITESMITH_START
  alignas(64) float waiting[kRows * kPanels * kPanel];
  bool waits = false;
  ptrdiff_t begin = 0;
  for (const KPiece* piece = pieces; piece < pieces + num_pieces; ++piece) {
#define LITESMITH_ROW(i) const int16_t* const row##i = rows[i < kRows ? i : 0] + piece->shift;
    LITESMITH_EACH_OF_6(LITESMITH_ROW)
#undef LITESMITH_ROW
    for (const ptrdiff_t end = piece->end; begin < end; begin += 2) {
      const Weight* const from = panel + begin * kPanel;
      const __m512i w0 = Widened(from), w1 = kPanels > 1 ? Widened(from + panel_stride) : w0;
      const __m512i w2 = kPanels > 2 ? Widened(from + 2 * panel_stride) : w0;
      const __m512i w3 = kPanels > 3 ? Widened(from + 3 * panel_stride) : w0;
#define LITESMITH_ADD(sum, i, p) sum##i = _mm512_dpwssd_epi32(sum##i, pair, w##p)
#define LITESMITH_STEP(i)                                                                   \
  if constexpr (kRows > i) {                                                                \
    const __m512i pair = _mm512_set1_epi32(Pair(row##i + begin));                           \
    LITESMITH_EACH_SUM(LITESMITH_ADD, i)                                                    \
  }
      LITESMITH_EACH_OF_6(LITESMITH_STEP)
#undef LITESMITH_STEP
#undef LITESMITH_ADD
    }
    if (!piece->ends_chunk || piece + 1 == pieces + num_pieces) continue;
    const auto wait = [&](__m512i* sum, float* to) __attribute__((always_inline)) {
      const __m512 value = _mm512_cvtepi32_ps(*sum);
      _mm512_storeu_ps(to, waits ? _mm512_add_ps(value, _mm512_loadu_ps(to)) : value);
      *sum = _mm512_setzero_si512();
    };
#define LITESMITH_WAIT(sum, i, p) wait(&sum##i, waiting + (i * kPanels + p) * kPanel)
#define LITESMITH_END_CHUNK(i) LITESMITH_EACH_SUM(LITESMITH_WAIT, i)
    LITESMITH_EACH_OF_6(LITESMITH_END_CHUNK)
#undef LITESMITH_END_CHUNK
#undef LITESMITH_WAIT
    waits = true;
  }
  const __m512 lo = _mm512_set1_ps(q.lo), hi = _mm512_set1_ps(q.hi);
  // In this order of operands a value that is not a number stays one.
  const auto put = [&](__m512i sum, int i, int p) __attribute__((always_inline)) {
    __m512 whole = _mm512_cvtepi32_ps(sum);
    if (waits) whole = _mm512_add_ps(whole, _mm512_loadu_ps(waiting + (i * kPanels + p) * kPanel));
    const __m512 factor = _mm512_mul_ps(_mm512_set1_ps(steps[i]), _mm512_loadu_ps(q.scale + p * kPanel));
    const __m512 value = _mm512_fmadd_ps(whole, factor, _mm512_loadu_ps(q.bias + p * kPanel));
    _mm512_mask_storeu_ps(out + i * out_stride + p * kPanel, p == kPanels - 1 ? last : 0xFFFF,
                          _mm512_min_ps(hi, _mm512_max_ps(lo, value)));
  };
#define LITESMITH_PUT(sum, i, p) put(sum##i, i, p)
#define LITESMITH_PUT_ROW(i) LITESMITH_EACH_SUM(LITESMITH_PUT, i)
  LITESMITH_EACH_OF_6(LITESMITH_PUT_ROW)
#undef LITESMITH_PUT_ROW
#undef LITESMITH_PUT
}

template <int kPanels, class Weight>
void RowsToFloat(const int16_t* const* rows, int m, const KPiece* pieces, int num_pieces, const Weight* panel,
                 size_t panel_stride, const float* steps, const FloatFinishView& q, __mmask16 last, float* out,
                 size_t out_stride) {
  constexpr int kMost = kPanels > 2 ? 3 : 6;
#define LITESMITH_ROWS(n)                                                                                              \
  case n:                                                                                                              \
    TileToFloat<(n < kMost ? n : kMost), kPanels>(rows, pieces, num_pieces, panel, panel_stride, steps, q, last, out,  \
                                                  out_stride);                                                         \
    break;
  for (; m > 0; m -= kMost, rows += kMost, steps += kMost, out += kMost * out_stride) {
    switch (m) {
      LITESMITH_ROWS(1)
      LITESMITH_ROWS(2)
      LITESMITH_ROWS(3)
      LITESMITH_ROWS(4)
      LITESMITH_ROWS(5)
      default:
        TileToFloat<kMost, kPanels>(rows, pieces, num_pieces, panel, panel_stride, steps, q, last, out, out_stride);
    }
  }
#undef LITESMITH_ROWS
}

template <class Weight>
void gemm_to_float_6x32__avx512vnni(const int16_t* const* rows, int m, const KPiece* pieces, int num_pieces,
                                    const Weight* panels, size_t panel_stride, const float* steps,
                                    const FloatFinishView& q, int n, float* out, size_t out_stride) {
  const int together = m <= 3 ? 4 : 2;  // panels
  for (int c = 0; c < n; c += together * kPanel) {
    const FloatFinishView here{q.scale + c, q.bias + c, q.lo, q.hi};
    const int left = (n - c + kPanel - 1) / kPanel, count = left < together ? left : together;
    const __mmask16 last = FirstOf16(n - c - (count - 1) * kPanel);
    (count == 1   ? RowsToFloat<1, Weight>
     : count == 2 ? RowsToFloat<2, Weight>
     : count == 3 ? RowsToFloat<3, Weight>
                  : RowsToFloat<4, Weight>)(rows, m, pieces, num_pieces, panels + c / kPanel * panel_stride, panel_stride,
                                            steps, here, last, out + c, out_stride);
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

inline unsigned FirstOf32(int n) { return n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1; }

// The same in 32 bits (RequantView::narrow): not narrowed to int16 yet, and not clamped.
struct NarrowChannels16 {
  NarrowChannels16(const RequantView& q, int c)
      : bias(_mm512_loadu_si512(q.narrow.bias + c)),
        round(_mm512_loadu_si512(q.narrow.round + c)),
        shift(_mm512_loadu_si512(q.narrow.shift + c)),
        low(_mm512_loadu_si512(q.multiplier + c)),
        high(_mm512_slli_epi32(low, 16)) {}

  __m512i Requant(__m512i acc) const { return WithBias(_mm512_add_epi32(acc, bias)); }
  // The high half of `low` is zero, and so is that of its products.
  __m512i WithBias(__m512i x) const {
    const __m512i sum = _mm512_dpwssd_epi32(_mm512_mulhi_epu16(x, low), x, high);
    return _mm512_srav_epi32(_mm512_add_epi32(sum, round), shift);
  }

  __m512i bias, round, shift, low, high;
};

// Two vectors of 16 to one of 32, clamped; in order.
inline __m512i Together(__m512i first, __m512i second, __m512i lo, __m512i hi) {
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const __m512i both = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(first, second));
  return _mm512_min_epi16(_mm512_max_epi16(both, lo), hi);
}

void NarrowRequant(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                   size_t out_stride) {
  const __m512i lo = _mm512_set1_epi16(static_cast<int16_t>(q.lo)), hi = _mm512_set1_epi16(static_cast<int16_t>(q.hi));
  for (int c = 0; c < n; c += 32) {
    const bool two = n - c > 16;  // vectors of sums
    const NarrowChannels16 first(q, c), second(q, two ? c + 16 : c);
    const int32_t* from = acc + c;
    const int32_t* from2 = two ? from + 16 : from;
    const __mmask32 mask = FirstOf32(n - c);
    int16_t* to = out + c;
    for (int i = 0; i < m; ++i, from += acc_stride, from2 += acc_stride, to += out_stride) {
      const __m512i a = first.Requant(_mm512_loadu_si512(from)), b = second.Requant(_mm512_loadu_si512(from2));
      _mm512_mask_storeu_epi16(to, mask, Together(a, b, lo, hi));
    }
  }
}

void requant_s32_s16__avx512(const int32_t* acc, int acc_stride, int m, int n, const RequantView& q, int16_t* out,
                             size_t out_stride) {
  if (q.narrow.bias != nullptr) return NarrowRequant(acc, acc_stride, m, n, q, out, out_stride);
  for (int c = 0; c < n; c += 16) {
    const Channels16 channels(q, c);
    const __mmask16 mask = FirstOf16(n - c);
    const int32_t* from = acc + c;
    int16_t* to = out + c;
    for (int i = 0; i < m; ++i, from += acc_stride, to += out_stride) {
      _mm256_mask_storeu_epi16(to, mask, channels.Requant(_mm512_loadu_si512(from)));
    }
  }
}

// A depthwise convolution takes 32 channels at a time, or the last 16 with nothing in the upper half. Unpacking two taps
// to pairs delivers channels 0-3, 8-11, 16-19 and 24-27 in `low`, the others in `high`; packing undoes it.
template <bool kTwo>
inline __m512i LoadChannels(const int16_t* p) {
  return kTwo ? _mm512_loadu_si512(p)
              : _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Of both blocks of 16 channels, which are `stride` apart.
template <bool kTwo>
inline __m512i LoadWeights(const int16_t* p, size_t stride) {
  const __m512i first = LoadChannels<false>(p);
  if (!kTwo) return first;
  return _mm512_inserti64x4(first, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + stride)), 1);
}

inline __m512i Low(__m512i first, __m512i second) { return _mm512_shuffle_i32x4(first, second, _MM_SHUFFLE(2, 0, 2, 0)); }
inline __m512i High(__m512i first, __m512i second) { return _mm512_shuffle_i32x4(first, second, _MM_SHUFFLE(3, 1, 3, 1)); }

class NarrowFinish {
 public:
  NarrowFinish(const RequantView& q, int n)
      : low_(q, 0), high_(q, n > kPanel ? kPanel : 0), mask_(FirstOf32(n)),
        lo_(_mm512_set1_epi16(static_cast<int16_t>(q.lo))), hi_(_mm512_set1_epi16(static_cast<int16_t>(q.hi))) {
    Reorder(&low_.bias, &high_.bias);
    Reorder(&low_.round, &high_.round);
    Reorder(&low_.shift, &high_.shift);
    Reorder(&low_.low, &high_.low);
    Reorder(&low_.high, &high_.high);
  }
  __m512i low_start() const { return low_.bias; }
  __m512i high_start() const { return high_.bias; }
  void Store(__m512i low, __m512i high, int16_t* out) const {
    const __m512i both = _mm512_packs_epi32(low_.WithBias(low), high_.WithBias(high));
    _mm512_mask_storeu_epi16(out, mask_, _mm512_min_epi16(_mm512_max_epi16(both, lo_), hi_));
  }

 private:
  static void Reorder(__m512i* first, __m512i* second) {
    const __m512i low = Low(*first, *second);
    *second = High(*first, *second);
    *first = low;
  }
  NarrowChannels16 low_, high_;
  __mmask32 mask_;
  __m512i lo_, hi_;
};

class WideFinish {
 public:
  WideFinish(const RequantView& q, int n) : first_(q, 0), second_(q, n > kPanel ? kPanel : 0), n_(n) {}
  __m512i low_start() const { return _mm512_setzero_si512(); }
  __m512i high_start() const { return _mm512_setzero_si512(); }
  void Store(__m512i low, __m512i high, int16_t* out) const {
    const __m512i first = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high);
    const __m512i second = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high);
    _mm256_mask_storeu_epi16(out, FirstOf16(n_), first_.Requant(first));
    if (n_ <= kPanel) return;
    _mm256_mask_storeu_epi16(out + kPanel, FirstOf16(n_ - kPanel), second_.Requant(second));
  }

 private:
  Channels16 first_, second_;
  int n_;
};

#define LITESMITH_TAP_PAIR(first, second, w_low, w_high)                                                    \
  {                                                                                                         \
    const __m512i one = LoadChannels<kTwo>((first) + at), two = LoadChannels<kTwo>((second) + at);          \
    low = _mm512_dpwssd_epi32(low, _mm512_unpacklo_epi16(one, two), w_low);                                 \
    high = _mm512_dpwssd_epi32(high, _mm512_unpackhi_epi16(one, two), w_high);                              \
  }

template <bool kTwo, class Finish>
void DwBlock(const int16_t* const* taps, int num_taps, const DwRun* runs, int num_runs, int channel,
             const int16_t* weights, const Finish& finish_, int16_t* out, size_t out_stride) {
  const size_t stride = static_cast<size_t>(num_taps) * kPanel;
  const Finish finish = finish_;  // a local stays in registers: no store can change it
  if (num_taps == 10) {           // 3x3, the usual one: all weights and pointers in registers
#define LITESMITH_PAIR_WEIGHTS(i)                                            \
  const __m512i a##i = LoadWeights<kTwo>(weights + i * 2 * kPanel, stride);  \
  const __m512i b##i = LoadWeights<kTwo>(weights + (i * 2 + 1) * kPanel, stride);
    LITESMITH_PAIR_WEIGHTS(0)
    LITESMITH_PAIR_WEIGHTS(1)
    LITESMITH_PAIR_WEIGHTS(2)
    LITESMITH_PAIR_WEIGHTS(3)
    LITESMITH_PAIR_WEIGHTS(4)
#undef LITESMITH_PAIR_WEIGHTS
    for (const DwRun* run = runs; run < runs + num_runs; ++run, taps += 10) {
      const int16_t *t0 = taps[0], *t1 = taps[1], *t2 = taps[2], *t3 = taps[3], *t4 = taps[4];
      const int16_t *t5 = taps[5], *t6 = taps[6], *t7 = taps[7], *t8 = taps[8], *t9 = taps[9];
      const ptrdiff_t step = run->step, end = channel + run->pixels * step;
      for (ptrdiff_t at = channel; at != end; at += step, out += out_stride) {
        __m512i low = finish.low_start(), high = finish.high_start();
        LITESMITH_TAP_PAIR(t0, t1, a0, b0)
        LITESMITH_TAP_PAIR(t2, t3, a1, b1)
        LITESMITH_TAP_PAIR(t4, t5, a2, b2)
        LITESMITH_TAP_PAIR(t6, t7, a3, b3)
        LITESMITH_TAP_PAIR(t8, t9, a4, b4)
        finish.Store(low, high, out);
      }
    }
    return;
  }
  for (const DwRun* run = runs; run < runs + num_runs; ++run, taps += num_taps) {
    ptrdiff_t at = channel;
    for (int p = 0; p < run->pixels; ++p, at += run->step, out += out_stride) {
      __m512i low = finish.low_start(), high = finish.high_start();
      const int16_t* w = weights;
      for (int t = 0; t < num_taps; t += 2, w += 2 * kPanel) {
        LITESMITH_TAP_PAIR(taps[t], taps[t + 1], LoadWeights<kTwo>(w, stride), LoadWeights<kTwo>(w + kPanel, stride))
      }
      finish.Store(low, high, out);
    }
  }
}
#undef LITESMITH_TAP_PAIR

template <class Finish>
void DwChannels(const int16_t* const* taps, int num_taps, const DwRun* runs, int num_runs, int channel, int n,
                const int16_t* weights, const RequantView& q, int16_t* out, size_t out_stride) {
  const Finish finish(q, n);
  if (n > kPanel) {
    DwBlock<true>(taps, num_taps, runs, num_runs, channel, weights, finish, out, out_stride);
  } else {
    DwBlock<false>(taps, num_taps, runs, num_runs, channel, weights, finish, out, out_stride);
  }
}

void s16s8_dwconv_1x32__avx512vnni(const int16_t* const* taps, int num_taps, const DwRun* runs, int num_runs, int channel,
                                   int n, const int16_t* weights, const RequantView& q, int16_t* out,
                                   size_t out_stride) {
  for (int c = 0; c < n; c += 2 * kPanel) {
    (q.narrow.bias != nullptr ? DwChannels<NarrowFinish> : DwChannels<WideFinish>)(
        taps, num_taps, runs, num_runs, channel + c, n - c < 2 * kPanel ? n - c : 2 * kPanel,
        weights + static_cast<size_t>(c) * num_taps, FromChannel(q, c), out + c, out_stride);
  }
}

}  // namespace

void FillAvx512Vnni(KernelTable* t) {
  t->requant_s32_s16 = {"requant_s32_s16__avx512", requant_s32_s16__avx512};
  t->s16s8_dwconv = {"s16s8_dwconv_1x32__avx512vnni", s16s8_dwconv_1x32__avx512vnni};
  t->s16s8_gemm = {"s16s8_gemm_6x64__avx512vnni", 12, 4, 2, 0, PackPairs<int8_t>, gemm_6x64__avx512vnni<int8_t>,
                   gemm_to_float_6x32__avx512vnni<int8_t>};
  t->s16s16_gemm = {"s16s16_gemm_6x64__avx512vnni", 12, 4, 2, 0, PackPairs<int16_t>, gemm_6x64__avx512vnni<int16_t>,
                    gemm_to_float_6x32__avx512vnni<int16_t>};
}

}  // namespace litesmith
