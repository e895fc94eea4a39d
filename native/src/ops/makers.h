// SPDX-License-Identifier: Apache-2.0
// The makers of all operators; the tables in op_table.cc list them.
#ifndef LITESMITH_OPS_MAKERS_H_
#define LITESMITH_OPS_MAKERS_H_

#include "core/op.h"

namespace litesmith {

OpMaker MakeConv16, MakeDepthwiseConv16, MakeFullyConnected16, MakeTransposeConv16, MakeBatchMatMul16;
OpMaker MakeAdd16, MakeSub16, MakeMul16;
OpMaker MakeMaxPool16, MakeAveragePool16, MakeMean16;
OpMaker MakeQuantize16, MakeDequantize16;
OpMaker MakeRelu16, MakeRelu616, MakeLeakyRelu16, MakePrelu16;
OpMaker MakeLogistic16, MakeTanh16, MakeSoftmax16;
OpMaker MakeReshape16, MakePad16, MakeConcatenation16, MakeTranspose16, MakeStridedSlice16, MakeSlice16, MakeSplit16;
OpMaker MakeResizeBilinear16, MakeResizeNearest16;

OpMaker MakeSparseConv, MakeSparseFullyConnected, MakePlanarDepthwise;
OpMaker MakePlanarAdd, MakePlanarMul, MakePlanarMean, MakePlanarPad, MakePlanarAveragePool, MakePlanarMaxPool;
OpMaker MakePlanarResizeBilinear, MakePlanarResizeNearest, MakeDensify, MakeWidened;
OpMaker MakeConvHybrid, MakeFullyConnectedHybrid, MakeDepthwiseNhwc, MakeAddNhwc, MakeMeanNhwc, MakePadFloat,
    MakeStridedSliceFloat;
OpMaker MakePlanarRelu, MakePlanarRelu6, MakePlanarHardSwish, MakePlanarLogistic, MakePlanarReshape;

}  // namespace litesmith

#endif  // LITESMITH_OPS_MAKERS_H_
