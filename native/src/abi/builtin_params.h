// SPDX-License-Identifier: Apache-2.0
// Builtin operator codes and the parameter structures of the operators this library implements.
//
// Facts from tflite/converter/core/c/builtin_op_data.h and the schema's BuiltinOperator enumeration of LiteRT.
#ifndef LITESMITH_ABI_BUILTIN_PARAMS_H_
#define LITESMITH_ABI_BUILTIN_PARAMS_H_

#include <cstdint>

#include "abi/tflite_abi.h"

namespace litesmith {

enum BuiltinCode : int32_t {
  kAdd = 0,
  kAveragePool2d = 1,
  kConcatenation = 2,
  kConv2d = 3,
  kDepthwiseConv2d = 4,
  kDequantize = 6,
  kFullyConnected = 9,
  kLogistic = 14,
  kMaxPool2d = 17,
  kMul = 18,
  kRelu = 19,
  kRelu6 = 21,
  kReshape = 22,
  kResizeBilinear = 23,
  kSoftmax = 25,
  kTanh = 28,
  kPad = 34,
  kTranspose = 39,
  kMean = 40,
  kSub = 41,
  kSqueeze = 43,
  kStridedSlice = 45,
  kSplit = 49,
  kPrelu = 54,
  kPadV2 = 60,
  kSlice = 65,
  kTransposeConv = 67,
  kExpandDims = 70,
  kResizeNearestNeighbor = 97,
  kLeakyRelu = 98,
  kSplitV = 102,
  kQuantize = 114,
  kHardSwish = 117,
  kDensify = 124,
  kBatchMatMul = 126,
  kLargestKnownCode = 400,  // bound for the self-check, not an operator
};

enum class Padding : int { kUnknown = 0, kSame = 1, kValid = 2 };
enum class Activation : int { kNone = 0, kRelu = 1, kReluN1To1 = 2, kRelu6 = 3, kTanh = 4, kSignBit = 5, kSigmoid = 6 };

struct ConvParams {
  Padding padding;
  int stride_width, stride_height;
  Activation activation;
  int dilation_width, dilation_height;
  TfLiteType quantized_bias_type;
};
struct DepthwiseConvParams {
  Padding padding;
  int stride_width, stride_height;
  int depth_multiplier;
  Activation activation;
  int dilation_width, dilation_height;
};
struct TransposeConvParams {
  Padding padding;
  int stride_width, stride_height;
  Activation activation;
  TfLiteType quantized_bias_type;
};
struct PoolParams {
  Padding padding;
  int stride_width, stride_height;
  int filter_width, filter_height;
  Activation activation;
};
struct FullyConnectedParams {
  Activation activation;
  int weights_format;
  bool keep_num_dims;
  bool asymmetric_quantize_inputs;
  TfLiteType quantized_bias_type;
};
struct AddParams {  // ADD and SUB
  Activation activation;
  bool pot_scale_int16;
};
struct MulParams {
  Activation activation;
};
struct ConcatenationParams {
  int axis;
  Activation activation;
};
struct SoftmaxParams {
  float beta;
};
struct ReducerParams {
  bool keep_dims;
};
struct ReshapeParams {
  int32_t shape[8];
  int num_dimensions;
};
struct SqueezeParams {
  int32_t squeeze_dims[8];
  int num_squeeze_dims;
};
struct ResizeParams {  // RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR
  bool align_corners;
  bool half_pixel_centers;
};
struct StridedSliceParams {
  int begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask;
  bool offset;
};
struct SplitParams {
  int num_splits;
};
struct LeakyReluParams {
  float alpha;
};
struct BatchMatMulParams {
  bool adj_x, adj_y, asymmetric_quantize_inputs;
};

}  // namespace litesmith

#endif  // LITESMITH_ABI_BUILTIN_PARAMS_H_
