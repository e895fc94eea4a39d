// SPDX-License-Identifier: Apache-2.0
// See delegate.h.
#include "core/delegate.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "core/graph.h"
#include "core/partition.h"
#include "core/sparse_chains.h"

namespace litesmith {
namespace {

constexpr char kNodeName[] = "LitesmithDelegate";
constexpr double kMargin = 0.9;  // an operator taken for its speed alone must promise at least a tenth
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

// Whether a node has the two inputs, the output and the parameters that every hybrid operator and companion has.
bool IsComplete(const NodeView& node) {
  if (!node.has_input(0) || !node.has_input(1) || node.num_outputs() != 1 || !node.has_params()) return false;
  return node.input(0).dims != nullptr && node.input(1).dims != nullptr && node.output(0).dims != nullptr;
}

bool PromisesToWin(const Op& op, std::string* why) {
  double here_us = 0, stock_us = 0;
  op.Estimate(&here_us, &stock_us);
  char text[96];
  std::snprintf(text, sizeof(text), "estimated at %.1f us against %.1f us of the stock engine", here_us, stock_us);
  *why = text;
  return here_us < kMargin * stock_us;
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

std::unique_ptr<Op> Delegate::Make(Family family, const NodeView& node, std::string* why) const {
  const auto& entries = family == Family::kInt16    ? Int16Ops()
                        : family == Family::kSparse ? SparseOps()
                        : family == Family::kHybrid ? HybridOps()
                                                    : CompanionOps();
  const OpEntry* entry = FindEntry(entries, node.code());
  const bool is_float = node.num_outputs() > 0 && node.output(0).type == kTfLiteFloat32;
  if (entry == nullptr || (family != Family::kInt16 && !is_float)) return nullptr;
  if ((family == Family::kHybrid || family == Family::kCompanion) && !IsComplete(node)) return nullptr;
  return entry->make(node, *kernels_, why);
}

std::unique_ptr<Op> Delegate::MakeTaken(const NodeView& node, std::string* why) const {
  const auto found = taken_.find(node.index());
  *why = "it was not taken";
  return found == taken_.end() ? nullptr : Make(found->second, node, why);
}

std::vector<NodeView> Delegate::Nodes(TfLiteContext* context, const std::vector<int>& plan) const {
  std::vector<NodeView> nodes;
  for (int index : plan) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) continue;
    nodes.emplace_back(context, index, node, registration, &origins_);
  }
  return nodes;
}

std::vector<int> Delegate::Decide(TfLiteContext* context) {
  std::vector<SparseCandidate> candidates;
  std::map<int, std::string> notes;
  const std::vector<int> plan = ExecutionPlan(context);
  const std::vector<NodeView> nodes = Nodes(context, plan);
  taken_.clear();
  unread_.clear();
  for (const NodeView& node : nodes) {
    std::string& note = notes[node.index()];
    note = "the operator is not implemented";
    if (options_.only_node >= 0 && options_.only_node != node.index()) {
      note = "only_node names another";
    } else if (node.code() == kDensify) {
      note = "unpacked once by the runtime";
    } else if (std::unique_ptr<Op> op = options_.int16 ? Make(Family::kInt16, node, &note) : nullptr) {
      note = op->kernel_name();
      taken_[node.index()] = Family::kInt16;
    } else if (std::unique_ptr<Op> op = options_.sparse ? Make(Family::kSparse, node, &note) : nullptr) {
      note = op->kernel_name();
      candidates.push_back({node, std::move(op)});
    }
  }
  for (const SparseVerdict& verdict : ChooseSparseChains(candidates)) {
    if (verdict.taken) taken_[verdict.node] = Family::kSparse;
    if (!verdict.note.empty()) notes[verdict.node] = verdict.note;
  }
  if (options_.hybrid != Options::Choice::kOff) TakeHybrid(context, nodes, &notes);
  if (options_.only_node < 0) {
    TakeCompanions(nodes);
    TakeUnread(nodes);
    if (options_.hybrid != Options::Choice::kOn && MixesEngines(context, nodes)) {
      for (auto node = taken_.begin(); node != taken_.end();) {
        const bool stays = node->second == Family::kInt16 || node->second == Family::kSparse;
        if (!stays) notes[node->first] = "with several threads two engines in turns are slower than one";
        node = stays ? std::next(node) : taken_.erase(node);
      }
      unread_.clear();
      TakeUnread(nodes);
    }
  }
  std::vector<Decision> decisions;
  std::vector<int> taken;
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    const bool is_taken = found != taken_.end();
    std::string note = notes[node.index()];
    if (is_taken && found->second == Family::kUnread) note = "done by its consumers";
    if (is_taken && found->second == Family::kCompanion) note = Make(Family::kCompanion, node, &note)->kernel_name();
    decisions.push_back({0, node.index(), OperatorName(node.code()), is_taken, note});
    if (is_taken) taken.push_back(node.index());
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

// Of the operators that are left, those whose floats are multiplied in integers.
void Delegate::TakeHybrid(TfLiteContext* context, const std::vector<NodeView>& nodes, std::map<int, std::string>* notes) {
  const bool relaxed = options_.relaxed == Options::Choice::kOn ||
                       (options_.relaxed == Options::Choice::kAuto && AllowsLessPrecision(context));
  for (const NodeView& node : nodes) {
    if (taken_.count(node.index()) || (options_.only_node >= 0 && options_.only_node != node.index())) continue;
    if (!IsComplete(node) || (node.narrow(1).type == kTfLiteFloat32 && !relaxed)) continue;
    std::string& note = (*notes)[node.index()];
    const std::unique_ptr<Op> op = Make(Family::kHybrid, node, &note);
    if (op == nullptr) continue;
    if (node.narrow(1).type == kTfLiteFloat16 && !relaxed) {
      note = "weights of 16-bit floats, and the model does not say that less precision will do";
    } else if (options_.hybrid == Options::Choice::kOn || PromisesToWin(*op, &note)) {
      note = op->kernel_name();
      taken_[node.index()] = Family::kHybrid;
    }
  }
}

// Operators between hybrid ones, so that the chain stays in one engine.
void Delegate::TakeCompanions(const std::vector<NodeView>& nodes) {
  std::set<int> touched;  // tensors that hybrid operators and their companions read or write
  const auto touch = [&](const NodeView& node) {
    touched.insert(node.pad() != nullptr ? node.pad()->source : node.input_id(0));
    if (node.code() == kAdd) touched.insert(node.input_id(1));
    touched.insert(node.output_id(0));
  };
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found != taken_.end() && found->second == Family::kHybrid) touch(node);
  }
  if (touched.empty()) return;
  for (bool changed = true; changed;) {
    changed = false;
    for (const NodeView& node : nodes) {
      if (taken_.count(node.index()) || !IsComplete(node)) continue;
      const int source = node.pad() != nullptr ? node.pad()->source : node.input_id(0);
      const bool near = touched.count(source) || touched.count(node.output_id(0)) ||
                        (node.code() == kAdd && touched.count(node.input_id(1)));
      std::string why;
      if (!near || !Make(Family::kCompanion, node, &why)) continue;
      taken_[node.index()] = Family::kCompanion;
      touch(node);
      changed = true;
    }
  }
}

// Nodes whose work their consumers do.
void Delegate::TakeUnread(const std::vector<NodeView>& nodes) {
  std::vector<int> all, hybrid, padding;
  std::set<int> needed;  // tensors that hybrid operators and companions read when they run
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found == taken_.end()) continue;
    all.push_back(node.index());
    if (found->second != Family::kHybrid && found->second != Family::kCompanion) continue;
    hybrid.push_back(node.index());
    std::string why;
    const std::unique_ptr<Op> op = Make(found->second, node, &why);
    if (op->PadsItsInput()) padding.push_back(node.index());
    for (int i : op->RuntimeInputs()) needed.insert(node.input_id(i));
  }
  const auto keys = [](const auto& map) {
    std::set<int> tensors;
    for (const auto& entry : map) tensors.insert(entry.first);
    return tensors;
  };
  for (int node : UnreadNodes(nodes, keys(origins_.densified), all)) taken_[node] = Family::kUnread;
  std::set<int> widened = keys(origins_.widened);
  for (int tensor : needed) widened.erase(tensor);
  for (int node : UnreadNodes(nodes, widened, hybrid)) unread_.insert(node);
  for (int node : UnreadNodes(nodes, keys(origins_.padded), padding)) unread_.insert(node);
  for (int node : unread_) taken_[node] = Family::kUnread;
}

// Whether another engine works between two hybrid operators while both have several threads: two crews that take turns
// on the same cores were measured to be slower than the stock engine alone (1.3 times on MobileNet V2 with two threads).
bool Delegate::MixesEngines(const TfLiteContext* context, const std::vector<NodeView>& nodes) const {
  if ((options_.num_threads > 0 ? options_.num_threads : context->recommended_num_threads) == 1) return false;
  int hybrid_left = 0;
  for (const auto& [node, family] : taken_) hybrid_left += family == Family::kHybrid;
  const int hybrid_in_all = hybrid_left;
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found != taken_.end() && found->second == Family::kHybrid) --hybrid_left;
    const bool between = hybrid_left > 0 && hybrid_left < hybrid_in_all;
    const bool widens = node.num_outputs() == 1 && origins_.widened.count(node.output_id(0)) > 0;
    if (between && found == taken_.end() && !widens) return true;
  }
  return false;
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
  origins_ = FindOrigins(context);
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
