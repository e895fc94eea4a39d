// SPDX-License-Identifier: Apache-2.0
// Which operators exist, by builtin code.
#include "abi/builtin_params.h"
#include "ops/makers.h"

namespace litesmith {

const std::vector<OpEntry>& Int16Ops() {
  static const auto* ops = new std::vector<OpEntry>{
      {kAdd, "ADD", MakeAdd16},
      {kAveragePool2d, "AVERAGE_POOL_2D", MakeAveragePool16},
      {kBatchMatMul, "BATCH_MATMUL", MakeBatchMatMul16},
      {kConcatenation, "CONCATENATION", MakeConcatenation16},
      {kConv2d, "CONV_2D", MakeConv16},
      {kDepthwiseConv2d, "DEPTHWISE_CONV_2D", MakeDepthwiseConv16},
      {kDequantize, "DEQUANTIZE", MakeDequantize16},
      {kExpandDims, "EXPAND_DIMS", MakeReshape16},
      {kFullyConnected, "FULLY_CONNECTED", MakeFullyConnected16},
      {kLeakyRelu, "LEAKY_RELU", MakeLeakyRelu16},
      {kLogistic, "LOGISTIC", MakeLogistic16},
      {kMaxPool2d, "MAX_POOL_2D", MakeMaxPool16},
      {kMean, "MEAN", MakeMean16},
      {kMul, "MUL", MakeMul16},
      {kPad, "PAD", MakePad16},
      {kPadV2, "PADV2", MakePad16},
      {kPrelu, "PRELU", MakePrelu16},
      {kQuantize, "QUANTIZE", MakeQuantize16},
      {kRelu, "RELU", MakeRelu16},
      {kRelu6, "RELU6", MakeRelu616},
      {kReshape, "RESHAPE", MakeReshape16},
      {kResizeBilinear, "RESIZE_BILINEAR", MakeResizeBilinear16},
      {kResizeNearestNeighbor, "RESIZE_NEAREST_NEIGHBOR", MakeResizeNearest16},
      {kSlice, "SLICE", MakeSlice16},
      {kSoftmax, "SOFTMAX", MakeSoftmax16},
      {kSplit, "SPLIT", MakeSplit16},
      {kSqueeze, "SQUEEZE", MakeReshape16},
      {kStridedSlice, "STRIDED_SLICE", MakeStridedSlice16},
      {kSub, "SUB", MakeSub16},
      {kTanh, "TANH", MakeTanh16},
      {kTranspose, "TRANSPOSE", MakeTranspose16},
      {kTransposeConv, "TRANSPOSE_CONV", MakeTransposeConv16},
  };
  return *ops;
}

const std::vector<OpEntry>& SparseOps() {
  static const auto* ops = new std::vector<OpEntry>{
      {kAdd, "ADD", MakePlanarAdd},
      {kAveragePool2d, "AVERAGE_POOL_2D", MakePlanarAveragePool},
      {kConv2d, "CONV_2D", MakeSparseConv},
      {kDepthwiseConv2d, "DEPTHWISE_CONV_2D", MakePlanarDepthwise},
      {kFullyConnected, "FULLY_CONNECTED", MakeSparseFullyConnected},
      {kHardSwish, "HARD_SWISH", MakePlanarHardSwish},
      {kLogistic, "LOGISTIC", MakePlanarLogistic},
      {kMaxPool2d, "MAX_POOL_2D", MakePlanarMaxPool},
      {kMean, "MEAN", MakePlanarMean},
      {kMul, "MUL", MakePlanarMul},
      {kPad, "PAD", MakePlanarPad},
      {kRelu, "RELU", MakePlanarRelu},
      {kRelu6, "RELU6", MakePlanarRelu6},
      {kReshape, "RESHAPE", MakePlanarReshape},
      {kResizeBilinear, "RESIZE_BILINEAR", MakePlanarResizeBilinear},
      {kResizeNearestNeighbor, "RESIZE_NEAREST_NEIGHBOR", MakePlanarResizeNearest},
      {kSqueeze, "SQUEEZE", MakePlanarReshape},
  };
  return *ops;
}

const std::vector<OpEntry>& HybridOps() {
  static const auto* ops = new std::vector<OpEntry>{
      {kConv2d, "CONV_2D", MakeConvHybrid},
      {kFullyConnected, "FULLY_CONNECTED", MakeFullyConnectedHybrid},
  };
  return *ops;
}

const std::vector<OpEntry>& CompanionOps() {
  static const auto* ops = new std::vector<OpEntry>{
      {kAdd, "ADD", MakeAddNhwc},
      {kDepthwiseConv2d, "DEPTHWISE_CONV_2D", MakeDepthwiseNhwc},
      {kMean, "MEAN", MakeMeanNhwc},
      {kPad, "PAD", MakePadFloat},
      {kStridedSlice, "STRIDED_SLICE", MakeStridedSliceFloat},
  };
  return *ops;
}

}  // namespace litesmith
