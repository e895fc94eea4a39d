// SPDX-License-Identifier: Apache-2.0
// DENSIFY of a sparse constant, or DEQUANTIZE of one, whose values somebody outside of the partition reads. Operators inside
// read the constant itself: for them nothing is unpacked.
#include <cstring>

#include "ops/hybrid.h"
#include "ops/makers.h"
#include "ops/quant.h"
#include "ops/sparse_weights.h"

namespace litesmith {
namespace {

template <class T>
class Unpacked : public Op {
 public:
  Unpacked(Shape shape, std::vector<T> values, const char* name)
      : shape_(std::move(shape)), values_(std::move(values)), name_(name) {}
  const char* kernel_name() const override { return name_; }
  std::vector<int> RuntimeInputs() const override { return {}; }

  bool InferShapes(const std::vector<Shape>&, std::vector<Shape>* out) override {
    (*out)[0] = shape_;
    return true;
  }
  void Run(const RunArgs& args) override { std::memcpy(args.outputs[0], values_.data(), values_.size() * sizeof(T)); }

 private:
  const Shape shape_;
  const std::vector<T> values_;
  const char* const name_;
};

template <class T>
std::unique_ptr<Op> Make(const NodeView& node, bool (*read)(const TfLiteTensor&, std::vector<T>*, std::string*),
                         const char* name, std::string* why) {
  std::vector<T> values;
  if (!read(node.weights(0), &values, why)) return nullptr;
  return std::make_unique<Unpacked<T>>(ShapeOf(node.input(0)), std::move(values), name);
}

}  // namespace

std::unique_ptr<Op> MakeDensify(const NodeView& node, const KernelTable&, std::string* why) {
  return node.output(0).type == kTfLiteFloat16 ? Make(node, ReadHalfConstant, "f16_densify", why)
                                                : Make(node, ReadFloatConstant, "f32_densify", why);
}

std::unique_ptr<Op> MakeWidened(const NodeView& node, const KernelTable&, std::string* why) {
  const TfLiteAffineQuantization* affine = Affine(node.input(0));
  std::vector<float> values;
  if (!ReadWidened(node.input(0), affine == nullptr ? 0 : affine->quantized_dimension, &values, why)) return nullptr;
  return std::make_unique<Unpacked<float>>(ShapeOf(node.input(0)), std::move(values), "f32_widen");
}

}  // namespace litesmith
