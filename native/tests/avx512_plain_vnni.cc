// SPDX-License-Identifier: Apache-2.0
// The AVX-512 VNNI kernels, compiled for a machine without AVX-512.
#include "avx512_in_plain_cpp.h"

#define FillAvx512Vnni FillAvx512VnniPlain
#include "kernels/avx512vnni.cc"
