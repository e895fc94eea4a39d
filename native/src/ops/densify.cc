// SPDX-License-Identifier: Apache-2.0
// DENSIFY of a sparse constant, or DEQUANTIZE behind it, whose dense values somebody outside of the partition reads.
// Operators of a sparse chain read the constant itself: for them nothing is unpacked.
#include <cstring>

#include "ops/makers.h"
#include "ops/sparse_weights.h"

namespace litesmith {
namespace {

template <class T>
class Densify : public Op {
 public:
  Densify(Shape shape, std::vector<T> values) : shape_(std::move(shape)), values_(std::move(values)) {}
  const char* kernel_name() const override { return sizeof(T) == 2 ? "f16_densify" : "f32_densify"; }
  std::vector<int> RuntimeInputs() const override { return {}; }

  bool InferShapes(const std::vector<Shape>&, std::vector<Shape>* out) override {
    (*out)[0] = shape_;
    return true;
  }
  void Run(const RunArgs& args) override { std::memcpy(args.outputs[0], values_.data(), values_.size() * sizeof(T)); }

 private:
  const Shape shape_;
  const std::vector<T> values_;
};

template <class T>
std::unique_ptr<Op> Make(const NodeView& node, bool (*read)(const TfLiteTensor&, std::vector<T>*, std::string*),
                         std::string* why) {
  std::vector<T> values;
  if (!read(node.weights(0), &values, why)) return nullptr;
  return std::make_unique<Densify<T>>(ShapeOf(node.input(0)), std::move(values));
}

}  // namespace

std::unique_ptr<Op> MakeDensify(const NodeView& node, const KernelTable&, std::string* why) {
  return node.output(0).type == kTfLiteFloat16 ? Make(node, ReadHalfConstant, why) : Make(node, ReadFloatConstant, why);
}

}  // namespace litesmith
