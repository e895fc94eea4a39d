// SPDX-License-Identifier: Apache-2.0
// The AVX-512 intrinsics that the kernels use, each written out as a loop over its lanes.
//
// Included before an AVX-512 translation unit, it makes the unit tests run those kernels' logic on any AVX2 machine:
// masks, lane orders, tails and layouts. It says nothing about speed. Semantics: Intel's Intrinsics Guide.
#ifndef LITESMITH_TESTS_AVX512_IN_PLAIN_CPP_H_
#define LITESMITH_TESTS_AVX512_IN_PLAIN_CPP_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#undef _mm256_dpwssd_epi32

namespace {
namespace plain {

template <class T, class Vector = __m512i>
struct Lanes {
  static constexpr int kCount = sizeof(Vector) / sizeof(T);
  T at[kCount];

  Lanes() : at{} {}
  explicit Lanes(const Vector& v) { std::memcpy(at, &v, sizeof(v)); }
  explicit operator Vector() const {
    Vector v;
    std::memcpy(&v, at, sizeof(v));
    return v;
  }
};

template <class T, class Vector, class F>
inline Vector Each(const Vector& a, const Vector& b, F f) {
  const Lanes<T, Vector> x(a), y(b);
  Lanes<T, Vector> r;
  for (int i = 0; i < r.kCount; ++i) r.at[i] = f(x.at[i], y.at[i]);
  return static_cast<Vector>(r);
}

template <class Vector>
inline Vector Load(const void* p) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
template <class Vector>
inline void Store(void* p, const Vector& v) {
  std::memcpy(p, &v, sizeof(v));
}
template <class To, class From>
inline To Cast(const From& v) {
  static_assert(sizeof(To) == sizeof(From));
  return Load<To>(&v);
}
template <class T, class Vector>
inline Vector Same(T value) {
  Lanes<T, Vector> r;
  for (auto& x : r.at) x = value;
  return static_cast<Vector>(r);
}

inline __m512i cvtepi8_epi16(__m256i v) {
  const Lanes<int8_t, __m256i> x(v);
  Lanes<int16_t> r;
  for (int i = 0; i < r.kCount; ++i) r.at[i] = x.at[i];
  return static_cast<__m512i>(r);
}
// Wraps: the saturating form is another instruction.
template <class Vector>
inline Vector dpwssd_epi32(Vector sum, Vector a, Vector b) {
  const Lanes<int16_t, Vector> x(a), y(b);
  Lanes<int32_t, Vector> r(sum);
  for (int i = 0; i < r.kCount; ++i) {
    const int64_t products = int64_t{x.at[2 * i]} * y.at[2 * i] + int64_t{x.at[2 * i + 1]} * y.at[2 * i + 1];
    r.at[i] = static_cast<int32_t>(static_cast<uint32_t>(r.at[i]) + static_cast<uint32_t>(products));
  }
  return static_cast<Vector>(r);
}
inline __m512i mul_epi32(__m512i a, __m512i b) {
  return Each<int64_t>(a, b, [](int64_t x, int64_t y) {
    return int64_t{static_cast<int32_t>(x)} * int64_t{static_cast<int32_t>(y)};
  });
}
inline __m512i add_epi64(__m512i a, __m512i b) {
  return Each<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return x + y; });
}
inline __m512i srlv_epi64(__m512i a, __m512i b) {
  return Each<uint64_t>(a, b, [](uint64_t x, uint64_t y) { return y > 63 ? 0 : x >> y; });
}
inline __m512i srli_epi64(__m512i a, unsigned n) { return srlv_epi64(a, Same<uint64_t, __m512i>(n)); }
inline __m512i sub_epi32(__m512i a, __m512i b) {
  return Each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x - y; });
}
inline __m512i min_epi32(__m512i a, __m512i b) {
  return Each<int32_t>(a, b, [](int32_t x, int32_t y) { return x < y ? x : y; });
}
inline __m512i max_epi32(__m512i a, __m512i b) {
  return Each<int32_t>(a, b, [](int32_t x, int32_t y) { return x > y ? x : y; });
}
// Even lanes twice, where the mask says so.
inline __m512 mask_moveldup_ps(__m512 otherwise, unsigned mask, __m512 v) {
  const Lanes<float, __m512> x(v);
  Lanes<float, __m512> r(otherwise);
  for (int i = 0; i < r.kCount; ++i) {
    if ((mask >> i) & 1) r.at[i] = x.at[i & ~1];
  }
  return static_cast<__m512>(r);
}
inline __m256i cvtsepi32_epi16(__m512i v) {
  const Lanes<int32_t> x(v);
  Lanes<int16_t, __m256i> r;
  for (int i = 0; i < r.kCount; ++i) {
    r.at[i] = static_cast<int16_t>(x.at[i] < -32768 ? -32768 : x.at[i] > 32767 ? 32767 : x.at[i]);
  }
  return static_cast<__m256i>(r);
}
inline __m512i inserti64x4(__m512i v, __m256i half, int which) {
  std::memcpy(reinterpret_cast<char*>(&v) + 32 * which, &half, sizeof(half));
  return v;
}
inline __m512i castsi256_si512(__m256i v) {
  __m512i r = Same<uint8_t, __m512i>(0xA5);  // undefined in the upper half: nothing may depend on it
  std::memcpy(&r, &v, sizeof(v));
  return r;
}
// Quarters: two of the first, then two of the second.
inline __m512i shuffle_i32x4(__m512i a, __m512i b, int which) {
  __m512i r;
  for (int i = 0; i < 4; ++i) {
    std::memcpy(reinterpret_cast<char*>(&r) + 16 * i,
                reinterpret_cast<const char*>(i < 2 ? &a : &b) + 16 * ((which >> (2 * i)) & 3), 16);
  }
  return r;
}
inline __m512i add_epi32(__m512i a, __m512i b) {
  return Each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x + y; });
}
inline __m512i slli_epi32(__m512i a, unsigned n) {
  return Each<uint32_t>(a, a, [n](uint32_t x, uint32_t) { return n > 31 ? 0 : x << n; });
}
inline __m512i srav_epi32(__m512i a, __m512i b) {
  return Each<int32_t>(a, b, [](int32_t x, int32_t y) {
    return x >> (static_cast<uint32_t>(y) > 31 ? 31 : y);
  });
}
inline __m512i mulhi_epu16(__m512i a, __m512i b) {
  return Each<uint16_t>(a, b, [](uint16_t x, uint16_t y) {
    return static_cast<uint16_t>((static_cast<uint32_t>(x) * y) >> 16);
  });
}
inline __m512i min_epi16(__m512i a, __m512i b) {
  return Each<int16_t>(a, b, [](int16_t x, int16_t y) { return x < y ? x : y; });
}
inline __m512i max_epi16(__m512i a, __m512i b) {
  return Each<int16_t>(a, b, [](int16_t x, int16_t y) { return x > y ? x : y; });
}
// In each quarter: four of the first, then four of the second.
inline __m512i packs_epi32(__m512i a, __m512i b) {
  const Lanes<int32_t> x(a), y(b);
  Lanes<int16_t> r;
  for (int i = 0; i < r.kCount; ++i) {
    const int32_t value = (i % 8 < 4 ? x : y).at[i / 8 * 4 + i % 4];
    r.at[i] = static_cast<int16_t>(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
  }
  return static_cast<__m512i>(r);
}
// In each quarter: the first or the last four of both, by turns.
inline __m512i unpack_epi16(__m512i a, __m512i b, int first) {
  const Lanes<int16_t> x(a), y(b);
  Lanes<int16_t> r;
  for (int i = 0; i < r.kCount; ++i) r.at[i] = (i % 2 == 0 ? x : y).at[i / 8 * 8 + first + i % 8 / 2];
  return static_cast<__m512i>(r);
}
// The values of one vector, or of two behind each other, at the places that `order` names.
template <class T, class Index, class Vector>
inline Vector Permuted(const Vector& a, __m512i order, const Vector& b) {
  const Lanes<T, Vector> x(a), y(b);
  const Lanes<Index> from(order);
  Lanes<T, Vector> r;
  for (int i = 0; i < r.kCount; ++i) {
    const int place = static_cast<int>(from.at[i] & (2 * r.kCount - 1));
    r.at[i] = place < r.kCount ? x.at[place] : y.at[place - r.kCount];
  }
  return static_cast<Vector>(r);
}
template <class T, class... Values>
inline __m512i Listed(Values... values) {
  Lanes<T> r;
  const T all[] = {static_cast<T>(values)...};
  static_assert(sizeof(all) == sizeof(__m512i));
  std::memcpy(r.at, all, sizeof(all));
  return static_cast<__m512i>(r);
}
template <class T, class Vector>
inline void MaskedStore(T* p, unsigned mask, const Vector& v) {
  const Lanes<T, Vector> x(v);
  for (int i = 0; i < x.kCount; ++i) {
    if ((mask >> i) & 1) std::memcpy(p + i, &x.at[i], sizeof(T));
  }
}
inline __m512 maskz_loadu_ps(unsigned mask, const float* p) {
  Lanes<float, __m512> r;
  for (int i = 0; i < r.kCount; ++i) {
    if ((mask >> i) & 1) r.at[i] = p[i];
  }
  return static_cast<__m512>(r);
}
inline __m512 mask_permutexvar_ps(__m512 otherwise, unsigned mask, __m512i order, __m512 v) {
  const Lanes<float, __m512> x(v);
  const Lanes<uint32_t> from(order);
  Lanes<float, __m512> r(otherwise);
  for (int i = 0; i < r.kCount; ++i) {
    if ((mask >> i) & 1) r.at[i] = x.at[from.at[i] % r.kCount];
  }
  return static_cast<__m512>(r);
}
// The values from place n on of the second behind which the first stands.
inline __m512i alignr_epi32(__m512i a, __m512i b, int n) {
  const Lanes<int32_t> x(a), y(b);
  Lanes<int32_t> r;
  for (int i = 0; i < r.kCount; ++i) r.at[i] = i + n < r.kCount ? y.at[i + n] : x.at[i + n - r.kCount];
  return static_cast<__m512i>(r);
}
inline __m512i zextsi256_si512(__m256i v) {
  __m512i r = Same<int32_t, __m512i>(0);
  std::memcpy(&r, &v, sizeof(v));
  return r;
}
inline __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  const Lanes<float, __m512> x(a), y(b);
  Lanes<float, __m512> r(c);
  for (int i = 0; i < r.kCount; ++i) r.at[i] = __builtin_fmaf(x.at[i], y.at[i], r.at[i]);
  return static_cast<__m512>(r);
}
inline __m512 add_ps(__m512 a, __m512 b) {
  return Each<float>(a, b, [](float x, float y) { return x + y; });
}
inline __m512 mul_ps(__m512 a, __m512 b) {
  return Each<float>(a, b, [](float x, float y) { return x * y; });
}
inline __m512 cvtepi32_ps(__m512i v) {
  const Lanes<int32_t> x(v);
  Lanes<float, __m512> r;
  for (int i = 0; i < r.kCount; ++i) r.at[i] = static_cast<float>(x.at[i]);
  return static_cast<__m512>(r);
}
// The nearest integer, halves to even; the smallest where there is none.
inline __m512i cvtps_epi32(__m512 v) {
  const Lanes<float, __m512> x(v);
  Lanes<int32_t> r;
  for (int i = 0; i < r.kCount; ++i) {
    const bool fits = x.at[i] < 2147483648.0f && x.at[i] >= -2147483648.0f;
    r.at[i] = fits ? static_cast<int32_t>(__builtin_nearbyintf(x.at[i])) : INT32_MIN;
  }
  return static_cast<__m512i>(r);
}
inline __m512i cvtepi16_epi32(__m256i v) {
  const Lanes<int16_t, __m256i> x(v);
  Lanes<int32_t> r;
  for (int i = 0; i < r.kCount; ++i) r.at[i] = x.at[i];
  return static_cast<__m512i>(r);
}
inline __m256i maskz_loadu_epi16(unsigned mask, const int16_t* p) {
  Lanes<int16_t, __m256i> r;
  for (int i = 0; i < r.kCount; ++i) {
    if ((mask >> i) & 1) r.at[i] = p[i];
  }
  return static_cast<__m256i>(r);
}
inline __m512i mullo_epi32(__m512i a, __m512i b) {
  return Each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x * y; });
}
inline __m512i sllv_epi32(__m512i a, __m512i b) {
  return Each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return y > 31 ? 0 : x << y; });
}
inline __m512i and_si512(__m512i a, __m512i b) {
  return Each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x & y; });
}
inline __mmask16 cmpgt_epi32_mask(__m512i a, __m512i b) {
  const Lanes<int32_t> x(a), y(b);
  unsigned mask = 0;
  for (int i = 0; i < x.kCount; ++i) mask |= static_cast<unsigned>(x.at[i] > y.at[i]) << i;
  return static_cast<__mmask16>(mask);
}
inline __m512i mask_add_epi32(__m512i otherwise, unsigned mask, __m512i a, __m512i b) {
  const Lanes<uint32_t> x(a), y(b);
  Lanes<uint32_t> r(otherwise);
  for (int i = 0; i < r.kCount; ++i) {
    if ((mask >> i) & 1) r.at[i] = x.at[i] + y.at[i];
  }
  return static_cast<__m512i>(r);
}
inline __m512 min_ps(__m512 a, __m512 b) {
  return Each<float>(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline __m512 max_ps(__m512 a, __m512 b) {
  return Each<float>(a, b, [](float x, float y) { return x > y ? x : y; });
}

}  // namespace plain
}  // namespace

// Any 512-bit intrinsic that is missing here does not compile without AVX-512: none can slip by.
#define _mm512_setzero_si512() plain::Same<int32_t, __m512i>(0)
#define _mm512_setzero_ps() plain::Same<float, __m512>(0.0f)
#define _mm512_set1_epi32(x) plain::Same<int32_t, __m512i>(x)
#define _mm512_set1_ps(x) plain::Same<float, __m512>(x)
#define _mm512_loadu_si512(p) plain::Load<__m512i>(p)
#define _mm512_loadu_ps(p) plain::Load<__m512>(p)
#define _mm512_storeu_si512(p, v) plain::Store(p, v)
#define _mm512_storeu_ps(p, v) plain::Store(p, v)
#define _mm512_cvtepi8_epi16(v) plain::cvtepi8_epi16(v)
#define _mm512_dpwssd_epi32(sum, a, b) plain::dpwssd_epi32<__m512i>(sum, a, b)
#define _mm256_dpwssd_epi32(sum, a, b) plain::dpwssd_epi32<__m256i>(sum, a, b)
#define _mm512_mul_epi32(a, b) plain::mul_epi32(a, b)
#define _mm512_add_epi64(a, b) plain::add_epi64(a, b)
#define _mm512_srlv_epi64(a, b) plain::srlv_epi64(a, b)
#define _mm512_srli_epi64(a, n) plain::srli_epi64(a, n)
#define _mm512_sub_epi32(a, b) plain::sub_epi32(a, b)
#define _mm512_min_epi32(a, b) plain::min_epi32(a, b)
#define _mm512_max_epi32(a, b) plain::max_epi32(a, b)
#define _mm512_castsi512_ps(v) plain::Cast<__m512>(v)
#define _mm512_castps_si512(v) plain::Cast<__m512i>(v)
#define _mm512_mask_moveldup_ps(otherwise, mask, v) plain::mask_moveldup_ps(otherwise, mask, v)
#define _mm512_cvtsepi32_epi16(v) plain::cvtsepi32_epi16(v)
#define _mm256_mask_storeu_epi16(p, mask, v) plain::MaskedStore<int16_t>(p, mask, v)
#define _mm512_mask_storeu_epi16(p, mask, v) plain::MaskedStore<int16_t>(p, mask, v)
#define _mm512_mask_storeu_ps(p, mask, v) plain::MaskedStore<float>(p, mask, v)
#define _mm512_maskz_loadu_ps(mask, p) plain::maskz_loadu_ps(mask, p)
#define _mm512_add_epi32(a, b) plain::add_epi32(a, b)
#define _mm512_slli_epi32(a, n) plain::slli_epi32(a, n)
#define _mm512_srav_epi32(a, b) plain::srav_epi32(a, b)
#define _mm512_mulhi_epu16(a, b) plain::mulhi_epu16(a, b)
#define _mm512_min_epi16(a, b) plain::min_epi16(a, b)
#define _mm512_max_epi16(a, b) plain::max_epi16(a, b)
#define _mm512_packs_epi32(a, b) plain::packs_epi32(a, b)
#define _mm512_unpacklo_epi16(a, b) plain::unpack_epi16(a, b, 0)
#define _mm512_unpackhi_epi16(a, b) plain::unpack_epi16(a, b, 4)
#define _mm512_permutexvar_epi64(order, v) plain::Permuted<int64_t, uint64_t>(v, order, v)
#define _mm512_permutex2var_epi64(a, order, b) plain::Permuted<int64_t, uint64_t>(a, order, b)
#define _mm512_permutex2var_ps(a, order, b) plain::Permuted<float, uint32_t>(a, order, b)
#define _mm512_mask_permutexvar_ps(otherwise, mask, order, v) plain::mask_permutexvar_ps(otherwise, mask, order, v)
#define _mm512_setr_epi64(...) plain::Listed<int64_t>(__VA_ARGS__)
#define _mm512_setr_epi32(...) plain::Listed<int32_t>(__VA_ARGS__)
#define _mm512_set1_epi16(x) plain::Same<int16_t, __m512i>(x)
#define _mm512_alignr_epi32(a, b, n) plain::alignr_epi32(a, b, n)
#define _mm512_zextsi256_si512(v) plain::zextsi256_si512(v)
#define _mm512_castps512_ps256(v) plain::Load<__m256>(&v)
#define _mm512_inserti64x4(v, half, which) plain::inserti64x4(v, half, which)
#define _mm512_castsi256_si512(v) plain::castsi256_si512(v)
#define _mm512_shuffle_i32x4(a, b, which) plain::shuffle_i32x4(a, b, which)
#define _mm512_fmadd_ps(a, b, c) plain::fmadd_ps(a, b, c)
#define _mm512_add_ps(a, b) plain::add_ps(a, b)
#define _mm512_mul_ps(a, b) plain::mul_ps(a, b)
#define _mm512_cvtepi32_ps(v) plain::cvtepi32_ps(v)
#define _mm512_set1_epi64(x) plain::Same<int64_t, __m512i>(x)
#define _mm512_cvtps_epi32(v) plain::cvtps_epi32(v)
#define _mm512_cvtepi16_epi32(v) plain::cvtepi16_epi32(v)
#define _mm256_maskz_loadu_epi16(mask, p) plain::maskz_loadu_epi16(mask, p)
#define _mm512_mullo_epi32(a, b) plain::mullo_epi32(a, b)
#define _mm512_sllv_epi32(a, b) plain::sllv_epi32(a, b)
#define _mm512_and_si512(a, b) plain::and_si512(a, b)
#define _mm512_cmpgt_epi32_mask(a, b) plain::cmpgt_epi32_mask(a, b)
#define _mm512_mask_add_epi32(otherwise, mask, a, b) plain::mask_add_epi32(otherwise, mask, a, b)
#define _mm512_min_ps(a, b) plain::min_ps(a, b)
#define _mm512_max_ps(a, b) plain::max_ps(a, b)

#endif  // LITESMITH_TESTS_AVX512_IN_PLAIN_CPP_H_
