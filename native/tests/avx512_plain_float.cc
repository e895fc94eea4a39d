// SPDX-License-Identifier: Apache-2.0
// The AVX-512 float kernels, compiled for a machine without AVX-512.
#include "avx512_in_plain_cpp.h"

#define FillAvx512Float FillAvx512FloatPlain
#include "kernels/avx512_float.cc"
