// SPDX-License-Identifier: Apache-2.0
// See partition.h.
#include "core/partition.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "core/arena.h"
#include "core/delegate.h"
#include "ops/hybrid_block.h"
#include "ops/makers.h"
#include "ops/sparse_block.h"
#include "ops/planar.h"

namespace litesmith {
namespace {

// Smaller ones stay in the second-level cache between two operators, and products of few rows are slower.
constexpr size_t kLargeImage = 512 * 1024;
constexpr int kNoNode = -2;
constexpr double kMostValues = INT32_MAX;  // of one tensor: positions are counted in int
constexpr size_t kGuardBytes = 64;  // vector loads may begin before a tensor and end behind it

int64_t Now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

Partition::Partition(Delegate* delegate, TfLiteContext* context, const TfLiteDelegateParams& params)
    : delegate_(delegate), pool_(delegate->PoolFor(context)), arena_(nullptr, std::free) {
  const auto ids = [](const TfLiteIntArray& array) {
    std::vector<int> out;
    for (int i = 0; i < array.size; ++i) {
      if (array.data[i] != kTfLiteOptionalTensor) out.push_back(array.data[i]);
    }
    return out;
  };
  input_ids_ = ids(*params.input_tensors);
  output_ids_ = ids(*params.output_tensors);
  const std::vector<int> nodes = ids(*params.nodes_to_replace);
  std::vector<Item> items;
  for (int index : nodes) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) {
      error_ = "node " + std::to_string(index) + " cannot be read";
      return;
    }
    const NodeView view(context, index, node, registration, &delegate->origins());
    const bool densify = delegate->origins().densified.count(view.output_id(0)) > 0, unread = delegate->is_unread(index);
    if ((densify || unread) && !Leaves(view.output_id(0))) continue;  // its consumers do its work
    std::string why;
    OpMaker* const own = densify                  ? MakeDensify
                         : !unread                ? nullptr
                         : view.code() == kPad    ? MakePadFloat
                                                  : MakeWidened;
    std::unique_ptr<Op> op = own ? own(view, delegate->kernels(), &why) : delegate->MakeTaken(view, &why);
    if (!op) {
      error_ = "node " + std::to_string(index) + " " + OperatorName(view.code()) + ": " + why;
      return;
    }
    op->Pack();
    items.push_back(MakeItem(view, std::move(op)));
  }
  CheckSources(context, items);
  JoinBlocks(context, delegate->origins(), &items);
  JoinSparse(context, delegate->origins(), &items);
  for (Item& item : items) AddStep(context, std::move(item));
}

// The runtime says which tensors of others the nodes read; a padded one is read from before its PAD, and must be there.
void Partition::CheckSources(const TfLiteContext* context, const std::vector<Item>& items) {
  std::vector<int> known = input_ids_;
  for (const Item& item : items) {
    for (int id : item.inputs) {
      if (id == kTfLiteOptionalTensor || IsConstant(context->tensors[id])) continue;
      if (std::find(known.begin(), known.end(), id) != known.end()) continue;
      error_ = "litesmith delegate: node " + std::to_string(item.parts[0].node) + " reads tensor " + std::to_string(id) +
               ", which is computed elsewhere; switch the option hybrid off";
      return;
    }
    known.insert(known.end(), item.outputs.begin(), item.outputs.end());
  }
}

bool Partition::Leaves(int tensor) const {
  return std::find(output_ids_.begin(), output_ids_.end(), tensor) != output_ids_.end();
}

Partition::Item Partition::MakeItem(const NodeView& node, std::unique_ptr<Op> op) {
  Item item{nullptr, {{node.index(), OperatorName(node.code()), op->kernel_name()}},
            std::vector<int>(node.num_inputs(), kTfLiteOptionalTensor), {}};
  for (int i : op->RuntimeInputs()) {
    if (node.has_input(i)) item.inputs[i] = i == 0 && op->PadsItsInput() ? node.pad()->source : node.input_id(i);
  }
  for (int i = 0; i < node.num_outputs(); ++i) item.outputs.push_back(node.output_id(i));
  item.op = std::move(op);
  return item;
}

// A depthwise convolution between two pointwise ones, or beside one, runs with them row by row.
void Partition::JoinBlocks(const TfLiteContext* context, const Origins& origins, std::vector<Item>* items) const {
  const auto is_pointwise = [](const Item& item) { return item.op && item.op->Pointwise() != nullptr; };
  for (Item& item : *items) {
    auto* deep = dynamic_cast<DepthwiseNhwc*>(item.op.get());
    if (deep == nullptr) continue;
    const int input = item.inputs[0], output = item.outputs[0];
    if (NumElements(ShapeOf(context->tensors[input])) * sizeof(float) < kLargeImage) continue;
    Item *before = nullptr, *after = nullptr;
    // A PAD that the depthwise convolution does itself, but that leaves as well, reads the same image.
    int readers = 0;
    for (const Item& other : *items) readers += std::count(other.inputs.begin(), other.inputs.end(), input) > 0;
    for (Item& other : *items) {
      if (is_pointwise(other) && other.outputs[0] == input && IsReadOnce(origins, input) && readers == 1) before = &other;
      if (is_pointwise(other) && other.inputs[0] == output && IsReadOnce(origins, output)) after = &other;
    }
    if (before == nullptr && after == nullptr) continue;
    Item& place = after != nullptr ? *after : item;  // the last of them: all its inputs are there by then
    item.op.release();
    std::unique_ptr<DepthwiseNhwc> depthwise(deep);
    std::unique_ptr<Op> first = before == nullptr ? nullptr : std::move(before->op);
    std::unique_ptr<Op> last = after == nullptr ? nullptr : std::move(after->op);
    const Part none{kNoNode, nullptr, nullptr};
    const std::vector<Part> parts{before == nullptr ? none : before->parts[0], item.parts[0],
                                  after == nullptr ? none : after->parts[0]};
    place.inputs = {before != nullptr ? before->inputs[0] : input};
    place.parts = parts;
    place.op = MakeHybridBlock(std::move(first), std::move(depthwise), std::move(last));
  }
  items->erase(std::remove_if(items->begin(), items->end(), [](const Item& item) { return !item.op; }), items->end());
}

// A product with sparse rows and the depthwise convolution behind it run a few channels at a time.
void Partition::JoinSparse(const TfLiteContext* context, const Origins& origins, std::vector<Item>* items) const {
  const auto can = [](const Item& item, PlanarOp::FewChannels what) {
    const auto* op = dynamic_cast<const PlanarOp*>(item.op.get());
    return op != nullptr && op->few_channels() == what;
  };
  const auto taken_over = [](Item* item) {
    return std::unique_ptr<PlanarOp>(static_cast<PlanarOp*>(item->op.release()));
  };
  for (Item& item : *items) {
    if (!can(item, PlanarOp::FewChannels::kFromTheSame)) continue;
    const int between = item.inputs[0];
    if (!IsReadOnce(origins, between) || NumElements(ShapeOf(context->tensors[between])) * sizeof(float) < kLargeImage) continue;
    for (Item& other : *items) {
      if (!can(other, PlanarOp::FewChannels::kFromAll) || other.outputs[0] != between) continue;
      item.inputs = other.inputs;
      item.parts.insert(item.parts.begin(), other.parts[0]);
      auto product = taken_over(&other);
      item.op = MakeSparseBlock(std::move(product), taken_over(&item));
      break;
    }
  }
  items->erase(std::remove_if(items->begin(), items->end(), [](const Item& item) { return !item.op; }), items->end());
}

bool Partition::IsReadOnce(const Origins& origins, int tensor) const {
  const auto found = origins.readers.find(tensor);
  return found != origins.readers.end() && found->second == 1 && !Leaves(tensor);
}

int Partition::SlotOf(TfLiteContext* context, int tensor_id) {
  const auto found = slot_of_tensor_.find(tensor_id);
  if (found != slot_of_tensor_.end()) return found->second;
  const TfLiteTensor& tensor = context->tensors[tensor_id];
  Slot slot;
  slot.tensor_id = tensor_id;
  slot.shape = ShapeOf(tensor);
  slot.element_bytes = TypeBytes(tensor.type);
  const auto listed = [&](const std::vector<int>& ids) {
    return std::find(ids.begin(), ids.end(), tensor_id) != ids.end();
  };
  slot.external = IsConstant(tensor) || listed(input_ids_) || listed(output_ids_);
  slots_.push_back(slot);
  return slot_of_tensor_[tensor_id] = static_cast<int>(slots_.size()) - 1;
}

int Partition::AddOwnSlot(int like, Layout layout) {
  Slot slot;
  slot.tensor_id = -1;
  slot.shape = slots_[like].shape;
  slot.element_bytes = slots_[like].element_bytes;
  slot.layout = layout;
  slots_.push_back(slot);
  return static_cast<int>(slots_.size()) - 1;
}

void Partition::AddConversion(int from, int to) {
  Step step;
  step.op = MakeLayoutConversion(slots_[from].layout, slots_[to].layout, slots_[from].element_bytes);
  step.parts = {{-1, "LAYOUT", step.op->kernel_name()}};
  step.inputs = {from};
  step.outputs = {to};
  steps_.push_back(std::move(step));
}

// The slot an operator reads `tensor_id` from, in the layout it wants and with slack behind it if it needs that.
int Partition::InputSlot(TfLiteContext* context, const Op& op, int tensor_id) {
  const int slot = SlotOf(context, tensor_id);
  if (slots_[slot].layout != op.input_layout()) {
    auto [found, added] = twin_.try_emplace(slot, -1);
    if (added) {
      const int twin = AddOwnSlot(slot, op.input_layout());
      AddConversion(slot, twin);
      return twin_[slot] = twin;
    }
    return found->second;
  }
  if (op.ReadsPastInput() && slots_[slot].external) {
    auto [found, added] = padded_copy_.try_emplace(slot, -1);
    if (added) {
      const int copy = AddOwnSlot(slot, slots_[slot].layout);
      AddConversion(slot, copy);
      return padded_copy_[slot] = copy;
    }
    return found->second;
  }
  return slot;
}

void Partition::AddStep(TfLiteContext* context, Item item) {
  Step step;
  step.parts = std::move(item.parts);
  const Op* op = item.op.get();
  for (int id : item.inputs) step.inputs.push_back(id == kTfLiteOptionalTensor ? -1 : InputSlot(context, *op, id));
  std::vector<std::pair<int, int>> to_convert;
  for (int id : item.outputs) {
    const int slot = SlotOf(context, id);
    if (op->layout() == Layout::kPlanar && slots_[slot].external) {
      const int own = AddOwnSlot(slot, Layout::kPlanar);
      twin_[slot] = own;
      to_convert.emplace_back(own, slot);
      step.outputs.push_back(own);
    } else {
      slots_[slot].layout = op->layout();
      step.outputs.push_back(slot);
    }
  }
  step.op = std::move(item.op);
  steps_.push_back(std::move(step));
  for (const auto& [from, to] : to_convert) AddConversion(from, to);
}

bool Partition::InferShapes(TfLiteContext* context) {
  for (int id : input_ids_) {
    const auto found = slot_of_tensor_.find(id);
    if (found != slot_of_tensor_.end()) slots_[found->second].shape = ShapeOf(context->tensors[id]);
  }
  for (Step& step : steps_) {
    std::vector<Shape> in, out;
    for (int slot : step.inputs) in.push_back(slot < 0 ? Shape() : slots_[slot].shape);
    out.resize(step.outputs.size());
    if (!step.op->InferShapes(in, &out)) {
      const Part& part = step.parts.size() == 1 ? step.parts[0] : step.parts[1];
      problem_ = "litesmith delegate: node " + std::to_string(part.node) + " " + part.name +
                 " cannot take the shapes it is given";
      return false;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      double values = 1;
      for (int size : out[i]) values *= size;
      if (values > kMostValues) {
        problem_ = "litesmith delegate: node " + std::to_string(step.parts[0].node) + " would write more values than fit";
        return false;
      }
      slots_[step.outputs[i]].shape = out[i];
    }
    step.writes_nothing = std::all_of(out.begin(), out.end(), [](const Shape& shape) { return NumElements(shape) == 0; });
  }
  return true;
}

bool Partition::PlanMemory() {
  constexpr int kNever = -1;
  std::vector<ArenaRequest> requests(slots_.size(), {0, kNever, kNever});
  for (int s = 0; s < static_cast<int>(steps_.size()); ++s) {
    const auto touch = [&](int slot) {
      if (slot < 0 || slots_[slot].external) return;
      ArenaRequest& request = requests[slot];
      request.bytes = slots_[slot].layout == Layout::kPlanar
                          ? PlanarElements(slots_[slot].shape) * slots_[slot].element_bytes
                          : NumElements(slots_[slot].shape) * slots_[slot].element_bytes;
      if (request.first_use == kNever) request.first_use = s;
      request.last_use = s;
    };
    for (int slot : steps_[s].inputs) touch(slot);
    for (int slot : steps_[s].outputs) touch(slot);
  }
  for (int s = 0; s < static_cast<int>(steps_.size()); ++s) {
    requests.push_back({steps_[s].op->ScratchBytes(pool_->num_threads()), s, s});
  }
  const ArenaPlan plan = PlanArena(requests);
  const size_t bytes = plan.total_bytes + 2 * kGuardBytes;
  arena_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)));
  if (!arena_) {
    problem_ = "litesmith delegate: no memory for " + std::to_string(plan.total_bytes) + " bytes of intermediates";
    return false;
  }
  // Slack is read by vector loads (never used); zero it once so that no tool reports it.
  std::memset(arena_.get(), 0, bytes);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].offset = kGuardBytes + plan.offsets[i];
  for (size_t s = 0; s < steps_.size(); ++s) steps_[s].scratch_offset = kGuardBytes + plan.offsets[slots_.size() + s];
  return true;
}

TfLiteStatus Partition::Prepare(TfLiteContext* context) {
  if (!error_.empty() || !InferShapes(context) || !PlanMemory()) {
    context->ReportError(context, "%s", error_.empty() ? problem_.c_str() : error_.c_str());
    return kTfLiteError;
  }
  for (int id : output_ids_) {
    const auto found = slot_of_tensor_.find(id);
    if (found == slot_of_tensor_.end()) continue;
    const Shape& shape = slots_[found->second].shape;
    auto* dims = static_cast<TfLiteIntArray*>(std::malloc(sizeof(int) * (shape.size() + 1)));
    dims->size = static_cast<int>(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) dims->data[i] = shape[i];
    if (context->ResizeTensor(context, &context->tensors[id], dims) != kTfLiteOk) return kTfLiteError;
  }
  return kTfLiteOk;
}

TfLiteStatus Partition::Bind(TfLiteContext* context) {
  for (Slot& slot : slots_) {
    slot.data = slot.external ? context->tensors[slot.tensor_id].data : arena_.get() + slot.offset;
  }
  for (Step& step : steps_) {
    step.in.clear();
    step.out.clear();
    step.in_shapes.clear();
    step.out_shapes.clear();
    for (int slot : step.inputs) {
      step.in.push_back(slot < 0 ? nullptr : slots_[slot].data);
      step.in_shapes.push_back(slot < 0 ? nullptr : &slots_[slot].shape);
    }
    for (int slot : step.outputs) {
      step.out.push_back(slots_[slot].data);
      step.out_shapes.push_back(&slots_[slot].shape);
    }
  }
  return kTfLiteOk;
}

// The operators of a block take turns for every row: each gets its share of the whole.
void Partition::RunTimed(Step& step, const RunArgs& args) {
  std::atomic<int64_t> part_ns[3] = {};
  RunArgs timed = args;
  timed.part_ns = part_ns;
  int64_t start = Now();
  step.op->Run(timed);
  const int64_t all = Now() - start, sum = std::max<int64_t>(part_ns[0] + part_ns[1] + part_ns[2], 1);
  for (size_t i = 0; i < step.parts.size(); ++i) {
    const Part& part = step.parts[i];
    if (part.node == kNoNode) continue;
    const int64_t spent = step.parts.size() == 1 ? all : all * part_ns[i] / sum;
    delegate_->Record({start, spent, part.name, part.kernel, part.node});
    start += spent;
  }
}

TfLiteStatus Partition::Invoke(TfLiteContext* context) {
  for (int id : input_ids_) {
    const auto found = slot_of_tensor_.find(id);
    if (found != slot_of_tensor_.end() && slots_[found->second].shape != ShapeOf(context->tensors[id])) {
      if (Prepare(context) != kTfLiteOk) return kTfLiteError;
      break;
    }
  }
  Bind(context);
  const bool profiling = delegate_->profiling();
  for (Step& step : steps_) {
    if (step.writes_nothing) continue;
    const RunArgs args{step.in.data(),        step.out.data(),
                       step.in_shapes.data(), step.out_shapes.data(),
                       arena_.get() + step.scratch_offset, pool_};
    if (!profiling) {
      step.op->Run(args);
      continue;
    }
    RunTimed(step, args);
  }
  return kTfLiteOk;
}

}  // namespace litesmith
