// SPDX-License-Identifier: Apache-2.0
// The fixed-point arithmetic that defines LiteRT's int16x8 results, stated once.
//
// Every function is `static`: this header is compiled into translation units with different instruction sets, and a
// shared inline function would let the linker keep the AVX copy for everybody.
// Definitions from tflite/kernels/internal/{common.cc,quantization_util.cc} (double-rounding build) of LiteRT.
#ifndef LITESMITH_CORE_FIXED_POINT_H_
#define LITESMITH_CORE_FIXED_POINT_H_

#include <cmath>
#include <cstdint>

namespace litesmith {

struct FixedMultiplier {
  int32_t value;  // Q0.31 significand
  int shift;      // positive: left
};

// The significand and exponent LiteRT derives from a real scale; tiny scales are flushed to zero.
static inline FixedMultiplier QuantizeMultiplier(double real) {
  if (real == 0.0) return {0, 0};
  int shift = 0;
  const double significand = frexp(real, &shift);
  int64_t fixed = static_cast<int64_t>(round(significand * static_cast<double>(int64_t{1} << 31)));
  if (fixed == (int64_t{1} << 31)) {
    fixed /= 2;
    ++shift;
  }
  if (shift < -31) return {0, 0};
  return {static_cast<int32_t>(fixed), shift};
}

// The 16-bit significand used wherever a 64-bit accumulator is requantized.
static inline int32_t ReducedMultiplier(int32_t multiplier) {
  return multiplier < 0x7FFF0000 ? (multiplier + (1 << 15)) >> 16 : 0x7FFF;
}

// 64-bit accumulator times multiplier: one rounding, 16-bit significand.
static inline int32_t MultiplyAcc64(int64_t acc, FixedMultiplier m) {
  const int total_shift = 15 - m.shift;
  const uint64_t product = static_cast<uint64_t>(acc) * static_cast<uint64_t>(int64_t{ReducedMultiplier(m.value)});
  const int64_t rounded = static_cast<int64_t>(product + (uint64_t{1} << (total_shift - 1)));
  return static_cast<int32_t>(rounded >> total_shift);
}

static inline int32_t SaturatingRoundingDoublingHighMul(int32_t a, int32_t b) {
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  return static_cast<int32_t>((int64_t{a} * b + (int64_t{1} << 30)) >> 31);
}

// Division by a power of two, halves away from zero.
static inline int32_t RoundingDivideByPot(int32_t x, int exponent) {
  const int32_t mask = static_cast<int32_t>((int64_t{1} << exponent) - 1);
  const int32_t remainder = x & mask;
  const int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

static inline int32_t ShiftLeftWrapping(int32_t x, int shift) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) << shift);
}

// 32-bit value times multiplier: two roundings.
static inline int32_t MultiplyAcc32(int32_t x, FixedMultiplier m) {
  const int left = m.shift > 0 ? m.shift : 0;
  const int right = m.shift > 0 ? 0 : -m.shift;
  return RoundingDivideByPot(SaturatingRoundingDoublingHighMul(ShiftLeftWrapping(x, left), m.value), right);
}

// The same in the NEON form: the second rounding takes halves upwards.
static inline int32_t MultiplyAcc32HalfUp(int32_t x, FixedMultiplier m) {
  const int left = m.shift > 0 ? m.shift : 0;
  const int right = m.shift > 0 ? 0 : -m.shift;
  const int64_t product = SaturatingRoundingDoublingHighMul(ShiftLeftWrapping(x, left), m.value);
  return static_cast<int32_t>(right == 0 ? product : (product + (int64_t{1} << (right - 1))) >> right);
}

static inline int32_t ClampInt(int32_t x, int32_t lo, int32_t hi) { return x < lo ? lo : (x > hi ? hi : x); }

// The C++ conversion of a rounded double is undefined out of range; this states what each platform's wheel does.
static inline int32_t DoubleToInt32LikeStock(double rounded) {
#if defined(__aarch64__)
  if (rounded >= 2147483647.0) return INT32_MAX;
  if (rounded <= -2147483648.0) return INT32_MIN;
#else
  if (!(rounded < 2147483648.0 && rounded > -2147483649.0)) return INT32_MIN;
#endif
  return static_cast<int32_t>(rounded);
}

}  // namespace litesmith

#endif  // LITESMITH_CORE_FIXED_POINT_H_
