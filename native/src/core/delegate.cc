// SPDX-License-Identifier: Apache-2.0
// See delegate.h.
#include "core/delegate.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/graph.h"
#include "core/partition.h"
#include "core/sparse_chains.h"

namespace litesmith {
namespace {

constexpr char kNodeName[] = "LitesmithDelegate";
constexpr size_t kMostDecisions = 1 << 16;
constexpr size_t kMostEvents = 1 << 20;  // 40 MB; a caller who never takes them must not fill the memory

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

void* InitPartition(TfLiteContext* context, const char* buffer, size_t) {
  const auto* params = reinterpret_cast<const TfLiteDelegateParams*>(buffer);
  return new Partition(static_cast<Delegate*>(params->delegate->data_), context, *params);
}

void FreePartition(TfLiteContext*, void* buffer) { delete static_cast<Partition*>(buffer); }

TfLiteStatus PreparePartition(TfLiteContext* context, TfLiteNode* node) {
  return static_cast<Partition*>(node->user_data)->Prepare(context);
}

TfLiteStatus InvokePartition(TfLiteContext* context, TfLiteNode* node) {
  return static_cast<Partition*>(node->user_data)->Invoke(context);
}

const OpEntry* FindEntry(const std::vector<OpEntry>& entries, int code) {
  for (const OpEntry& entry : entries) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

}  // namespace

const char* OperatorName(int code) {
  if (const OpEntry* entry = FindEntry(Int16Ops(), code)) return entry->name;
  if (const OpEntry* entry = FindEntry(SparseOps(), code)) return entry->name;
  return code == kDensify ? "DENSIFY" : "OTHER";
}

Delegate::Delegate(Options options, const KernelTable* kernels, std::string no_kernels_reason)
    : options_(std::move(options)), kernels_(kernels), no_kernels_reason_(std::move(no_kernels_reason)) {
  std::memset(&abi_, 0, sizeof(abi_));
  abi_.data_ = this;
  abi_.Prepare = PrepareGraph;
  // Without this flag the interpreter refuses every graph with a dynamic tensor anywhere.
  abi_.flags = kTfLiteDelegateFlagsAllowDynamicTensors;
}

ThreadPool* Delegate::PoolFor(const TfLiteContext* context) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!pool_) {
    const int wanted = options_.num_threads > 0 ? options_.num_threads : context->recommended_num_threads;
    pool_ = std::make_unique<ThreadPool>(wanted);
  }
  return pool_.get();
}

std::unique_ptr<Op> Delegate::MakeOp(const NodeView& node, std::string* why) const {
  *why = "the operator is not implemented";
  if (options_.int16) {
    if (const OpEntry* entry = FindEntry(Int16Ops(), node.code())) {
      if (auto op = entry->make(node, *kernels_, why)) return op;
    }
  }
  if (options_.sparse && node.num_outputs() > 0 && node.output(0).type == kTfLiteFloat32) {
    if (const OpEntry* entry = FindEntry(SparseOps(), node.code())) return entry->make(node, *kernels_, why);
  }
  return nullptr;
}

std::vector<int> Delegate::Decide(TfLiteContext* context) {
  std::vector<int> taken;
  std::vector<SparseCandidate> candidates;
  std::vector<Decision> decisions;
  const std::vector<int> plan = ExecutionPlan(context);
  for (int index : plan) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) continue;
    const NodeView view(context, index, node, registration, &densified_);
    Decision decision{0, index, OperatorName(view.code()), false, ""};
    if (options_.only_node >= 0 && options_.only_node != index) {
      decision.note = "only_node names another";
    } else if (view.code() == kDensify) {
      decision.note = "unpacked once by the runtime";
    } else if (std::unique_ptr<Op> op = MakeOp(view, &decision.note)) {
      decision.note = op->kernel_name();
      if (op->layout() == Layout::kPlanar) {
        candidates.push_back({view, std::move(op)});
      } else {
        decision.taken = true;
        taken.push_back(index);
      }
    }
    decisions.push_back(decision);
  }
  for (const SparseVerdict& verdict : ChooseSparseChains(candidates)) {
    for (Decision& decision : decisions) {
      if (decision.node != verdict.node) continue;
      decision.taken = verdict.taken;
      if (!verdict.note.empty()) decision.note = verdict.note;
    }
    if (verdict.taken) taken.push_back(verdict.node);
  }
  for (int index : UnreadDensify(context, plan, densified_, taken)) {
    for (Decision& decision : decisions) {
      if (decision.node == index) decision = {0, index, decision.op, true, "read by its consumers as it is stored"};
    }
    taken.push_back(index);
  }
  if (options_.verbose) {
    std::fprintf(stderr, "litesmith delegate: tier %s takes %zu of %zu nodes\n", kernels_->tier, taken.size(), plan.size());
    if (!no_kernels_reason_.empty()) std::fprintf(stderr, "  better tiers: %s\n", no_kernels_reason_.c_str());
    for (const Decision& d : decisions) {
      std::fprintf(stderr, "  node %d %s: %s%s\n", d.node, d.op.c_str(), d.taken ? "" : "left: ", d.note.c_str());
    }
  }
  Keep(std::move(decisions));
  return taken;
}

void Delegate::Keep(std::vector<Decision> decisions) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (decisions_.size() > kMostDecisions) decisions_.clear();  // a delegate may serve any number of interpreters
  for (Decision& decision : decisions) decision.graph = graphs_;
  decisions_.insert(decisions_.end(), decisions.begin(), decisions.end());
  ++graphs_;
}

TfLiteStatus Delegate::Claim(TfLiteContext* context) {
  std::lock_guard<std::mutex> claiming(claim_mutex_);
  std::string refusal = kernels_ == nullptr ? no_kernels_reason_ : CheckAbi(context);
  if (!refusal.empty()) {
    if (options_.verbose) std::fprintf(stderr, "litesmith delegate: takes nothing: %s\n", refusal.c_str());
    Keep({{0, -1, "GRAPH", false, refusal}});
    return kTfLiteOk;
  }
  densified_ = FindDensified(context);
  const std::vector<int> taken = Decide(context);
  if (taken.empty()) return kTfLiteOk;

  std::unique_ptr<TfLiteIntArray, void (*)(void*)> nodes(
      static_cast<TfLiteIntArray*>(std::malloc(sizeof(int) * (taken.size() + 1))), std::free);
  nodes->size = static_cast<int>(taken.size());
  for (size_t i = 0; i < taken.size(); ++i) nodes->data[i] = taken[i];
  TfLiteRegistration registration;
  std::memset(&registration, 0, sizeof(registration));
  registration.init = InitPartition;
  registration.free = FreePartition;
  registration.prepare = PreparePartition;
  registration.invoke = InvokePartition;
  registration.builtin_code = kTfLiteBuiltinDelegate;
  registration.custom_name = kNodeName;
  registration.version = 1;
  return context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes.get(), &abi_);
}

TfLiteStatus Delegate::PrepareGraph(TfLiteContext* context, TfLiteDelegate* delegate) {
  return static_cast<Delegate*>(delegate->data_)->Claim(context);
}

void Delegate::SetProfiling(bool on) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (on) {
    events_.clear();
    events_.reserve(4096);  // growing while operators are timed would count as theirs
  }
  profiling_.store(on);
}

void Delegate::Record(const OpEvent& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (events_.size() < kMostEvents) events_.push_back(event);
}

size_t Delegate::TakeEvents(OpEvent* out, size_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (out == nullptr) return events_.size();
  const size_t count = std::min(capacity, events_.size());
  std::copy_n(events_.begin(), count, out);
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

std::string Delegate::ProfileJson() {
  std::lock_guard<std::mutex> lock(mutex_);
  struct Total {
    const OpEvent* first;
    int64_t calls, ns;
  };
  std::vector<Total> totals;
  for (const OpEvent& event : events_) {
    const auto same = [&](const Total& t) { return t.first->node == event.node && t.first->kernel == event.kernel; };
    auto found = std::find_if(totals.begin(), totals.end(), same);
    if (found == totals.end()) found = totals.insert(totals.end(), {&event, 0, 0});
    ++found->calls;
    found->ns += event.duration_ns;
  }
  std::string out = "[";
  for (const Total& t : totals) {
    if (out.size() > 1) out += ",";
    out += "{\"node\":" + std::to_string(t.first->node) + ",\"op\":" + JsonString(t.first->op) + ",\"kernel\":" +
           JsonString(t.first->kernel) + ",\"calls\":" + std::to_string(t.calls) + ",\"total_ns\":" +
           std::to_string(t.ns) + "}";
  }
  return out + "]";
}

std::string Delegate::DecisionsJson() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out = "[";
  for (const Decision& d : decisions_) {
    if (out.size() > 1) out += ",";
    out += "{\"graph\":" + std::to_string(d.graph) + ",\"node\":" + std::to_string(d.node) + ",\"op\":" + JsonString(d.op) +
           ",\"taken\":" + (d.taken ? "true" : "false") + ",\"note\":" + JsonString(d.note) + "}";
  }
  return out + "]";
}

}  // namespace litesmith
