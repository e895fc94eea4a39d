// SPDX-License-Identifier: Apache-2.0
// The AVX-512 int16 operators, compiled for a machine without AVX-512.
#include "avx512_in_plain_cpp.h"

#define FillAvx512Int16 FillAvx512Int16Plain
#include "kernels/avx512_int16.cc"
