// SPDX-License-Identifier: Apache-2.0
// int16 operators value by value for AVX-512: 16 at a time, the last ones under a mask.
#include <immintrin.h>

#include <cstdint>

#include "kernels/fill.h"
#include "kernels/table.h"

namespace litesmith {
namespace {

constexpr int kLanes = 16;

inline __mmask16 FirstOf(int n) { return static_cast<__mmask16>(n >= kLanes ? 0xFFFF : (1u << n) - 1); }

inline __m512i Widened(const int16_t* p, __mmask16 mask) {
  return _mm512_cvtepi16_epi32(_mm256_maskz_loadu_epi16(mask, p));
}

// (x * multiplier + 2^30) >> 31 in each 32-bit lane.
inline __m512i DoublingHighMul(__m512i x, __m512i multiplier) {
  const __m512i round = _mm512_set1_epi64(int64_t{1} << 30);
  const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(x, multiplier), round);
  const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(x, 32), multiplier), round);
  return _mm512_castps_si512(_mm512_mask_moveldup_ps(_mm512_castsi512_ps(_mm512_srli_epi64(even, 31)), 0xAAAA,
                                                     _mm512_castsi512_ps(_mm512_srli_epi64(odd, 31))));
}

// Halves away from zero.
struct DivideByPot {
  explicit DivideByPot(int exponent)
      : shift(_mm512_set1_epi32(exponent)),
        mask(_mm512_set1_epi32(static_cast<int32_t>((int64_t{1} << exponent) - 1))),
        half(_mm512_set1_epi32(static_cast<int32_t>(((int64_t{1} << exponent) - 1) >> 1))),
        one(_mm512_set1_epi32(1)),
        sign(_mm512_set1_epi32(31)) {}
  __m512i operator()(__m512i x) const {
    const __m512i threshold = _mm512_sub_epi32(half, _mm512_srav_epi32(x, sign));
    const __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(x, mask), threshold);
    const __m512i down = _mm512_srav_epi32(x, shift);
    return _mm512_mask_add_epi32(down, up, down, one);
  }
  __m512i shift, mask, half, one, sign;
};

// To the left by a positive number, to the right by a negative one.
struct ShiftBy {
  explicit ShiftBy(int by) : left(_mm512_set1_epi32(by > 0 ? by : 0)), right(_mm512_set1_epi32(by < 0 ? -by : 0)) {}
  __m512i operator()(__m512i x) const { return _mm512_srav_epi32(_mm512_sllv_epi32(x, left), right); }
  __m512i left, right;
};

struct Multiplier {
  Multiplier(int32_t multiplier, int shift)
      : value(_mm512_set1_epi32(multiplier)), left(_mm512_set1_epi32(shift > 0 ? shift : 0)), divide(shift > 0 ? 0 : -shift) {}
  __m512i operator()(__m512i x) const { return divide(DoublingHighMul(_mm512_sllv_epi32(x, left), value)); }
  __m512i value, left;
  DivideByPot divide;
};

struct Limits {
  Limits(int32_t lo_, int32_t hi_) : lo(_mm512_set1_epi32(lo_)), hi(_mm512_set1_epi32(hi_)) {}
  void Store(__m512i value, int16_t* out, __mmask16 mask) const {
    _mm256_mask_storeu_epi16(out, mask, _mm512_cvtsepi32_epi16(_mm512_min_epi32(_mm512_max_epi32(value, lo), hi)));
  }
  __m512i lo, hi;
};

void s16_add_blocks__avx512(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  const __m512i ma = _mm512_set1_epi32(p.multiplier_a), mb = _mm512_set1_epi32(p.multiplier_b);
  const __m512i mo = _mm512_set1_epi32(p.multiplier_out);
  const ShiftBy shift_a(15 + p.shift_a), shift_b(15 + p.shift_b);
  const DivideByPot divide(-p.shift_out);
  const Limits limits(p.lo, p.hi);
  for (int i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstOf(n - i);
    const __m512i sum = _mm512_add_epi32(DoublingHighMul(shift_a(Widened(a + i, mask)), ma),
                                         DoublingHighMul(shift_b(Widened(b + i, mask)), mb));
    limits.Store(divide(DoublingHighMul(sum, mo)), out + i, mask);
  }
}

template <int kSign>
void AddOrSub(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  const Multiplier ma(p.multiplier_a, p.shift_a), mb(p.multiplier_b, p.shift_b), mo(p.multiplier_out, p.shift_out);
  const Limits limits(p.lo, p.hi);
  for (int i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstOf(n - i);
    const __m512i left = ma(_mm512_slli_epi32(Widened(a + i, mask), 15));
    const __m512i right = mb(_mm512_slli_epi32(Widened(b + i, mask), 15));
    limits.Store(mo(kSign > 0 ? _mm512_add_epi32(left, right) : _mm512_sub_epi32(left, right)), out + i, mask);
  }
}

void s16_add__avx512(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  AddOrSub<1>(a, b, n, p, out);
}

void s16_sub__avx512(const int16_t* a, const int16_t* b, int n, const AddView& p, int16_t* out) {
  AddOrSub<-1>(a, b, n, p, out);
}

void s16_mul__avx512(const int16_t* a, const int16_t* b, int n, const ScaleView& p, int16_t* out) {
  const Multiplier m(p.multiplier, p.shift);
  const Limits limits(p.lo, p.hi);
  for (int i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstOf(n - i);
    limits.Store(m(_mm512_mullo_epi32(Widened(a + i, mask), Widened(b + i, mask))), out + i, mask);
  }
}

void s16_scale__avx512(const int16_t* in, int n, const ScaleView& p, int16_t* out) {
  const Multiplier m(p.multiplier, p.shift);
  const Limits limits(p.lo, p.hi);
  for (int i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstOf(n - i);
    limits.Store(m(Widened(in + i, mask)), out + i, mask);
  }
}

void f32_quantize_s16__avx512(const float* in, int n, float scale, int16_t* out) {
  const __m512 factor = _mm512_set1_ps(static_cast<float>(1.0 / static_cast<double>(scale)));
  const Limits limits(INT16_MIN, INT16_MAX);
  for (int i = 0; i < n; i += kLanes) {
    const __mmask16 mask = FirstOf(n - i);
    limits.Store(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, in + i), factor)), out + i, mask);
  }
}

}  // namespace

void FillAvx512Int16(KernelTable* t) {
  t->s16_add_blocks = {"s16_add_blocks__avx512", s16_add_blocks__avx512};
  t->s16_add = {"s16_add__avx512", s16_add__avx512};
  t->s16_sub = {"s16_sub__avx512", s16_sub__avx512};
  t->s16_mul = {"s16_mul__avx512", s16_mul__avx512};
  t->s16_scale = {"s16_scale__avx512", s16_scale__avx512};
  t->f32_quantize_s16 = {"f32_quantize_s16__avx512", f32_quantize_s16__avx512};
}

}  // namespace litesmith
