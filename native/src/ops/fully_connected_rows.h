// SPDX-License-Identifier: Apache-2.0
// What all FULLY_CONNECTED share: the shape of the result, and how the work is cut into blocks of rows and slices of
// channels.
#ifndef LITESMITH_OPS_FULLY_CONNECTED_ROWS_H_
#define LITESMITH_OPS_FULLY_CONNECTED_ROWS_H_

#include <algorithm>

#include "core/node_view.h"
#include "core/thread_pool.h"

namespace litesmith {

class FullyConnectedRows {
 public:
  static constexpr int kBlock = 48;  // rows

  explicit FullyConnectedRows(const NodeView& node)
      : keep_num_dims_(node.params<FullyConnectedParams>().keep_num_dims),
        outputs_(node.input(1).dims->data[0]),
        depth_(node.input(1).dims->data[1]) {}

  int outputs() const { return outputs_; }
  int depth() const { return depth_; }
  int count() const { return count_; }
  int blocks() const { return (count_ + kBlock - 1) / kBlock; }

  // False when the input does not divide into rows.
  bool Infer(const Shape& in, Shape* out) {
    const int64_t values = NumElements(in);
    if (values % depth_ != 0 || (keep_num_dims_ && (in.empty() || in.back() != depth_))) return false;
    count_ = static_cast<int>(values / depth_);
    *out = keep_num_dims_ ? in : Shape{count_, outputs_};
    out->back() = outputs_;
    return true;
  }

  // work(first row, rows, first panel, panel behind the last)
  template <class Work>
  void Each(ThreadPool* pool, int panels, const Work& work) const {
    const int threads = pool->num_threads();
    const int slices = threads == 1 ? 1 : std::clamp(4 * threads / std::max(blocks(), 1), 1, panels);
    pool->Run(blocks() * slices, [&](int index, int) {
      const int slice = index % slices, first = index / slices * kBlock;
      work(first, std::min(kBlock, count_ - first), panels * slice / slices, panels * (slice + 1) / slices);
    });
  }

 private:
  bool keep_num_dims_;
  int outputs_, depth_, count_ = 0;
};

// Whether the weights are a matrix; if not, the reason.
inline bool HasMatrix(const NodeView& node, std::string* why) {
  const TfLiteTensor& weights = node.input(1);
  *why = "weights that are not a matrix";
  return weights.dims->size == 2 && weights.dims->data[0] > 0 && weights.dims->data[1] > 0 && node.num_outputs() == 1;
}

}  // namespace litesmith

#endif  // LITESMITH_OPS_FULLY_CONNECTED_ROWS_H_
