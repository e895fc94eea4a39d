// SPDX-License-Identifier: Apache-2.0
// CONV_2D with float activations, multiplied by weights of any kind in integers.
//
// Under a 1x1 kernel a block of pixels is rounded by its own step. Other kernels mix pixels from afar, so that all of an
// image are rounded by one step, into a frame of zeros: there a row of the kernel finds its values side by side, and the
// weights have zeros for what a kernel of the processor reads beyond. Where it does not (groups, dilation) they are
// gathered. Samples of a batch never share a step.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/conv_tasks.h"
#include "ops/hybrid.h"
#include "ops/makers.h"
#include "ops/patches.h"

namespace litesmith {
namespace {

constexpr int kValuesPerTask = 16 * 1024;  // when a whole image is rounded

// The largest of some magnitudes; not a number if one of them is none.
class Largest {
 public:
  void Add(float magnitude) {
    if (!(magnitude <= value_) && !std::isnan(value_)) value_ = magnitude;
  }
  float value() const { return value_; }

 private:
  float value_ = 0.0f;
};

class ConvHybrid : public Op {
 public:
  ConvHybrid(const NodeView& node, const KernelTable& kernels)
      : kernels_(kernels),
        out_channels_(node.input(1).dims->data[0]),
        patches_(node.params<ConvParams>(), node.input(1), node.input(0).dims->data[3], FoldedPad<ConvParams>(node)) {}

  bool Check(const NodeView& node, std::string* why) {
    return weights_.Find(node, out_channels_, node.params<ConvParams>().activation, why);
  }

  const char* kernel_name() const override { return weights_.kernel_name(kernels_); }
  bool PadsItsInput() const override { return patches_.is_padded(); }
  const HybridGemm* Pointwise() const override {
    return patches_.is_pointwise() && gemms_[0].k_padded() == patches_.values() ? &gemms_[0] : nullptr;
  }

  void Pack() override {
    const int per_group = out_channels_ / patches_.groups();
    const int row = is_framed_ ? patches_.row_values() : patches_.values(), padded_row = is_framed_ ? FramedRow() : row;
    gemms_.resize(patches_.groups());
    for (int g = 0; g < patches_.groups(); ++g) {
      weights_.Pack(kernels_, g * per_group, per_group, {patches_.values() / row, row, padded_row}, &gemms_[g]);
    }
  }

  bool InferShapes(const std::vector<Shape>& in, std::vector<Shape>* out) override {
    if (!patches_.Infer(in[0], out_channels_, &(*out)[0])) return false;
    in_ = in[0];
    is_framed_ = !patches_.one_to_one() && patches_.can_be_framed() && weights_.TakesRows(kernels_, out_channels_);
    frame_ = is_framed_ ? patches_.FrameOfZeros() : Patches::Frame{0, 0, in_[1], in_[2]};
    if (gemms_.empty()) return true;
    block_ = is_framed_ ? kPixelsPerBlock : GatheredBlock(gemms_[0].k_padded(), gemms_[0].rows_per_tile());
    if (is_framed_) gemms_[0].SetRows(FramedRow(), patches_.RowStep(frame_) - FramedRow());
    return true;
  }

  size_t ScratchBytes(int num_threads) const override {
    return num_threads * BlockBytes() + SharedBytes(Tasks(num_threads));
  }

  void Run(const RunArgs& args) override {
    const auto* in = static_cast<const float*>(args.inputs[0]);
    auto* out = static_cast<float*>(args.outputs[0]);
    const ConvTasks tasks = Tasks(args.pool->num_threads());
    uint8_t* shared = args.scratch + args.pool->num_threads() * BlockBytes();
    std::vector<float> steps;
    if (!patches_.one_to_one()) {
      steps = RoundImages(in, reinterpret_cast<int16_t*>(shared), args.pool);
    } else if (tasks.slices() > 1) {  // once for all slices
      steps.resize(tasks.blocks());
      args.pool->Run(tasks.blocks(), [&](int block, int) {
        auto* rows = reinterpret_cast<int16_t*>(shared + block * BlockBytes());
        steps[block] = RoundBlock(in, tasks[block * tasks.slices()], rows);
      });
    }
    args.pool->Run(tasks.count(), [&](int index, int worker) {
      const ConvTask task = tasks[index];
      auto* rows = reinterpret_cast<int16_t*>(args.scratch + worker * BlockBytes());
      float step;
      if (is_framed_) {
        MultiplyFramed(task, reinterpret_cast<const int16_t*>(shared), steps[task.image], out);
        return;
      }
      if (!patches_.one_to_one()) {
        step = steps[task.image];
        patches_.Gather(reinterpret_cast<const int16_t*>(shared), task.first, task.pixels, task.group, rows,
                        gemms_[0].k_padded());
      } else if (tasks.slices() > 1) {
        step = steps[index / tasks.slices()];
        rows = reinterpret_cast<int16_t*>(shared + index / tasks.slices() * BlockBytes());
      } else {
        step = RoundBlock(in, task, rows);
      }
      Multiply(task, rows, step, out);
    });
  }

  void Estimate(double* here_us, double* stock_us) const override {
    const double pixels = patches_.pixels(), outputs = pixels * out_channels_;
    HybridWork work;
    work.macs = work.stock_macs = outputs * patches_.values();
    work.values_in = static_cast<double>(NumElements(in_));
    work.values_out = outputs;
    if (is_framed_) {
      work.macs *= static_cast<double>(FramedRow()) / patches_.row_values();
      work.pieces_framed = pixels * patches_.pieces() * ((out_channels_ + kPanel - 1) / kPanel);
    } else if (!patches_.one_to_one()) {
      work.values_gathered = pixels * patches_.groups() * patches_.values();
      work.pieces_gathered = pixels * patches_.groups() * patches_.pieces();
    }
    weights_.Estimate(kernels_, work, here_us, stock_us);
  }

 private:
  int FramedRow() const { return weights_.Padded(kernels_, patches_.row_values()); }
  size_t BlockBytes() const {
    return is_framed_ ? 0 : (static_cast<size_t>(block_) * gemms_[0].k_padded() * 2 + 127) / 64 * 64;
  }
  // What all workers read: rounded images, or the rounded blocks that several slices of channels share.
  size_t SharedBytes(const ConvTasks& tasks) const {
    if (!patches_.one_to_one()) {
      return sizeof(int16_t) * (static_cast<size_t>(in_[0]) * frame_.height * frame_.width * in_[3] + FramedRow());
    }
    return tasks.slices() > 1 ? tasks.blocks() * BlockBytes() : 0;
  }

  ConvTasks Tasks(int threads) const {
    return ConvTasks(patches_, in_[0], block_, gemms_[0].num_panels(), gemms_[0].n(), threads);
  }

  void Multiply(const ConvTask& task, const int16_t* first, float step, float* out) const {
    const int16_t* rows[kPixelsPerBlock];
    for (int i = 0; i < task.pixels; ++i) rows[i] = first + static_cast<size_t>(i) * gemms_[0].k_padded();
    MultiplyRows(task, rows, step, out);
  }

  void MultiplyFramed(const ConvTask& task, const int16_t* framed, float step, float* out) const {
    const int16_t* rows[kPixelsPerBlock];
    patches_.FindUnder(frame_, framed, task.first, task.pixels, rows);
    MultiplyRows(task, rows, step, out);
  }

  void MultiplyRows(const ConvTask& task, const int16_t* const* rows, float step, float* out) const {
    float steps[kPixelsPerBlock];
    std::fill_n(steps, task.pixels, step);
    gemms_[task.group].Run(rows, steps, task.pixels, task.panel_begin, task.panel_end,
                           out + static_cast<size_t>(task.first) * out_channels_ + task.group * gemms_[0].n(),
                           out_channels_);
  }

  // Rounds the pixels under a task by one step, and returns it.
  float RoundBlock(const float* in, const ConvTask& task, int16_t* rows) const {
    const int k = patches_.values(), k_padded = gemms_[0].k_padded();
    const float* pixels[kPixelsPerBlock];
    patches_.FindUnder(in + task.group * patches_.group_in(), task.first, task.pixels, pixels);
    if (patches_.is_pointwise() && k == k_padded) {
      return gemms_[0].Round(pixels[0], task.pixels * k, task.pixels * k, rows);
    }
    Largest most;
    for (int i = 0; i < task.pixels; ++i) most.Add(kernels_.f32_max_abs.run(pixels[i], k));
    const float step = gemms_[0].StepOf(most.value());
    for (int i = 0; i < task.pixels; ++i, rows += k_padded) gemms_[0].RoundBy(step, pixels[i], k, k_padded, rows);
    return step;
  }

  // Rounds all images into their frames, each by its own step, and returns the steps.
  std::vector<float> RoundImages(const float* in, int16_t* rounded, ThreadPool* pool) const {
    const int height = in_[1], row = in_[2] * in_[3], framed_row = frame_.width * in_[3], left = frame_.left * in_[3];
    const int rows = std::clamp(kValuesPerTask / std::max(row, 1), 1, std::max(height, 1)), parts = (height + rows - 1) / rows;
    const auto each_part = [&](auto&& work) {
      pool->Run(in_[0] * parts, [&](int index, int) {
        const int first = index % parts * rows;
        work(index, first, std::min(rows, height - first));
      });
    };
    const auto image = [&](int index) { return in + static_cast<size_t>(index / parts) * height * row; };
    std::vector<float> most(static_cast<size_t>(in_[0]) * parts), steps(in_[0]);
    each_part([&](int index, int first, int count) {
      most[index] = kernels_.f32_max_abs.run(image(index) + static_cast<size_t>(first) * row, count * row);
    });
    for (int b = 0; b < in_[0]; ++b) {
      Largest of_image;
      for (int p = 0; p < parts; ++p) of_image.Add(most[static_cast<size_t>(b) * parts + p]);
      steps[b] = gemms_[0].StepOf(of_image.value());
    }
    each_part([&](int index, int first, int count) {
      const size_t above = static_cast<size_t>(index / parts) * frame_.height;
      int16_t* to = rounded + (above + (first == 0 ? 0 : frame_.top + first)) * framed_row;
      if (first == 0) to = std::fill_n(to, static_cast<size_t>(frame_.top) * framed_row, int16_t{0});
      for (int y = first; y < first + count; ++y, to += framed_row) {
        std::fill_n(to, left, int16_t{0});
        gemms_[0].RoundBy(steps[index / parts], image(index) + static_cast<size_t>(y) * row, row, framed_row - left, to + left);
      }
      const size_t below = frame_.height - frame_.top - height;
      if (first + count == height) std::fill_n(to, below * framed_row, int16_t{0});
    });
    return steps;
  }

  const KernelTable& kernels_;
  int out_channels_, block_ = kPixelsPerBlock;
  Shape in_;
  bool is_framed_ = false;
  Patches::Frame frame_{};
  Patches patches_;
  HybridWeights weights_;
  std::vector<HybridGemm> gemms_;
};

}  // namespace

std::unique_ptr<Op> MakeConvHybrid(const NodeView& node, const KernelTable& kernels, std::string* why) {
  if (!IsConvolution(node, why)) return nullptr;
  auto op = std::make_unique<ConvHybrid>(node, kernels);
  std::vector<Shape> out(1);
  const Shape in = ShapeOf(op->PadsItsInput() ? node.tensor(node.pad()->source) : node.input(0));
  return op->Check(node, why) && op->InferShapes({in}, &out) ? std::move(op) : nullptr;
}

}  // namespace litesmith
