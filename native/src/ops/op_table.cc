// SPDX-License-Identifier: Apache-2.0
// Which operators exist, by builtin code.
#include "abi/builtin_params.h"
#include "ops/makers.h"

namespace litesmith {

const std::vector<OpEntry>& Int16Ops() {
  static const auto* ops = new std::vector<OpEntry>{
      {kAdd, "ADD", MakeAdd16, 2},
      {kAveragePool2d, "AVERAGE_POOL_2D", MakeAveragePool16, 1, true},
      {kBatchMatMul, "BATCH_MATMUL", MakeBatchMatMul16, 2, true},
      {kConcatenation, "CONCATENATION", MakeConcatenation16, 1, true},
      {kConv2d, "CONV_2D", MakeConv16, 2, true},
      {kDepthwiseConv2d, "DEPTHWISE_CONV_2D", MakeDepthwiseConv16, 2, true},
      {kDequantize, "DEQUANTIZE", MakeDequantize16, 1},
      {kExpandDims, "EXPAND_DIMS", MakeReshape16, 2},
      {kFullyConnected, "FULLY_CONNECTED", MakeFullyConnected16, 2, true},
      {kLeakyRelu, "LEAKY_RELU", MakeLeakyRelu16, 1, true},
      {kLogistic, "LOGISTIC", MakeLogistic16, 1},
      {kMaxPool2d, "MAX_POOL_2D", MakeMaxPool16, 1, true},
      {kMean, "MEAN", MakeMean16, 2, true},
      {kMul, "MUL", MakeMul16, 2, true},
      {kPad, "PAD", MakePad16, 2},
      {kPadV2, "PADV2", MakePad16, 3},
      {kPrelu, "PRELU", MakePrelu16, 2},
      {kQuantize, "QUANTIZE", MakeQuantize16, 1},
      {kRelu, "RELU", MakeRelu16, 1},
      {kRelu6, "RELU6", MakeRelu616, 1},
      {kReshape, "RESHAPE", MakeReshape16, 1},
      {kResizeBilinear, "RESIZE_BILINEAR", MakeResizeBilinear16, 2, true},
      {kResizeNearestNeighbor, "RESIZE_NEAREST_NEIGHBOR", MakeResizeNearest16, 2, true},
      {kSlice, "SLICE", MakeSlice16, 3},
      {kSoftmax, "SOFTMAX", MakeSoftmax16, 1, true},
      {kSplit, "SPLIT", MakeSplit16, 2},
      {kSqueeze, "SQUEEZE", MakeReshape16, 1, true},
      {kStridedSlice, "STRIDED_SLICE", MakeStridedSlice16, 4, true},
      {kSub, "SUB", MakeSub16, 2},
      {kTanh, "TANH", MakeTanh16, 1},
      {kTranspose, "TRANSPOSE", MakeTranspose16, 2},
      {kTransposeConv, "TRANSPOSE_CONV", MakeTransposeConv16, 3, true},
  };
  return *ops;
}

const std::vector<OpEntry>& SparseOps() {
  static const auto* ops = new std::vector<OpEntry>{
      {kAdd, "ADD", MakePlanarAdd, 2, true},
      {kAveragePool2d, "AVERAGE_POOL_2D", MakePlanarAveragePool, 1, true},
      {kConv2d, "CONV_2D", MakeSparseConv, 2, true},
      {kDepthwiseConv2d, "DEPTHWISE_CONV_2D", MakePlanarDepthwise, 2, true},
      {kFullyConnected, "FULLY_CONNECTED", MakeSparseFullyConnected, 2, true},
      {kHardSwish, "HARD_SWISH", MakePlanarHardSwish, 1},
      {kLogistic, "LOGISTIC", MakePlanarLogistic, 1},
      {kMaxPool2d, "MAX_POOL_2D", MakePlanarMaxPool, 1, true},
      {kMean, "MEAN", MakePlanarMean, 2, true},
      {kMul, "MUL", MakePlanarMul, 2, true},
      {kPad, "PAD", MakePlanarPad, 2},
      {kRelu, "RELU", MakePlanarRelu, 1},
      {kRelu6, "RELU6", MakePlanarRelu6, 1},
      {kReshape, "RESHAPE", MakePlanarReshape, 1},
      {kResizeBilinear, "RESIZE_BILINEAR", MakePlanarResizeBilinear, 2, true},
      {kResizeNearestNeighbor, "RESIZE_NEAREST_NEIGHBOR", MakePlanarResizeNearest, 2, true},
      {kSqueeze, "SQUEEZE", MakePlanarReshape, 1, true},
  };
  return *ops;
}

const std::vector<OpEntry>& HybridOps() {
  static const auto* ops = new std::vector<OpEntry>{
      {kConv2d, "CONV_2D", MakeConvHybrid, 2, true},
      {kFullyConnected, "FULLY_CONNECTED", MakeFullyConnectedHybrid, 2, true},
  };
  return *ops;
}

const std::vector<OpEntry>& CompanionOps() {
  static const auto* ops = new std::vector<OpEntry>{
      {kAdd, "ADD", MakeAddNhwc, 2, true},
      {kDepthwiseConv2d, "DEPTHWISE_CONV_2D", MakeDepthwiseNhwc, 2, true},
      {kMean, "MEAN", MakeMeanNhwc, 2, true},
      {kPad, "PAD", MakePadFloat, 2},
      {kStridedSlice, "STRIDED_SLICE", MakeStridedSliceFloat, 4, true},
  };
  return *ops;
}

}  // namespace litesmith
