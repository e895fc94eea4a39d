// SPDX-License-Identifier: Apache-2.0
// One group of claimed nodes: builds their operators, plans memory for what lives between them, and runs them.
#ifndef LITESMITH_CORE_PARTITION_H_
#define LITESMITH_CORE_PARTITION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/op.h"

namespace litesmith {

class Delegate;

class Partition {
 public:
  Partition(Delegate* delegate, TfLiteContext* context, const TfLiteDelegateParams& params);
  const std::string& error() const { return error_; }

  TfLiteStatus Prepare(TfLiteContext* context);
  TfLiteStatus Invoke(TfLiteContext* context);

 private:
  // A tensor inside the partition. Several steps share it by index.
  struct Slot {
    int tensor_id;     // in the graph, or -1 for one of our own (layout conversions, padded copies)
    Shape shape;
    size_t element_bytes = 0;
    Layout layout = Layout::kNhwc;
    bool external = false;   // data belongs to the interpreter: input, output or constant
    size_t offset = 0;       // in the arena
    void* data = nullptr;
  };
  // A node that an operator runs: -1 for a conversion of our own.
  struct Part {
    int node;
    const char* name;
    const char* kernel;
  };
  struct Step {
    std::unique_ptr<Op> op;
    std::vector<Part> parts;  // one, or those of a block in their order; one that is not there has no name
    std::vector<int> inputs, outputs;  // slots; -1: absent
    size_t scratch_offset = 0;
    bool writes_nothing = false;  // all outputs are empty
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<const Shape*> in_shapes, out_shapes;
  };

  int SlotOf(TfLiteContext* context, int tensor_id);
  int AddOwnSlot(int like, Layout layout);
  void AddConversion(int from, int to);
  int InputSlot(TfLiteContext* context, const Op& op, int tensor_id);
  // An operator and the tensors it reads and writes.
  struct Item {
    std::unique_ptr<Op> op;
    std::vector<Part> parts;
    std::vector<int> inputs, outputs;
  };
  static Item MakeItem(const NodeView& node, std::unique_ptr<Op> op);
  void JoinBlocks(const TfLiteContext* context, const Origins& origins, std::vector<Item>* items) const;
  void JoinSparse(const TfLiteContext* context, const Origins& origins, std::vector<Item>* items) const;
  bool IsReadOnce(const Origins& origins, int tensor) const;  // by one node here, which may be a PAD that is not run
  void CheckSources(const TfLiteContext* context, const std::vector<Item>& items);
  bool Leaves(int tensor) const;
  void RunTimed(Step& step, const RunArgs& args);
  void AddStep(TfLiteContext* context, Item item);
  bool InferShapes(TfLiteContext* context);
  bool PlanMemory();
  TfLiteStatus Bind(TfLiteContext* context);

  Delegate* delegate_;
  std::string error_;    // for good
  std::string problem_;  // of the last shapes
  ThreadPool* pool_ = nullptr;
  std::vector<int> input_ids_, output_ids_;  // tensors of the graph
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  std::unordered_map<int, int> slot_of_tensor_;
  std::unordered_map<int, int> twin_;         // slot -> the same tensor in the other layout
  std::unordered_map<int, int> padded_copy_;  // external slot -> copy with readable slack behind it
  std::unique_ptr<uint8_t, void (*)(void*)> arena_;
};

}  // namespace litesmith

#endif  // LITESMITH_CORE_PARTITION_H_
