// SPDX-License-Identifier: Apache-2.0
// The part of the TensorFlow Lite C ABI this library touches: the structures a delegate is handed, on LP64.
//
// The LiteRT wheels export no TfLite symbols, so nothing here is linked: structures are read, function pointers inside
// them are called. Facts from tflite/core/c/common.h and tflite/converter/core/c/builtin_op_data.h of LiteRT; the
// layouts are the same from ai-edge-litert 1.1 to 2.3. Members that are never used are kept only to hold their place.
#ifndef LITESMITH_ABI_TFLITE_ABI_H_
#define LITESMITH_ABI_TFLITE_ABI_H_

#include <cstddef>
#include <cstdint>

extern "C" {

struct TfLiteContext;
struct TfLiteDelegate;

enum TfLiteStatus : int { kTfLiteOk = 0, kTfLiteError = 1, kTfLiteDelegateError = 2 };

enum TfLiteType : int {
  kTfLiteNoType = 0,
  kTfLiteFloat32 = 1,
  kTfLiteInt32 = 2,
  kTfLiteUInt8 = 3,
  kTfLiteInt64 = 4,
  kTfLiteInt16 = 7,
  kTfLiteInt8 = 9,
  kTfLiteFloat16 = 10,
  kTfLiteLargestKnownType = 64,  // bound for the self-check, not a type
};

enum TfLiteAllocationType : int {
  kTfLiteMemNone = 0,
  kTfLiteMmapRo = 1,
  kTfLiteArenaRw = 2,
  kTfLiteArenaRwPersistent = 3,
  kTfLiteDynamic = 4,
  kTfLitePersistentRo = 5,
};

struct TfLiteIntArray {
  int size;
  int data[1];  // flexible: `size` entries follow
};

struct TfLiteFloatArray {
  int size;
  float data[1];
};

struct TfLiteQuantizationParams {
  float scale;
  int32_t zero_point;
};

struct TfLiteAffineQuantization {
  TfLiteFloatArray* scale;
  TfLiteIntArray* zero_point;
  int32_t quantized_dimension;
};

constexpr int kTfLiteAffineQuantizationType = 1;

struct TfLiteQuantization {
  int type;
  void* params;
};

enum TfLiteDimensionType : int { kTfLiteDimDense = 0, kTfLiteDimSparseCSR = 1 };

struct TfLiteDimensionMetadata {
  TfLiteDimensionType format;
  int dense_size;
  TfLiteIntArray* array_segments;
  TfLiteIntArray* array_indices;
};

struct TfLiteSparsity {
  TfLiteIntArray* traversal_order;
  TfLiteIntArray* block_map;
  TfLiteDimensionMetadata* dim_metadata;
  int dim_metadata_size;
};

struct TfLiteTensor {
  TfLiteType type;
  void* data;
  TfLiteIntArray* dims;
  TfLiteQuantizationParams params;
  TfLiteAllocationType allocation_type;
  size_t bytes;
  const void* allocation;
  const char* name;
  TfLiteDelegate* delegate;
  int buffer_handle;
  bool data_is_stale;
  bool is_variable;
  TfLiteQuantization quantization;
  TfLiteSparsity* sparsity;
  const TfLiteIntArray* dims_signature;
};

struct TfLiteNode {
  TfLiteIntArray* inputs;
  TfLiteIntArray* outputs;
  TfLiteIntArray* intermediates;
  TfLiteIntArray* temporaries;
  void* user_data;
  void* builtin_data;
  const void* custom_initial_data;
  int custom_initial_data_size;
  TfLiteDelegate* delegate;
  bool might_have_side_effect;
};

struct TfLiteDelegateParams {
  TfLiteDelegate* delegate;
  TfLiteIntArray* nodes_to_replace;
  TfLiteIntArray* input_tensors;
  TfLiteIntArray* output_tensors;
};

struct TfLiteRegistration {
  void* (*init)(TfLiteContext*, const char* buffer, size_t length);
  void (*free)(TfLiteContext*, void* buffer);
  TfLiteStatus (*prepare)(TfLiteContext*, TfLiteNode*);
  TfLiteStatus (*invoke)(TfLiteContext*, TfLiteNode*);
  const char* (*profiling_string)(const TfLiteContext*, const TfLiteNode*);
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void* registration_external;
  void* async_kernel;
  uint64_t inplace_operator;
};

struct TfLiteContext {
  size_t tensors_size;
  TfLiteStatus (*GetExecutionPlan)(TfLiteContext*, TfLiteIntArray** execution_plan);
  TfLiteTensor* tensors;
  void* impl_;
  TfLiteStatus (*ResizeTensor)(TfLiteContext*, TfLiteTensor*, TfLiteIntArray* new_size);  // takes new_size
  void (*ReportError)(TfLiteContext*, const char* msg, ...);
  TfLiteStatus (*AddTensors)(TfLiteContext*, int tensors_to_add, int* first_new_tensor_index);
  TfLiteStatus (*GetNodeAndRegistration)(TfLiteContext*, int node_index, TfLiteNode**, TfLiteRegistration**);
  TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(TfLiteContext*, TfLiteRegistration,
                                                        const TfLiteIntArray* nodes_to_replace, TfLiteDelegate*);
  int recommended_num_threads;
  void* GetExternalContext;
  void* SetExternalContext;
  bool allow_fp32_relax_to_fp16;
  void* profiler;
  void* unused_before_metadata[8];  // function pointers
  TfLiteStatus (*GetModelMetadata)(const TfLiteContext*, const char* name, const char** ptr, size_t* bytes);
  void* unused_tail[2];  // up to ReleaseSubgraphContext
};

struct TfLiteDelegate {
  void* data_;
  TfLiteStatus (*Prepare)(TfLiteContext*, TfLiteDelegate*);
  void* CopyFromBufferHandle;
  void* CopyToBufferHandle;
  void* FreeBufferHandle;
  int64_t flags;
  void* opaque_delegate_builder;
};

}  // extern "C"

constexpr int64_t kTfLiteDelegateFlagsAllowDynamicTensors = 1;
constexpr int32_t kTfLiteBuiltinDelegate = 51;
constexpr int kTfLiteOptionalTensor = -1;

static_assert(sizeof(void*) == 8, "only 64-bit platforms are supported");
static_assert(sizeof(TfLiteTensor) == 112, "TfLiteTensor layout");
static_assert(sizeof(TfLiteNode) == 80, "TfLiteNode layout");
static_assert(sizeof(TfLiteRegistration) == 88, "TfLiteRegistration layout");
static_assert(sizeof(TfLiteContext) == 200, "TfLiteContext layout");
static_assert(sizeof(TfLiteDelegate) == 56, "TfLiteDelegate layout");

#endif  // LITESMITH_ABI_TFLITE_ABI_H_
