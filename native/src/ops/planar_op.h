// SPDX-License-Identifier: Apache-2.0
// What the operators of sparse chains share: the planar layout, and the speeds their estimates are made of.
#ifndef LITESMITH_OPS_PLANAR_OP_H_
#define LITESMITH_OPS_PLANAR_OP_H_

#include <algorithm>

#include "ops/planar.h"

namespace litesmith {

// Nanoseconds of one core. Only ratios matter for the decision; the absolute values are of a 3.4 GHz AVX2 core.
namespace speed {
constexpr double kDenseMac = 0.024;         // XNNPACK's 1x1 and KxK convolutions
constexpr double kSparseMac = 0.050;        // unstructured, per stored weight and pixel
constexpr double kBlockMac = 0.028;         // 4x1 blocks
constexpr double kDepthwiseMacHere = 0.045;
constexpr double kDepthwiseMacStock = 0.060;
constexpr double kFirstConvMacHere = 0.040;
constexpr double kSparseVectorMac = 0.7;    // vectors: one gathered value per weight, for each vector again
constexpr double kBlockVectorMac = 0.17;    // the same for 4x1 blocks, which share it
constexpr double kDenseVectorMac = 0.08;    // one vector, per weight: bound by memory
constexpr double kDenseVectorsMac = 0.021;  // many, which share the weights: from four on they are bound by this
constexpr double kElementwise = 0.15;       // per value, the same on both sides
constexpr double kConversion = 0.7;         // per value crossing the border of a chain

// Microseconds of the product of some vectors with a matrix: here with its stored weights, and in the stock engine with all
// of them, which it reads once for all vectors.
inline double SparseVectorsUs(double vectors, double stored, bool blocks) {
  return vectors * stored * (blocks ? kBlockVectorMac : kSparseVectorMac) * 1e-3;
}
inline double DenseVectorsUs(double vectors, double weights) {
  return weights * std::max(kDenseVectorMac, vectors * kDenseVectorsMac) * 1e-3;
}
}  // namespace speed

class PlanarOp : public Op {
 public:
  Layout layout() const override { return Layout::kPlanar; }

  // Whether a few output channels of an image can be made alone, and from which channels of the input. Those that take all
  // make any pixels of them, the others any rows.
  enum class FewChannels { kNo, kFromAll, kFromTheSame };
  virtual FewChannels few_channels() const { return FewChannels::kNo; }
  // Channels [begin, end) of one image, a multiple of 4 but at the end. Pixels [first, last) from all channels of `in`;
  // `out` is where the first of them goes, and the next channel `out_plane` further. `first` is a multiple of 16.
  virtual void RunPixels(const float* in, int begin, int end, int64_t first, int64_t last, float* out,
                         int64_t out_plane) const {
    (void)in, (void)begin, (void)end, (void)first, (void)last, (void)out, (void)out_plane;
  }
  // Rows [first, last) from those that InputRows tells; `in` is the first of these in channel `begin`, and the next channel
  // `in_plane` further. `out` is the plane of channel `begin`.
  struct Rows {
    int first, last;
  };
  virtual Rows InputRows(Rows rows) const { return rows; }
  virtual void RunRows(const float* in, int64_t in_plane, int begin, int end, Rows rows, float* out) const {
    (void)in, (void)in_plane, (void)begin, (void)end, (void)rows, (void)out;
  }
};

// A float tensor whose shape is known.
inline bool IsFloat(const TfLiteTensor& tensor, std::string* why) {
  if (tensor.type == kTfLiteFloat32 && tensor.dims != nullptr) return true;
  *why = "not a float32 operator";
  return false;
}

// A mean over height and width of float images.
bool IsMeanOfImages(const NodeView& node, std::string* why);

}  // namespace litesmith

#endif  // LITESMITH_OPS_PLANAR_OP_H_
