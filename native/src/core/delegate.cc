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
constexpr double kMargin = 0.85;   // less would not be worth the rounding, nor the doubt about the estimate
constexpr double kPartitionUs = 5;  // to leave the stock engine's graph and to come back
constexpr double kTurnsUs = 40;     // and where each has several threads
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

// Whether a node has what the maker of its operator looks at: a file may say anything.
bool IsComplete(const NodeView& node, const OpEntry& entry) {
  for (int i = 0; i < entry.inputs; ++i) {
    if (!node.has_input(i) || node.input(i).dims == nullptr) return false;
  }
  if (node.num_outputs() < 1 || (entry.needs_params && !node.has_params())) return false;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.output_id(i) == kTfLiteOptionalTensor || node.output(i).dims == nullptr) return false;
  }
  return true;
}

constexpr int kFarthest = 1 << 15;  // steps and kernels up to this: a window's extent fits an int

template <class Params>
bool HasSteps(const Params& p) {
  return p.stride_width > 0 && p.stride_height > 0 && std::max(p.stride_width, p.stride_height) <= kFarthest;
}
template <class Params>
bool HasStepsAndDilations(const Params& p) {
  return HasSteps(p) && p.dilation_width > 0 && p.dilation_height > 0 &&
         std::max(p.dilation_width, p.dilation_height) <= kFarthest;
}

// Whether windows move forward; of a node that is complete.
bool MovesForward(const NodeView& node) {
  const auto is_window = [](const TfLiteTensor& weights) {
    const int* dims = weights.dims->data;
    return weights.dims->size == 4 && dims[1] > 0 && dims[2] > 0 && std::max(dims[1], dims[2]) <= kFarthest;
  };
  switch (node.code()) {
    case kConv2d: return HasStepsAndDilations(node.params<ConvParams>()) && is_window(node.input(1));
    case kDepthwiseConv2d: return HasStepsAndDilations(node.params<DepthwiseConvParams>()) && is_window(node.input(1));
    case kTransposeConv: return HasSteps(node.params<TransposeConvParams>()) && is_window(node.input(1));
    case kAveragePool2d:
    case kMaxPool2d: {
      const auto& pool = node.params<PoolParams>();
      return HasSteps(pool) && pool.filter_width > 0 && pool.filter_height > 0;
    }
    default: return true;
  }
}

// Whether an operator is faster here. Between others that are taken it may be slower, by what it costs to leave and return.
bool PromisesToWin(const Op& op, bool between, std::string* why) {
  double here_us = 0, stock_us = 0;
  op.Estimate(&here_us, &stock_us);
  char text[96];
  std::snprintf(text, sizeof(text), "estimated at %.1f us against %.1f us of the stock engine", here_us, stock_us);
  *why = text;
  return here_us < (between ? stock_us + kPartitionUs : kMargin * stock_us);
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
    const int wanted = options_.num_threads > 0 ? options_.num_threads : std::min(context->recommended_num_threads, 256);
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
  *why = "inputs, parameters or a window that do not make sense";
  if (!IsComplete(node, *entry) || !MovesForward(node)) return nullptr;
  return entry->make(node, *kernels_, why);
}

std::unique_ptr<Op> Delegate::MakeTaken(const NodeView& node, std::string* why) const {
  std::string unsaid;
  if (why == nullptr) why = &unsaid;
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
  if (options_.only_node >= 0) origins_.padded.clear();  // the PAD before it is left to the stock engine
  // A tier without sparse kernels of its own has the reference ones, which are for tests.
  const bool has_kernels = kernels_->f32_spmm[0].run != ScalarTable().f32_spmm[0].run;
  const bool sparse = options_.sparse && (has_kernels || options_.isa != "auto");
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
    } else if (std::unique_ptr<Op> op = sparse ? Make(Family::kSparse, node, &note) : nullptr) {
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
    TakeCompanions(context, nodes, &notes);
    if (options_.hybrid != Options::Choice::kOn) DropWhatDoesNotPay(context, nodes, &notes);
    TakeUnread(nodes);
  }
  std::vector<Decision> decisions;
  std::vector<int> taken;
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    const bool is_taken = found != taken_.end();
    std::string note = notes[node.index()];
    if (is_taken && found->second == Family::kUnread) note = "done by its consumers";
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

// The hybrid operator of a node whose model allows its precision, or null.
std::unique_ptr<Op> Delegate::MakeHybrid(const TfLiteContext* context, const NodeView& node, std::string* note) const {
  if (!node.has_input(1)) return nullptr;
  const TfLiteType weights = node.narrow(1).type;
  const bool relaxed = options_.relaxed == Options::Choice::kOn ||
                       (options_.relaxed == Options::Choice::kAuto && AllowsLessPrecision(context));
  if (weights == kTfLiteFloat32 && !relaxed) return nullptr;
  std::unique_ptr<Op> op = Make(Family::kHybrid, node, note);
  if (op == nullptr || weights != kTfLiteFloat16 || relaxed) return op;
  *note = "weights of 16-bit floats, and the model does not say that less precision will do";
  return nullptr;
}

// Of the operators that are left, those whose floats are multiplied in integers.
void Delegate::TakeHybrid(TfLiteContext* context, const std::vector<NodeView>& nodes, std::map<int, std::string>* notes) {
  for (const NodeView& node : nodes) {
    if (taken_.count(node.index()) || (options_.only_node >= 0 && options_.only_node != node.index())) continue;
    std::string& note = (*notes)[node.index()];
    const std::unique_ptr<Op> op = MakeHybrid(context, node, &note);
    if (op == nullptr || (options_.hybrid != Options::Choice::kOn && !PromisesToWin(*op, false, &note))) continue;
    note = op->kernel_name();
    taken_[node.index()] = Family::kHybrid;
  }
}

// Operators around hybrid ones, so that the chain stays in one engine: those that only come along, and hybrid ones that
// are a little slower here.
void Delegate::TakeCompanions(TfLiteContext* context, const std::vector<NodeView>& nodes,
                              std::map<int, std::string>* notes) {
  std::set<int> touched;  // tensors that hybrid operators and their companions read or write
  const auto sources = [](const NodeView& node) {
    std::vector<int> tensors{node.pad() != nullptr ? node.pad()->source : node.input_id(0)};
    if (node.code() == kAdd) tensors.push_back(node.input_id(1));
    return tensors;
  };
  const auto touch = [&](const NodeView& node) {
    for (int tensor : sources(node)) touched.insert(tensor);
    touched.insert(node.output_id(0));
  };
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found != taken_.end() && found->second == Family::kHybrid) touch(node);
  }
  if (touched.empty()) return;
  const auto take = [&](const NodeView& node, Family family, const Op& op) {
    (*notes)[node.index()] = op.kernel_name();
    taken_[node.index()] = family;
    touch(node);
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const NodeView& node : nodes) {
      if (taken_.count(node.index()) || !node.has_input(0) || !node.has_input(1) || node.num_outputs() != 1) continue;
      if (IsConstant(node.input(0))) continue;
      const std::vector<int> in = sources(node);
      const bool fed = std::any_of(in.begin(), in.end(), [&](int tensor) { return touched.count(tensor) > 0; });
      const bool used = touched.count(node.output_id(0)) > 0;
      std::string why;
      if (!fed && !used) continue;
      if (const auto op = Make(Family::kCompanion, node, &why)) {
        changed = take(node, Family::kCompanion, *op);
      } else if (const auto hybrid = MakeHybrid(context, node, &why)) {
        if (PromisesToWin(*hybrid, fed && used, &why)) changed = take(node, Family::kHybrid, *hybrid);
      }
    }
  }
}

// Nodes whose work their consumers do.
void Delegate::TakeUnread(const std::vector<NodeView>& nodes) {
  std::vector<int> all;
  std::vector<NodeView> hybrid;
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found == taken_.end()) continue;
    all.push_back(node.index());
    if (found->second == Family::kHybrid || found->second == Family::kCompanion) hybrid.push_back(node);
  }
  const auto keys = [](const auto& map) {
    std::set<int> tensors;
    for (const auto& entry : map) tensors.insert(entry.first);
    return tensors;
  };
  std::set<int> densified = keys(origins_.densified);
  for (const NodeView& node : nodes) {
    if (!taken_.count(node.index())) continue;
    for (int i : MakeTaken(node)->RuntimeInputs()) densified.erase(node.input_id(i));
  }
  for (int node : UnreadNodes(nodes, densified, all)) taken_[node] = Family::kUnread;

  std::set<int> widened = keys(origins_.widened);
  std::vector<int> readers;
  for (const NodeView& node : hybrid) {
    readers.push_back(node.index());
    for (int i : MakeTaken(node)->RuntimeInputs()) widened.erase(node.input_id(i));
  }
  std::set<int> gone;  // tensors that nobody writes any more
  for (int index : UnreadNodes(nodes, widened, readers)) unread_.insert(index);
  for (const NodeView& node : nodes) {
    if (unread_.count(node.index())) gone.insert(node.output_id(0));
  }

  // What waits for a node of the stock engine may run apart from the PAD before it, and must leave that alone.
  std::vector<int> padding;
  for (const NodeView& node : hybrid) {
    bool waits = false;
    for (int i = 1; i < node.num_inputs(); ++i) {
      waits = waits || (node.has_input(i) && !IsConstant(node.input(i)) && !gone.count(node.input_id(i)));
    }
    if (waits) origins_.padded.erase(node.input_id(0));
    if (MakeTaken(node)->PadsItsInput()) padding.push_back(node.index());
  }
  for (int index : UnreadNodes(nodes, keys(origins_.padded), padding)) unread_.insert(index);
  for (int index : unread_) taken_[index] = Family::kUnread;
}

// What hybrid operators win in each run of nodes that are taken one after the other.
std::vector<Delegate::HybridRun> Delegate::HybridRuns(const std::vector<NodeView>& nodes) const {
  std::vector<HybridRun> runs;
  bool inside = false;
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    const bool widens = node.num_outputs() == 1 && origins_.widened.count(node.output_id(0)) > 0;
    if (widens || (found != taken_.end() && found->second == Family::kUnread)) continue;  // nothing to do at run time
    if (found == taken_.end()) {
      inside = false;
      continue;
    }
    if (!inside) runs.emplace_back();
    inside = true;
    if (found->second != Family::kHybrid && found->second != Family::kCompanion) continue;
    runs.back().nodes.push_back(node.index());
    double here_us = 0, stock_us = 0;
    MakeTaken(node)->Estimate(&here_us, &stock_us);
    runs.back().won_us += stock_us - here_us;
  }
  return runs;
}

// Leaves hybrid operators to the stock engine where they win less than the change of engines costs. Two crews of threads
// that take turns on the same cores cost more: MobileNet V2 on two threads was measured to be 1.3 times slower where each
// depthwise convolution was left to the stock engine.
void Delegate::DropWhatDoesNotPay(const TfLiteContext* context, const std::vector<NodeView>& nodes,
                                  std::map<int, std::string>* notes) {
  const auto drop = [&](const HybridRun& run, const char* why) {
    for (int node : run.nodes) {
      (*notes)[node] = why;
      taken_.erase(node);
    }
  };
  for (const HybridRun& run : HybridRuns(nodes)) {
    if (run.won_us < kPartitionUs) drop(run, "the change of engines costs more than this wins");
  }
  const int threads = options_.num_threads > 0 ? options_.num_threads : context->recommended_num_threads;
  if (threads <= 1) return;  // -1 where nobody said anything, and then there is one
  const std::vector<HybridRun> runs = HybridRuns(nodes);
  double won_us = 0;
  for (const HybridRun& run : runs) won_us += run.won_us;
  const auto has_nodes = [](const HybridRun& run) { return !run.nodes.empty(); };
  const auto chains = std::count_if(runs.begin(), runs.end(), has_nodes);
  if (won_us / threads > static_cast<double>(chains) * kTurnsUs) return;
  for (const HybridRun& run : runs) drop(run, "with several threads the turns of two engines cost more than this wins");
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
